"""TLS handshakes under way: computed on threads of their own, and bounded in time and number.

A client that connects and sends nothing costs a socket until its time is over. When too many do, the one that
has waited longest goes first, so that new clients still get in.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from millstream.net.handshake import TlsHandshake
from millstream.net.reactor import Callback, Reactor
from millstream.net.transport import TlsTransport

MAX_PENDING: Final = 1000
_TIMEOUT_MS: Final = 10_000
_THREADS: Final = 2


class Handshakes:
    """All handshakes of one broker that are not over."""

    def __init__(
        self, reactor: Reactor, *, max_pending: int = MAX_PENDING, timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        self._reactor = reactor
        self._max_pending = max_pending
        self._timeout_ms = timeout_ms
        self._pending: dict[int, TlsHandshake] = {}
        self._last = 0
        self._threads: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def begin(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        on_done: Callable[[TlsTransport], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Shake hands; then ``on_done`` gets the connection, or ``on_failed`` the reason."""
        if len(self._pending) >= self._max_pending:
            oldest = next(iter(self._pending.values()))
            oldest.close(ConnectionError(f"{self._max_pending} TLS handshakes are under way"))
        self._last += 1
        number = self._last

        def done(transport: TlsTransport) -> None:
            del self._pending[number]
            on_done(transport)

        def failed(error: Exception) -> None:
            del self._pending[number]
            on_failed(error)

        self._pending[number] = TlsHandshake(
            self._reactor,
            sock,
            context,
            server_side=True,
            timeout_ms=self._timeout_ms,
            on_done=done,
            on_failed=failed,
            run=self._run,
        )

    def close(self) -> None:
        """Give all of them up."""
        for handshake in list(self._pending.values()):
            handshake.close(ConnectionError("the broker stops"))
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None

    def _run(self, step: Callback) -> object:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "handshake")
        return self._threads.submit(step)
