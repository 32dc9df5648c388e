"""What one listener asks of those who connect, and who they then are."""

from __future__ import annotations

import ssl
from typing import Final

from millstream.broker.security.listeners import Listener
from millstream.net.transport import Transport

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that was not asked who it is."""


class ListenerSecurity:
    """One listener with its keys and users."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    @property
    def authenticates(self) -> bool:
        """Whether everyone who connects must prove who they are, so that any network may reach it."""
        return False

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a new TLS connection needs; None if the listener does not encrypt."""
        return None

    def principal_of(self, transport: Transport) -> str:
        """Return who has connected, as far as TLS knows."""
        return ANONYMOUS
