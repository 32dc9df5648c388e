"""The client's side of TLS: an SSLContext from the settings, made again when a file has changed.

``keystores`` is imported where it is used, because cryptography takes a while to load.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.security.references import resolve

if TYPE_CHECKING:
    from millstream.security.keystores import Identity

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions of TLS that clients speak; older ones are broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The values of the ``ssl.*`` settings; an empty string is a value that was not given."""

    truststore_location: str = ""
    truststore_certificates: str = ""
    truststore_password: str = field(default="", repr=False)
    keystore_location: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = ""
    certificate_location: str = ""
    key_location: str = ""
    key_password: str = field(default="", repr=False)
    crl_location: str = ""
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    verifies_certificate: bool = True
    verifies_host_name: bool = True

    def context(self) -> ssl.SSLContext:
        """Make a context; raises ConfigError, which names the setting and the file that is wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = min(VERSIONS[version] for version in self.versions)
        context.maximum_version = max(VERSIONS[version] for version in self.versions)
        context.check_hostname = self.verifies_certificate and self.verifies_host_name
        context.verify_mode = ssl.CERT_REQUIRED if self.verifies_certificate else ssl.CERT_NONE
        # A certificate in the truststore is trusted, as in Java, also one that others have signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.cipher_suites:
            _limit_ciphers(context, self.cipher_suites)
        self._load_trusted(context)
        own = self._identity()
        if own is not None:
            load_identity(context, own)
        return context

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        from millstream.security.keystores import read_store, trusted_certificates

        location, text = self.truststore_location, resolve(self.truststore_certificates)
        if text:
            _add_trusted(context, trusted_certificates(text.encode(), None, "ssl.truststore.certificates"))
        elif location and Path(location).is_dir():
            context.load_verify_locations(capath=location)
        elif location:
            password = resolve(self.truststore_password) or None
            data = read_store(location, "ssl.truststore.location")
            _add_trusted(context, trusted_certificates(data, password, f"ssl.truststore.location {location}"))
        else:
            context.load_default_certs()
        if self.crl_location:
            read_store(self.crl_location, "ssl.crl.location")
            try:
                context.load_verify_locations(cafile=self.crl_location)
            except ssl.SSLError:
                raise ConfigError(f"ssl.crl.location {self.crl_location} holds no revocation list") from None
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def _identity(self) -> Identity | None:
        from millstream.security.keystores import identity, pem_identity, read_store

        key_password = resolve(self.key_password) or None
        if self.keystore_location:
            password = resolve(self.keystore_password) or None
            data = read_store(self.keystore_location, "ssl.keystore.location")
            is_pem = b"-----BEGIN " in data
            where = f"ssl.keystore.location {self.keystore_location}"
            return identity(data, (key_password or password) if is_pem else password, where)
        key, chain = resolve(self.keystore_key).encode(), resolve(self.keystore_certificate_chain).encode()
        where = "ssl.keystore.key and ssl.keystore.certificate.chain"
        if self.key_location or self.certificate_location:
            where = "ssl.key.location and ssl.certificate.location"
            key = read_store(self.key_location, "ssl.key.location") if self.key_location else key
            if self.certificate_location:
                chain = read_store(self.certificate_location, "ssl.certificate.location")
        if not key and not chain:
            return None
        return pem_identity(key or chain, chain or key, key_password, where)

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate of its own."""
        texts = (self.keystore_location, self.keystore_certificate_chain, self.keystore_key)
        return any((*texts, self.certificate_location, self.key_location))

    @property
    def _files(self) -> list[str]:
        named = (self.truststore_location, self.keystore_location, self.certificate_location)
        return [path for path in (*named, self.key_location, self.crl_location) if path]

    def stamps(self) -> tuple[object, ...]:
        """What changes when a file is replaced or rewritten, or a reference has another value.

        None stands for what is missing.
        """
        return (*map(_stamp, self._files), *map(_value, self._references))

    @property
    def _references(self) -> list[str]:
        """The values that are read from elsewhere, which may change unseen."""
        values = (self.truststore_certificates, self.keystore_key, self.keystore_certificate_chain)
        passwords = (self.truststore_password, self.keystore_password, self.key_password)
        return [value for value in (*values, *passwords) if "${" in value]


class TlsContexts:
    """The context for the next connection: the last one, unless a file has changed since."""

    def __init__(self, settings: TlsSettings) -> None:
        self.has_certificate = settings.has_certificate
        self._settings = settings
        self._stamps = settings.stamps()
        self._context = settings.context()

    def current(self) -> ssl.SSLContext:
        """Return the context; raises ConfigError where a changed file cannot be read."""
        stamps = self._settings.stamps()
        if stamps != self._stamps:
            self._context = self._settings.context()
            self._stamps = stamps
        return self._context


def load_identity(context: ssl.SSLContext, own: Identity) -> None:
    """Present this key and its certificates to peers. OpenSSL takes them from a file only."""
    with _private_file(own.key + b"\n" + own.chain) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(f"the certificate or its key cannot be used: {error.reason}") from None


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """A file for a moment: in memory where the system allows it, so that no key reaches a disk."""
    make: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if make is None:
        with tempfile.NamedTemporaryFile() as file:  # readable by this user only
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = make("millstream")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as memory:
            memory.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _add_trusted(context: ssl.SSLContext, certificates: bytes) -> None:
    context.load_verify_locations(cadata=certificates.decode())


def _limit_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Allow only these for TLS 1.2. Python cannot choose among TLS 1.3's three, which are all good."""
    older = [openssl_cipher(suite) for suite in suites if not suite.startswith(("TLS_AES_", "TLS_CHACHA20_"))]
    if not older:
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(suites)}") from None


def openssl_cipher(suite: str) -> str:
    """Translate a suite's name from Java's spelling; OpenSSL's own names stay as they are."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128_CBC", "AES128").replace("AES_256_CBC", "AES256")
    cipher = cipher.replace("AES_", "AES").removesuffix("_SHA256" if "CHACHA20" in cipher else "\0")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + cipher.replace("_", "-")


def _value(reference: str) -> str | None:
    try:
        return resolve(reference)
    except ConfigError:
        return None


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)
