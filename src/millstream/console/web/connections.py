"""Connections of browsers: a request must arrive in time, and many idle connections keep no one out."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_REQUEST_SECONDS: Final = 10.0
"""For a whole request: the console's are small."""
_INCOMPLETE: Final = (h11.IDLE, h11.SEND_BODY)


class ConsoleConnection(H11Protocol):
    """One connection. When there are too many, the one that has waited longest for a request is closed."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._deadline: asyncio.TimerHandle | None = None
        self._silent_since_s = self.loop.time()

    @property
    def awaits_request(self) -> bool:
        """Whether no request has arrived that is being answered."""
        return self.conn.their_state in _INCOMPLETE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        most = self.limit_concurrency
        if most is not None and len(self.connections) >= most:
            self._close_longest_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._silent_since_s = self.loop.time()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the time of a request that is incomplete; it goes on, however slowly its bytes come."""
        if not self.awaits_request:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_REQUEST_SECONDS, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_longest_waiting(self) -> None:
        others = (
            each for each in self.connections if isinstance(each, ConsoleConnection) and each is not self
        )
        if waiting := [each for each in others if each.awaits_request]:
            longest = min(waiting, key=lambda each: each._silent_since_s)
            self.connections.discard(longest)
            longest.transport.abort()
