"""The broker's side of TLS: a context per listener, made again when its files have changed."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import Final

from millstream.broker.security.settings import ListenerSettings
from millstream.errors import ConfigError
from millstream.security.tls import VERSIONS, TlsSettings, load_identity, openssl_cipher

log = logging.getLogger("millstream.broker")

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsSettings(TlsSettings):
    """The ``ssl.*`` settings of a listener. ``client_auth``: whether clients show a certificate."""

    client_auth: str = "none"

    def context(self) -> ssl.SSLContext:
        """Make a context; raises ConfigError, which names the setting and the file that is wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = min(VERSIONS[version] for version in self.versions)
        context.maximum_version = max(VERSIONS[version] for version in self.versions)
        context.options |= ssl.OP_NO_RENEGOTIATION
        # A certificate in the truststore is trusted, as in Java, also one that others have signed.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        own = self._identity()
        if own is None:
            raise ConfigError(
                "there is no certificate: set ssl.keystore.location to a PEM or PKCS#12 file that holds one "
                "and its private key"
            )
        load_identity(context, own)
        if self.client_auth != "none":
            if not self.truststore_location and not self.truststore_certificates:
                raise ConfigError("clients' certificates cannot be checked: set ssl.truststore.location")
            self._load_trusted(context)
            context.verify_mode = _VERIFY[self.client_auth]
        if self.cipher_suites:
            self._allow_ciphers(context)
        return context

    def _allow_ciphers(self, context: ssl.SSLContext) -> None:
        """Allow only these for TLS 1.2. Python cannot choose among TLS 1.3's three, which are all good."""
        try:
            context.set_ciphers(":".join(map(openssl_cipher, self.cipher_suites)))
        except ssl.SSLError:
            given = ", ".join(self.cipher_suites)
            raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {given} for TLS 1.2") from None


class ServerContexts:
    """The context for the next connection of one listener."""

    def __init__(self, settings: ListenerSettings, listener: str) -> None:
        """Read keys and certificates. Raises ConfigError."""
        self._listener = listener
        self._tls = ServerTlsSettings(
            client_auth=settings.ssl_client_auth,
            truststore_location=settings.ssl_truststore_location,
            truststore_certificates=settings.ssl_truststore_certificates,
            truststore_password=settings.ssl_truststore_password,
            keystore_location=settings.ssl_keystore_location,
            keystore_password=settings.ssl_keystore_password,
            keystore_key=settings.ssl_keystore_key,
            keystore_certificate_chain=settings.ssl_keystore_certificate_chain,
            key_password=settings.ssl_key_password,
            versions=settings.ssl_enabled_protocols,
            cipher_suites=settings.ssl_cipher_suites,
        )
        self._stamps = self._tls.stamps()
        self._context = self._make()

    @property
    def verifies_clients(self) -> bool:
        """Whether every client must show a certificate."""
        return self._tls.client_auth == "required"

    def current(self) -> ssl.SSLContext:
        """Return the context; one that cannot be made again from changed files stays as it was."""
        stamps = self._tls.stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
            except ConfigError as error:
                log.error("the listener %s keeps its old certificates: %s", self._listener, error)
            else:
                log.info("the listener %s has read its certificates again", self._listener)
        return self._context

    def _make(self) -> ssl.SSLContext:
        try:
            return self._tls.context()
        except ConfigError as error:
            raise ConfigError(f"the listener {self._listener}: {error}", setting=error.setting) from None
