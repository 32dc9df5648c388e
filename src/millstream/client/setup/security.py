"""A client's security: made once from its settings, and used for each of its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.config import ClientConfig
from millstream.security.login import MSK_IAM, SaslSettings
from millstream.security.sasl.scram import ScramMechanism
from millstream.security.tls import TlsContexts

if TYPE_CHECKING:
    from millstream.client.setup.tokens import TokenSource


class ClientSecurity:
    """The TLS contexts, the login, and what is kept between logins. Belongs to the I/O thread.

    Raises ConfigError for files that cannot be read, so that a client is not made with them.
    """

    def __init__(self, config: ClientConfig) -> None:
        tls = config.tls
        self.tls = None if tls is None else TlsContexts(tls)
        self.sasl: SaslSettings | None = config.sasl
        self.protocol = config.security_protocol
        self.has_succeeded = False
        """Whether a broker has answered a request: a failure after that may be cured by trying again."""
        self.tokens: TokenSource | None = None
        self._salted: dict[tuple[str, str, bytes, int], bytes] = {}
        if self.sasl is not None:
            self.sasl.login()
            if self.sasl.mechanism in ("OAUTHBEARER", MSK_IAM):
                from millstream.client.setup.tokens import TokenSource

                self.tokens = TokenSource(self.sasl)

    def salted(self, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        """Derive the key of a password, unless the last login had the same. May be called on any thread."""
        key = (mechanism.name, password, salt, iterations)
        found = self._salted.get(key)
        if found is None:
            found = mechanism.salt_password(password, salt, iterations)
            self._salted = {key: found}
        return found
