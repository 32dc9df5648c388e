"""What carries a connection's bytes: a plain socket, or TLS over one.

``PlainTransport`` passes buffers to ``sendmsg`` and slices of files to ``sendfile``. ``TlsTransport``
encrypts in memory: at most one piece of ``_PIECE_BYTES`` is read from a file and encrypted before the socket
has taken it, so that a slow reader costs no more than that, however much it asked for.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections import deque
from typing import Any, Final, Protocol

from millstream.net.system import SEND_MORE, read_into, send_file
from millstream.wire.slices import FileSlice

_MAX_BUFFERS: Final = 64
"""Buffers for one ``sendmsg``; the kernel's own limit is 1024."""
_SMALL_SLICE: Final = 64 * 1024
"""A shorter slice of a file is cheaper to read and send with other chunks than to send by ``sendfile``."""
_PIECE_BYTES: Final = 128 * 1024
"""What is encrypted at a time: large enough to make Python's share small, small enough to keep per client."""


class Transport(Protocol):
    """The two directions of one connected, non-blocking socket."""

    sock: socket.socket

    @property
    def has_received(self) -> bool:
        """Whether received bytes may wait inside the transport, unseen by those who watch the socket."""

    @property
    def has_unsent(self) -> bool:
        """Whether the transport holds bytes that the socket has not taken."""

    def receive_into(self, target: memoryview) -> int:
        """Fill ``target`` with what there is; 0 is the peer's end. Raises BlockingIOError if nothing is."""

    def send(self, queue: deque[Any]) -> int:
        """Send from the front of the queue of buffers and file slices, and remove what was sent.

        Returns how many of the queue's bytes are sent for good. Raises BlockingIOError if the socket is full.
        """

    def close(self) -> None:
        """Close the socket."""


class PlainTransport:
    """A socket without encryption."""

    has_received = False
    has_unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive_into = sock.recv_into
        self.close = sock.close

    def send(self, queue: deque[Any]) -> int:
        head = queue[0]
        if isinstance(head, FileSlice):
            if len(head) > _SMALL_SLICE:
                return self._send_file(queue, head)
            queue[0] = head = head.read()
        buffers = []
        more = 0
        for index, chunk in enumerate(queue):
            if isinstance(chunk, FileSlice):
                if len(chunk) > _SMALL_SLICE:
                    more = SEND_MORE
                    break
                queue[index] = chunk = chunk.read()
            buffers.append(chunk)
            if len(buffers) == _MAX_BUFFERS:
                break
        sent = self.sock.sendmsg(buffers, (), more)
        _drop_front(queue, sent)
        return sent

    def _send_file(self, queue: deque[Any], piece: FileSlice) -> int:
        sent = send_file(self.sock, piece.fileno(), piece.offset, len(piece))
        if sent == 0:
            raise OSError(errno.EIO, "a log file ended before the slice that was to be sent")
        if sent == len(piece):
            queue.popleft()
        else:
            queue[0] = piece.after(sent)
        return sent


class TlsTransport:
    """TLS over a socket, after the handshake. ``scratch`` is memory that the loop's connections share."""

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        scratch: memoryview,
    ) -> None:
        self.sock = sock
        self.tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._scratch = scratch
        self._encrypted = memoryview(b"")
        self._plain_bytes = 0
        self.has_received = True
        """At first, too: the peer's first message may have come with the end of the handshake."""

    @property
    def has_unsent(self) -> bool:
        return bool(self._encrypted) or self._outgoing.pending > 0

    def receive_into(self, target: memoryview) -> int:
        filled = 0
        size = len(target)
        while filled < size:
            try:
                count: int = self.tls.read(size - filled, target[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                self.has_received = False
                if filled:
                    return filled
                if not self._receive_encrypted():
                    return 0
                continue
            if not count:  # the peer's close, which is reported after what came before it
                self.has_received = True
                return filled
            filled += count
        self.has_received = True
        return filled

    def _receive_encrypted(self) -> int:
        count = self.sock.recv_into(self._scratch)
        self._incoming.write(self._scratch[:count])
        return count

    def send(self, queue: deque[Any]) -> int:
        if not self.has_unsent:
            self._plain_bytes = self._encrypt_piece(queue)
        if not self._encrypted:
            self._encrypted = memoryview(self._outgoing.read())
        while self._encrypted:
            self._encrypted = self._encrypted[self.sock.send(self._encrypted) :]
        sent, self._plain_bytes = self._plain_bytes, 0
        return sent

    def _encrypt_piece(self, queue: deque[Any]) -> int:
        """Encrypt at most ``_PIECE_BYTES`` from the front of the queue; return how many it were."""
        piece = self._scratch[:_PIECE_BYTES]
        filled = 0
        while queue and filled < len(piece):
            head = queue[0]
            count = min(len(head), len(piece) - filled)
            place = piece[filled : filled + count]
            if isinstance(head, FileSlice):
                count = read_into(head.fileno(), place, head.offset)
                if not count:
                    raise OSError(errno.EIO, "a log file ended before the slice that was to be sent")
            else:
                place[:] = memoryview(head)[:count]
            filled += count
            if count == len(head):
                queue.popleft()
            else:
                queue[0] = head.after(count) if isinstance(head, FileSlice) else memoryview(head)[count:]
        self.tls.write(piece[:filled])
        return filled

    def close(self) -> None:
        """Tell the peer that this is the end, if the socket takes it at once, and close."""
        with contextlib.suppress(OSError):
            if not self._encrypted:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.tls.unwrap()
                self.sock.send(self._outgoing.read())
        self.sock.close()


def _drop_front(queue: deque[Any], sent: int) -> None:
    while sent:
        head = queue[0]
        if len(head) > sent:
            queue[0] = memoryview(head)[sent:]
            return
        sent -= len(head)
        queue.popleft()
