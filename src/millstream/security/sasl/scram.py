"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): proves a password without sending it.

::

    client                                            broker
    n,,n=user,r=<nonce>                        ──▶    looks the user's credential up
                                               ◀──    r=<nonce><more>,s=<salt>,i=<iterations>
    c=biws,r=<nonce><more>,p=<proof>           ──▶    compares the proof
                                               ◀──    v=<signature>: the broker knew the credential too

As in Kafka, names and passwords are UTF-8 without SASLprep, channels are not bound, and extensions may follow
the nonce of the first message (``tokenauth=true`` for delegation tokens). Nonces come from the caller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.errors import CorruptMessage, SaslAuthenticationFailedError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000
"""More than any cluster uses (Kafka allows 16,384): a broker must not make a client compute for minutes."""
_MAX_NONCE: Final = 512


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One mechanism: its name, its hash, and its number in Kafka's requests about SCRAM credentials."""

    name: str
    hash_name: str
    type_id: int

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def salt_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Derive the key that all others come from: milliseconds of work, without the interpreter's lock."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def credential(self, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """Make what a broker stores instead of the password."""
        return self.credential_of_salted(self.salt_password(password, salt, iterations), salt, iterations)

    def credential_of_salted(self, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        stored_key = self.hash(self.mac(salted, b"Client Key"))
        return ScramCredential(salt, iterations, stored_key, self.mac(salted, b"Server Key"))


MECHANISMS: Final = {
    mechanism.name: mechanism
    for mechanism in (
        ScramMechanism("SCRAM-SHA-256", "sha256", 1),
        ScramMechanism("SCRAM-SHA-512", "sha512", 2),
    )
}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker knows of a user: enough to check a proof, not to make one."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message. ``bare`` and ``header`` go into the proof as they were sent."""

    username: str
    nonce: str
    authorization_id: str
    extensions: Mapping[str, str]
    header: str
    bare: str


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The broker's challenge."""

    nonce: str
    salt: bytes
    iterations: int


class ScramClient:
    """The client's side of one exchange: ``first``, ``final``, ``verify``, in this order."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """``nonce``: printable ASCII without commas, never used before."""
        self.mechanism = mechanism
        self._nonce = nonce
        self._bare = f"n={_escape(username)},r={nonce}" + _attributes(extensions or {})
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def challenge(self, server_first: bytes) -> ServerFirst:
        """Read the broker's challenge; raises CorruptMessage if it does not belong to this exchange."""
        found = parse_server_first(server_first)
        if not found.nonce.startswith(self._nonce) or len(found.nonce) == len(self._nonce):
            raise CorruptMessage("the broker's nonce does not extend the client's")
        return found

    def final(self, server_first: bytes, salted: bytes) -> bytes:
        """Answer the challenge. ``salted`` is the password, salted as the challenge says."""
        challenge = self.challenge(server_first)
        bare = f"c=biws,r={challenge.nonce}"
        signed = ",".join((self._bare, server_first.decode(), bare)).encode()
        mechanism = self.mechanism
        client_key = mechanism.mac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.mac(mechanism.hash(client_key), signed))
        self._signature = mechanism.mac(mechanism.mac(salted, b"Server Key"), signed)
        return f"{bare},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the broker knew the credential; raises SaslAuthenticationFailedError if it did not."""
        fields = _fields(_text(server_final))
        if "e" in fields:
            raise SaslAuthenticationFailedError(f"the broker says {fields['e'][:200]!r}")
        if not hmac.compare_digest(_base64(fields.get("v", "")), self._signature):
            raise SaslAuthenticationFailedError("the broker does not know this user's password")


class ScramServer:
    """The broker's side of one exchange: ``challenge``, ``final``, in this order."""

    def __init__(
        self, mechanism: ScramMechanism, first: ClientFirst, credential: ScramCredential, nonce: str
    ) -> None:
        """``nonce``: what is added to the client's; printable ASCII without commas, never used before."""
        self._mechanism = mechanism
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce
        salt = b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"

    def challenge(self) -> bytes:
        return self._challenge.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof and return the last message.

        Raises CorruptMessage for a message that is malformed or of another exchange, and
        SaslAuthenticationFailedError for a wrong password.
        """
        text = _text(message)
        fields = _fields(text)
        if fields.get("r") != self._nonce:
            raise CorruptMessage("the SCRAM message is of another exchange: its nonce differs")
        if _base64(fields.get("c", "")) != self._first.header.encode():
            raise CorruptMessage("the SCRAM message binds a channel, which is not supported")
        bare, _, _ = text.rpartition(",p=")
        signed = ",".join((self._first.bare, self._challenge, bare)).encode()
        proof = _base64(fields.get("p", ""))
        mechanism, credential = self._mechanism, self._credential
        signature = mechanism.mac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise CorruptMessage("the SCRAM proof has a wrong length")
        if not hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key):
            raise SaslAuthenticationFailedError("the password is wrong")
        return b"v=" + b64encode(mechanism.mac(credential.server_key, signed))


# -- reading messages


_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authzid>[^,\x00]+))?,)(?P<bare>n=(?P<user>[^,\x00]+),r=(?P<rest>.+))"
)
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>[^,]+),i=(?P<count>[0-9]{1,9})(?:,.*)?"
)
_NONCE: Final = re.compile(r"[\x21-\x2B\x2D-\x7E]+")


def parse_client_first(message: bytes) -> ClientFirst:
    """Read a client's first message; raises CorruptMessage."""
    match = _FIRST.fullmatch(_text(message))
    if match is None:
        raise CorruptMessage("the first SCRAM message is malformed")
    nonce, _, extensions = match["rest"].partition(",")
    if not _NONCE.fullmatch(nonce) or len(nonce) > _MAX_NONCE:
        raise CorruptMessage("the nonce of the first SCRAM message is malformed")
    return ClientFirst(
        username=_unescape(match["user"]),
        nonce=nonce,
        authorization_id=_unescape(match["authzid"] or ""),
        extensions=_fields(extensions) if extensions else {},
        header=match["header"],
        bare=match["bare"],
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Read a broker's challenge; raises CorruptMessage."""
    text = _text(message)
    match = _SERVER_FIRST.fullmatch(text)
    if match is None:
        raise CorruptMessage("the broker's SCRAM challenge is malformed")
    iterations = int(match["count"])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise CorruptMessage(
            f"the broker asks for {iterations} SCRAM iterations: "
            f"{MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
        )
    return ServerFirst(match["nonce"], _base64(match["salt"]), iterations)


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise CorruptMessage("the SCRAM message is not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    """Read ``name=value`` pairs between commas."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise CorruptMessage("the SCRAM message is malformed")
    return {name: value for name, _, value in pairs}


def _attributes(extensions: Mapping[str, str]) -> str:
    return "".join(f",{name}={value}" for name, value in extensions.items())


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise CorruptMessage("the SCRAM message holds a value that is not base64") from None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise CorruptMessage("the user's name in the SCRAM message is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
