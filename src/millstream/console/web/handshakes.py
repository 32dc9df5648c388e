"""Accepts TLS connections: handshakes that do not end are bounded in time, and in number by address."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MOST: Final = 200
"""Handshakes at once. One more ends the oldest of the address that has the most."""
_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
"""After a connection that cannot be accepted, as there are too many open files."""


class TlsListener:
    """Accepts connections of one socket until it is closed. A protocol learns of those whose handshake ends.

    ``loop.create_server`` would do the same, but keeps handshakes to itself, however many there are.
    """

    def __init__(
        self, listener: socket.socket, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._context = context
        self._protocol = protocol
        self._addresses: dict[asyncio.Task[object], str] = {}
        """Of handshakes, the oldest first."""
        self._resuming: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more, and end all handshakes. Connections go on."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listener)
        for handshake in self._addresses:
            handshake.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            accepted, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it has gone already
        except OSError as error:
            log.warning("the console accepts no connection for %g s: %s", _PAUSE_SECONDS, error)
            self._loop.remove_reader(self._listener)
            self._resuming = self._loop.call_later(_PAUSE_SECONDS, self._resume)
            return
        handshake: asyncio.Task[object] = self._loop.create_task(
            self._loop.connect_accepted_socket(
                self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=_SECONDS
            )
        )
        self._addresses[handshake] = address[0]
        handshake.add_done_callback(lambda ended: self._ended(ended, accepted))
        if len(self._addresses) > MOST:
            self._end_oldest()

    def _end_oldest(self) -> None:
        [(busiest, _)] = Counter(self._addresses.values()).most_common(1)
        oldest = next(each for each, address in self._addresses.items() if address == busiest)
        del self._addresses[oldest]
        oldest.cancel()

    def _ended(self, handshake: asyncio.Task[object], accepted: socket.socket) -> None:
        """Strangers fill no log: a handshake that fails is theirs to explain."""
        self._addresses.pop(handshake, None)
        if handshake.cancelled() or handshake.exception() is not None:
            accepted.close()
