"""``--secure``: makes what a secured broker needs in its data directory, once, and uses it from then on.

In the directory ``security``: a CA and its key, the broker's certificate and key, the first user's password,
and a ``client.properties`` for every Kafka client. Only the broker's user can read them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.broker.access.settings import STANDARD_AUTHORIZER
from millstream.errors import ConfigError
from millstream.security.sasl.scram import MECHANISMS, ScramCredential
from millstream.settings import Address

if TYPE_CHECKING:  # it takes long to import, and a broker that has its certificates needs little of it
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

ADMIN: Final = "admin"
_MECHANISM: Final = MECHANISMS["SCRAM-SHA-512"]
_ITERATIONS: Final = 8192
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")
_AUTHORITY_DAYS: Final = 3650
_BROKER_DAYS: Final = 825
"""The longest that Apple's systems accept."""
_RENEW_DAYS: Final = 30
"""A certificate that expires sooner is made again at the next start."""
_KEY_USES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class SecureFiles:
    """Where everything is."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.directory / "ca-key.pem"

    @property
    def keystore(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def password(self) -> Path:
        return self.directory / "admin-password"

    @property
    def client_properties(self) -> Path:
        return self.directory / "client.properties"


def secure_settings(data: Path, hosts: Iterable[str]) -> dict[str, str]:
    """Make what is missing; return the broker's settings for it. Raises ConfigError.

    ``hosts``: the names and addresses by which clients reach the broker, for its certificate.
    """
    files = _files(data)
    try:
        _make_private_directories(data.absolute(), files.directory)
        _make_certificates(files, hosts)
        if not files.password.exists():
            _write_private(files.password, secrets.token_urlsafe(24).encode())
    except OSError as error:
        raise ConfigError(f"{files.directory} cannot be prepared: {error.strerror}") from error
    return {
        "ssl.keystore.location": str(files.keystore),
        "sasl.enabled.mechanisms": f"{_MECHANISM.name},SCRAM-SHA-256",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }


def first_user(data: Path) -> tuple[tuple[str, str], ScramCredential]:
    """Return the first user's name and mechanism, and its credential."""
    password = _files(data).password.read_text()
    return (ADMIN, _MECHANISM.name), _MECHANISM.credential(password, secrets.token_bytes(16), _ITERATIONS)


def client_settings(data: Path, address: str) -> dict[str, str]:
    """Return the settings of clients that log in as the first user, by the names that librdkafka has too."""
    files = _files(data)
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.authority),
        "sasl.mechanism": _MECHANISM.name,
        "sasl.username": ADMIN,
        "sasl.password": files.password.read_text(),
    }


def write_client_properties(data: Path, address: Address) -> Path:
    """Write ``client.properties`` for the first user, as Kafka's own tools read it; return its path."""
    files = _files(data)
    login = f'username="{ADMIN}" password="{files.password.read_text()}"'
    reachable = address._replace(host=socket.gethostname()) if address.host in _EVERY_ADDRESS else address
    settings = {
        "bootstrap.servers": reachable,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.authority,
        "sasl.mechanism": _MECHANISM.name,
        "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    _write_private(files.client_properties, "\n".join([*lines, ""]).encode())
    return files.client_properties


def _files(data: Path) -> SecureFiles:
    return SecureFiles(data.absolute() / "security")


def _make_certificates(files: SecureFiles, hosts: Iterable[str]) -> None:
    """Make the CA once, and the broker's certificate when it is missing, old, or lacks a host."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not files.authority.exists() or not files.authority_key.exists():
        key, certificate = _issue("millstream CA", None, ())
        _write_private(files.authority_key, key)
        _write_private(files.authority, certificate)
    wanted = sorted({*hosts, "localhost", "127.0.0.1", "::1", socket.gethostname()} - {*_EVERY_ADDRESS})
    if files.keystore.exists() and _is_good(files.keystore.read_bytes(), wanted):
        return
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    authority_key = load_pem_private_key(files.authority_key.read_bytes(), None)
    key, certificate = _issue("millstream broker", (authority, authority_key), wanted)
    _write_private(files.keystore, key + certificate + files.authority.read_bytes())


def _issue(
    name: str, issuer: tuple[x509.Certificate, PrivateKeyTypes] | None, hosts: Iterable[str]
) -> tuple[bytes, bytes]:
    """Make a key and a certificate, as PEM: a CA's own without an ``issuer``, or else a server's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_AUTHORITY_DAYS if issuer is None else _BROKER_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        signing = dict.fromkeys(_KEY_USES, False) | {"key_cert_sign": True, "crl_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**signing), critical=True)
    else:
        names = [_general_name(host) for host in hosts]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[0].public_key())  # type: ignore[arg-type]
        builder = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(identifier, critical=False)
        )
    certificate = builder.sign(key if issuer is None else issuer[1], hashes.SHA256())  # type: ignore[arg-type]
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, certificate.public_bytes(encoding)


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _is_good(pem: bytes, hosts: Iterable[str]) -> bool:
    """Whether a certificate is valid for some time, and for all these hosts."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, IndexError, x509.ExtensionNotFound):
        return False
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_RENEW_DAYS)
    return certificate.not_valid_after_utc > soon and {*map(_general_name, hosts)} <= {*names}


def _make_private_directories(data: Path, directory: Path) -> None:
    """Make the directories for their owner only. Raises ConfigError if others could have put files there."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = data.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        data.chmod(0o700)
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    remedy = "check what is in it, or remove it, and the broker makes a new one"
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{directory} is not a directory but a link or a file: {remedy}")
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{directory} belongs to another user, who could change the keys in it: {remedy}")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigError(
            f"others may write to {directory}, and could change the keys in it: check what is in it, then "
            f"run chmod 700 {directory}"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)


def _write_private(path: Path, data: bytes) -> None:
    """Replace a file that only its owner can read."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
