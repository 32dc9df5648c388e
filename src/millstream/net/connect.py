"""Opens connections without blocking: tries each resolved address until one accepts, then secures it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import threading
from typing import Any

from millstream.net.connection import FrameConnection, FrameHandler
from millstream.net.handshake import TlsHandshake
from millstream.net.reactor import WRITABLE, Reactor, Timer
from millstream.net.transport import PlainTransport, Transport

Address = tuple[socket.AddressFamily, Any]

_EAGER_BYTES = 64 << 20
"""Memory to take at once for a claimed size: more than a fetch needs, less than the first bytes of other
protocols would mean as a size (an HTTP answer claims 1.2 GB)."""


class PendingConnection:
    """Opens a connection: it becomes a FrameConnection, or calls ``closed`` with the last error.

    An address that refuses is followed by the next. One that drops packets ends the attempt; ``addresses``
    then holds those not tried yet, for the next attempt. With ``tls``, the first address that accepts must
    also complete the handshake, as ``host``.
    """

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        handler: FrameHandler,
        *,
        timeout_ms: int,
        addresses: list[Address] | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        max_frame_bytes: int = 0x7FFFFFFF,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._reactor = reactor
        self._host = host
        self._where = f"{host}:{port}"
        self._tls = tls
        self._handshake: TlsHandshake | None = None
        self._handler = handler
        self._buffers = (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, receive_buffer_bytes),
        )
        self._max_frame_bytes = max_frame_bytes
        self._addresses = [] if addresses is None else addresses
        self._timeout_ms = timeout_ms
        self._sock: socket.socket | None = None
        self._error: Exception = ConnectionError(f"no address for {self._where}")
        self._done = False
        self.was_accepted = False
        """Whether the peer has taken the connection. A TLS handshake follows."""
        self.connection: FrameConnection | None = None
        self._timer: Timer = reactor.call_at(reactor.now_ms() + timeout_ms, self._timed_out)
        if self._addresses:
            reactor.defer(self._try_next)
        elif _is_local(host):
            self._resolve(host, port)
        else:
            # The system's resolver can take seconds, and must not delay heartbeats on this loop.
            threading.Thread(target=self._resolve, args=(host, port), daemon=True).start()

    def close(self) -> None:
        """Give up: calls ``closed``, unless that was called already."""
        if self.connection is not None:
            self.connection.close()
        elif self._handshake is not None:
            self._handshake.close(ConnectionAbortedError("the attempt was given up"))
        else:
            self._finish(None)

    def _resolve(self, host: str, port: int) -> None:
        found: list[Address] = []
        error: Exception | None = None
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append((family, address))
        except OSError as failure:
            error = ConnectionError(f"cannot resolve {host}: {failure.strerror}")
        self._reactor.call_threadsafe(lambda: self._resolved(found, error))

    def _resolved(self, found: list[Address], error: Exception | None) -> None:
        if not self._done:
            self._addresses[:] = found
            self._error = error or self._error
            self._try_next()

    def _try_next(self) -> None:
        if self._done:
            return
        if not self._addresses:
            self._finish(self._error)
            return
        self._timer.cancel()
        self._timer = self._reactor.call_at(self._reactor.now_ms() + self._timeout_ms, self._timed_out)
        family, address = self._addresses.pop(0)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        for option, size in self._buffers:
            # An explicit size ends the kernel's tuning, which halves the speed: do not set what is set.
            # (The kernel counts its own needs too, and reports twice the size.)
            if size > 0 and sock.getsockopt(socket.SOL_SOCKET, option) != 2 * size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        self._sock = sock
        code = sock.connect_ex(address)
        # A connection that succeeds at once reports through the loop as well.
        self._reactor.watch(sock.fileno(), WRITABLE, self._ready)
        if code not in (0, errno.EINPROGRESS):
            self._failed(code)

    def _ready(self, events: int) -> None:
        assert self._sock is not None, "a socket was being connected"
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(code)
        else:
            self._succeeded(self._sock)

    def _failed(self, code: int) -> None:
        self._drop_socket()
        self._error = ConnectionError(f"cannot connect to {self._where}: {os.strerror(code)}")
        self._try_next()

    def _succeeded(self, sock: socket.socket) -> None:
        self._done = self.was_accepted = True
        self._timer.cancel()
        self._reactor.unwatch(sock.fileno())
        self._sock = None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            self._opened(PlainTransport(sock))
            return
        self._handshake = TlsHandshake(
            self._reactor,
            sock,
            self._tls,
            server_side=False,
            timeout_ms=self._timeout_ms,
            on_done=self._opened,
            on_failed=self._handler.closed,
            server_hostname=self._host,
        )

    def _opened(self, transport: Transport) -> None:
        self._handshake = None
        self.connection = FrameConnection(
            self._reactor,
            transport,
            self._handler,
            max_frame_bytes=self._max_frame_bytes,
            eager_bytes=min(self._max_frame_bytes, _EAGER_BYTES),
            memory=self._reactor.frame_memory,
        )
        self._handler.connected()

    def _timed_out(self) -> None:
        self._finish(ConnectionError(f"{self._where} did not answer in time"))

    def _finish(self, error: Exception | None) -> None:
        if self._done:
            return
        self._done = True
        self._timer.cancel()
        self._drop_socket()
        self._handler.closed(error)

    def _drop_socket(self) -> None:
        if self._sock is not None:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None


def _is_local(host: str) -> bool:
    """Return whether resolving needs no network: an IP address, or this machine."""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
