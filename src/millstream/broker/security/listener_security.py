"""What one listener asks of those who connect, and who they then are."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from millstream.broker.security.listeners import Listener
from millstream.broker.security.plain_users import PlainUsers
from millstream.broker.security.principals import PrincipalRules, distinguished_name
from millstream.broker.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    BearerExchange,
    Exchange,
    PlainExchange,
    SaslSession,
    ScramExchange,
    TokenValidator,
)
from millstream.broker.security.settings import UNSECURED_VALIDATOR, ListenerSettings
from millstream.broker.security.users import ScramUsers
from millstream.errors import ConfigError
from millstream.net.transport import TlsTransport, Transport
from millstream.security.sasl import scram

if TYPE_CHECKING:
    from millstream.broker.security.tls import ServerContexts

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that was not asked who it is."""


class ListenerSecurity:
    """One listener with its keys and users."""

    def __init__(self, listener: Listener, settings: ListenerSettings, users: ScramUsers) -> None:
        """Read what the listener needs. Raises ConfigError."""
        self.listener = listener
        self.settings = settings
        self._rules = PrincipalRules(settings.ssl_principal_mapping_rules)
        self._tls = self._server_contexts() if listener.protocol.encrypts else None
        self._exchanges: Mapping[str, Callable[[], Exchange]] = {}
        if listener.protocol.authenticates:
            self._exchanges = {
                mechanism: self._exchange_of(mechanism, users)
                for mechanism in settings.sasl_enabled_mechanisms
            }

    @property
    def authenticates(self) -> bool:
        """Whether everyone who connects must prove who they are, so that any network may reach it."""
        if self.listener.protocol.authenticates:
            return self.listener.protocol.encrypts
        return self._tls is not None and self._tls.verifies_clients

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a new TLS connection needs; None if the listener does not encrypt."""
        return None if self._tls is None else self._tls.current()

    def new_session(self) -> SaslSession | None:
        """Return the login of a new connection; None if the listener has no login."""
        if not self.listener.protocol.authenticates:
            return None
        return SaslSession(
            self._exchanges,
            max_reauth_ms=self.settings.connections_max_reauth_ms,
            failure_delay_ms=self.settings.connection_failed_authentication_delay_ms,
        )

    def principal_of(self, transport: Transport) -> str:
        """Return who has connected, as far as TLS knows; raises ConnectionError if no rule maps the name."""
        if not isinstance(transport, TlsTransport):
            return ANONYMOUS
        certificate = transport.tls.getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        try:
            name = distinguished_name(certificate)
        except ValueError as error:
            raise ConnectionRefusedError(f"a certificate's name cannot be read: {error}") from None
        user = self._rules.user(name)
        if user is None:
            raise ConnectionRefusedError(f"no rule of ssl.principal.mapping.rules applies to {name}")
        return f"User:{user}"

    def _server_contexts(self) -> ServerContexts:
        from millstream.broker.security.tls import ServerContexts  # cryptography takes long to import

        return ServerContexts(self.settings, self.listener.name)

    def _exchange_of(self, mechanism: str, users: ScramUsers) -> Callable[[], Exchange]:
        if mechanism == PLAIN:
            plain = PlainUsers(self.listener.name, self.settings.sasl_jaas_config)
            return lambda: PlainExchange(plain.current())
        if mechanism == OAUTHBEARER:
            validator = self._token_validator()
            return lambda: BearerExchange(validator)
        return lambda: ScramExchange(scram.MECHANISMS[mechanism], users)

    def _token_validator(self) -> TokenValidator:
        from millstream.broker.security.keys import KeySet
        from millstream.broker.security.tokens import SignedTokens, UnsignedTokens  # as above

        settings = self.settings
        if settings.sasl_server_callback_handler_class == UNSECURED_VALIDATOR:
            return UnsignedTokens(settings)
        if not settings.sasl_oauthbearer_jwks_endpoint_url:
            raise ConfigError(
                "OAUTHBEARER needs the keys that sign tokens: set sasl.oauthbearer.jwks.endpoint.url to an "
                "https:// address or a file:// path"
            )
        return SignedTokens(settings, KeySet(settings.sasl_oauthbearer_jwks_endpoint_url))
