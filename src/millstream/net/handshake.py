"""The TLS handshake of a connected socket, without blocking the event loop.

The steps compute in memory, on the loop or wherever ``run`` takes them; only the loop touches the socket. In
the end the socket belongs to a ``TlsTransport``, or is closed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from millstream.net.reactor import READABLE, WRITABLE, Callback, Reactor
from millstream.net.transport import TlsTransport

_RECEIVED_BYTES: Final = 16 * 1024
"""How much of a handshake is received at a time: most have less in all."""


class TlsHandshake:
    """One handshake, from a connected, non-blocking socket to ``on_done`` or ``on_failed``, one of them once.

    ``server_hostname``: the client's side: the name to ask for, and to find in the certificate.
    ``run``: where a step computes, such as a thread pool's ``submit``: signing takes a millisecond.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        timeout_ms: int,
        on_done: Callable[[TlsTransport], None],
        on_failed: Callable[[Exception], None],
        server_hostname: str | None = None,
        run: Callable[[Callback], object] | None = None,
    ) -> None:
        self._reactor = reactor
        self._sock = sock
        self._on_done = on_done
        self._on_failed = on_failed
        self._run = run
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._unsent = b""
        self._open = True
        self._complete = False
        self._error: Exception | None = None
        self._timer = reactor.call_at(reactor.now_ms() + timeout_ms, self._timed_out)
        if server_side:
            self._watch(READABLE)
        else:
            self._step()

    def close(self, error: Exception) -> None:
        """Give up: closes the socket and calls ``on_failed``, unless the handshake is over."""
        if self._open:
            self._leave()
            self._sock.close()
            self._on_failed(error)

    def _timed_out(self) -> None:
        self.close(TimeoutError("the TLS handshake took too long"))

    def _leave(self) -> None:
        self._open = False
        self._timer.cancel()
        self._reactor.unwatch(self._sock.fileno())

    def _watch(self, interest: int) -> None:
        self._reactor.watch(self._sock.fileno(), interest, self._ready)

    def _ready(self, events: int) -> None:
        self._reactor.unwatch(self._sock.fileno())
        if self._unsent:
            self._flush()
            return
        try:
            data = self._sock.recv(_RECEIVED_BYTES)
        except (BlockingIOError, InterruptedError):
            self._watch(READABLE)
            return
        except OSError as error:
            self.close(error)
            return
        if not data:
            self.close(ConnectionResetError("the peer closed the connection during the TLS handshake"))
            return
        self._incoming.write(data)
        self._step()

    def _step(self) -> None:
        """Compute the next step. Meanwhile nothing watches the socket."""
        if self._run is None:
            self._compute()
            self._flush()
        else:
            self._run(self._compute_elsewhere)

    def _compute_elsewhere(self) -> None:
        self._compute()
        self._reactor.call_threadsafe(self._flush)

    def _compute(self) -> None:
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                self._complete = True
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._error = error
        self._unsent += self._outgoing.read()

    def _flush(self) -> None:
        """Send what the step left, also the alert that says why it failed; then wait, finish or fail."""
        if not self._open:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            self._watch(WRITABLE)
            return
        except OSError as error:
            self._error = self._error or error
        if self._error is not None:
            self.close(self._error)
        elif self._complete:
            self._leave()
            transport = TlsTransport(
                self._sock, self._tls, self._incoming, self._outgoing, self._reactor.scratch
            )
            self._on_done(transport)
        else:
            self._watch(READABLE)
