"""SASL OAUTHBEARER (RFC 7628): a bearer token and extensions (KIP-342) in one message.

A broker that refuses the token answers with JSON that says why; the client then sends ``REFUSAL_READ``, and
the broker ends the exchange with an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.errors import CorruptMessage

REFUSAL_READ: Final = b"\x01"
"""The client's answer to a refusal."""

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,\x00]*))?,\x01(?P<pairs>(?:[^\x01]*\x01)*)\x01", re.DOTALL
)
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]*")
_RESERVED: Final = "auth"


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """What an OAUTHBEARER message holds. ``authorization_id`` is empty, or the user to act as."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


def encode_bearer(
    token: str, authorization_id: str = "", extensions: Mapping[str, str] | None = None
) -> bytes:
    """Build the client's message; raises ValueError for a token or an extension that it cannot carry."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token holds characters that a bearer token cannot (RFC 6750)")
    extensions = extensions or {}
    check_extensions(extensions)
    acting_as = "a=" + authorization_id.replace("=", "=3D").replace(",", "=2C") if authorization_id else ""
    pairs = "".join(
        f"\x01{name}={value}" for name, value in {_RESERVED: f"Bearer {token}", **extensions}.items()
    )
    return f"n,{acting_as},{pairs}\x01\x01".encode()


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise ValueError for a name or a value that is no SASL extension (RFC 7628, section 3.1)."""
    for name, value in extensions.items():
        if not _KEY.fullmatch(name) or name == _RESERVED:
            raise ValueError(f"the extension {name[:40]!r} must be letters only, and not 'auth'")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"the extension {name[:40]!r} holds a character that is not printable ASCII")


def parse_bearer(message: bytes) -> BearerLogin:
    """Read a client's message; raises CorruptMessage, which never quotes the token."""
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise CorruptMessage("the OAUTHBEARER message is not UTF-8") from None
    if match is None:
        raise CorruptMessage("the OAUTHBEARER message is malformed")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair)
    scheme, _, token = pairs.pop(_RESERVED, "").partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token.strip()):
        raise CorruptMessage("the OAUTHBEARER message holds no bearer token")
    try:
        check_extensions(pairs)
    except ValueError as error:
        raise CorruptMessage(f"OAUTHBEARER: {error}") from None
    acting_as = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerLogin(token.strip(), acting_as, pairs)


def encode_refusal(status: str, scope: str | None = None, configuration: str | None = None) -> bytes:
    """Build a broker's refusal: a ``status`` such as invalid_token, the scope it needs, where to get one."""
    values = {"status": status, "scope": scope, "openid-configuration": configuration}
    return json.dumps({name: value for name, value in values.items() if value is not None}).encode()


def parse_refusal(message: bytes) -> str:
    """Read why a broker refused the token, in a few words."""
    try:
        values = json.loads(message)
        status = str(values.get("status", "refused"))
        scope = values.get("scope")
    except (ValueError, AttributeError, RecursionError):
        return "refused"
    return f"{status[:200]} (it needs the scope {str(scope)[:200]})" if scope else status[:200]
