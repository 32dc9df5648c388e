"""What a link remembers of a failed authentication: it is not tried again and again.

A broker may lock a user out after a few wrong passwords, and no certificate becomes right by trying. So a
client that has never been let in is refused for good: it was made with wrong settings. One that has been in
tries again later, with growing pauses: its password or certificate is perhaps being renewed.
"""

from __future__ import annotations

from typing import Final

from millstream.client.setup.security import ClientSecurity
from millstream.errors import AuthenticationError
from millstream.net.reactor import Reactor

_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 300_000


class LinkRefusal:
    """The last failed authentication of one link, until one succeeds. Belongs to the I/O thread."""

    def __init__(self, reactor: Reactor, security: ClientSecurity) -> None:
        self.error: AuthenticationError | None = None
        self.is_cured = False
        """Whether this broker has answered a request: what listens there is what the settings say."""
        self._reactor = reactor
        self._security = security
        self._failures = 0
        self._until_ms = 0

    def by(self, error: AuthenticationError) -> None:
        """An attempt failed."""
        self.error = error
        pause_ms = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS << min(self._failures, 20))
        self._failures += 1
        self._until_ms = self._reactor.now_ms() + pause_ms

    def now(self) -> AuthenticationError | None:
        """The error that requests fail with at this moment; None if the broker may be tried."""
        if self.error is None:
            return None
        if self._security.has_succeeded and self._reactor.now_ms() >= self._until_ms:
            return None
        return self.error

    def answered(self) -> None:
        """The broker has answered a request."""
        self.is_cured = self._security.has_succeeded = True

    def forget(self) -> None:
        """A connection is set up, or the broker has another address."""
        self.error = None
        self._failures = 0
