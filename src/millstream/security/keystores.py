"""Certificates and private keys: PEM text and PKCS#12, recognised by their content.

Java's own format (JKS) is refused with the command that converts it. Errors name the setting and the file,
never a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from millstream.errors import ConfigError

_JAVA_FORMATS: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_MAX_BYTES: Final = 16 << 20
_BLOCK: Final = re.compile(
    rb"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----(?P<body>[^-]+(?:-[^-]+)*)-----END (?P=kind)-----"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key, and the chain of certificates from its own to the CA's, as PEM."""

    key: bytes = field(repr=False)
    chain: bytes


def read_store(path: str, setting: str) -> bytes:
    """Read a file that ``setting`` names; raises ConfigError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}", setting=setting) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{setting}: {path} is no store: it is larger than {_MAX_BYTES} bytes")
    return data


def trusted_certificates(data: bytes, password: str | None, where: str) -> bytes:
    """Read the certificates to trust, as PEM. ``where`` names the setting and the file in errors."""
    if _is_pem(data, where):
        found = _blocks(data, b"CERTIFICATE")
        for text in found:
            _parse_certificate(text, where)
        chain = b"\n".join(found)
    else:
        store = _pkcs12(data, password, where)
        certificates = [
            each.certificate for each in (store.cert, *store.additional_certs) if each is not None
        ]
        chain = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    if not chain:
        raise ConfigError(f"{where} holds no certificate")
    return chain


def identity(data: bytes, password: str | None, where: str) -> Identity:
    """Read a private key and its certificates, from one PEM text or PKCS#12 store."""
    if _is_pem(data, where):
        return pem_identity(data, data, password, where)
    store = _pkcs12(data, password, where)
    if store.key is None or store.cert is None:
        raise ConfigError(f"{where} holds no private key with its certificate: it may be a truststore")
    certificates = [store.cert, *store.additional_certs]
    chain = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates)
    return Identity(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), chain)


def pem_identity(key: bytes, chain: bytes, password: str | None, where: str) -> Identity:
    """Read a private key and its certificates from PEM texts; the key may be encrypted."""
    keys = _blocks(key, b"PRIVATE KEY")
    if not keys:
        raise ConfigError(f"{where}: there is no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    certificates = _blocks(chain, b"CERTIFICATE")
    if not certificates:
        raise ConfigError(f"{where}: there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    leaf = _parse_certificate(certificates[0], where)
    private = _private_key(keys[0], password, where)
    if _public_bytes(private.public_key()) != _public_bytes(leaf.public_key()):
        raise ConfigError(f"{where}: the private key does not belong to the first certificate")
    return Identity(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), b"\n".join(certificates)
    )


def _blocks(text: bytes, kind: bytes) -> list[bytes]:
    """Return the PEM blocks of a kind, with the line breaks that a properties file has taken from them."""
    return [_with_lines(match) for match in _BLOCK.finditer(text) if match["kind"].endswith(kind)]


def _with_lines(block: re.Match[bytes]) -> bytes:
    kind, body = block["kind"], block["body"]
    if b":" in body:  # the headers of an encrypted key, which have lines of their own
        return block[0]
    digits = b"".join(body.split())
    lines = [digits[start : start + 64] for start in range(0, len(digits), 64)]
    return b"\n".join((b"-----BEGIN " + kind + b"-----", *lines, b"-----END " + kind + b"-----"))


def _is_pem(data: bytes, where: str) -> bool:
    """Whether a store is PEM, and otherwise PKCS#12; raises for Java's own formats and for anything else."""
    java = _JAVA_FORMATS.get(data[:4])
    if java is not None:
        path = where.rpartition(" ")[2]
        raise ConfigError(
            f"{where} is a {java} keystore, which only Java can read. Convert it with: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if b"-----BEGIN " in data:
        return True
    if data[:1] != b"\x30":  # the first byte of every PKCS#12 store: an ASN.1 sequence
        raise ConfigError(f"{where} is neither PEM nor PKCS#12")
    return False


def _pkcs12(data: bytes, password: str | None, where: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        if "password" in str(error).lower():
            problem = "its password is missing" if password is None else "its password is wrong"
            raise ConfigError(f"{where}: {problem}, or it is damaged") from None
        raise ConfigError(f"{where} is not a PKCS#12 store that can be read: {error}") from None


def _private_key(text: bytes, password: str | None, where: str) -> PrivateKeyTypes:
    is_encrypted = b"ENCRYPTED" in text
    if is_encrypted and not password:
        raise ConfigError(f"{where}: the private key is encrypted: set ssl.key.password")
    try:
        return load_pem_private_key(text, password.encode() if is_encrypted and password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = "ssl.key.password is wrong, or the key is damaged" if is_encrypted else "it is damaged"
        raise ConfigError(f"{where}: the private key cannot be read: {problem}") from None


def _parse_certificate(text: bytes, where: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text)
    except ValueError:
        raise ConfigError(f"{where}: a certificate in it is damaged, and cannot be read") from None


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
