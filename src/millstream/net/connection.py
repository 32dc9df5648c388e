"""Framed messages over a transport: four bytes of size, then that many bytes.

Receiving: small frames are cut out of one buffer that all connections of a thread share. A large frame has
its own memory, which grows only as its bytes arrive, so that a claimed size alone costs nothing. A client,
which receives one large frame after another, reuses their memory (see ``wire.memory``).
Sending: chunks are queued and sent at the end of the loop's turn, many replies in one system call. The
transport decides how: a slice of a file goes from the page cache to a plain socket without passing through
Python.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from millstream.errors import CorruptMessage
from millstream.net.reactor import READABLE, WRITABLE, Reactor
from millstream.net.transport import Transport
from millstream.wire.memory import RecycledMemory

log = logging.getLogger("millstream.net")


class FrameHandler(Protocol):
    """The owner of a connection, which calls it on the reactor's thread."""

    def connected(self) -> None: ...

    def frame_received(self, frame: memoryview) -> None:
        """One whole message without its size. The handler may keep the memory."""

    def closed(self, error: Exception | None) -> None:
        """The connection is closed. Called once, at the end; without an error it was closed in order."""


class MemoryAccount(Protocol):
    """Counts the memory of large frames: connections reserve it before they take it."""

    def reserve(self, connection: FrameConnection, size: int) -> None: ...

    def release(self, connection: FrameConnection, size: int) -> None: ...


class FrameConnection:
    """One connection. Belongs to its reactor's thread."""

    def __init__(
        self,
        reactor: Reactor,
        transport: Transport,
        handler: FrameHandler,
        *,
        max_frame_bytes: int,
        eager_bytes: int = 1 << 16,
        account: MemoryAccount | None = None,
        memory: RecycledMemory | None = None,
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        """``eager_bytes``: up to this size a frame's memory is taken at once, beyond it as bytes arrive.
        ``memory``: provides the memory of large frames; without it, each has new memory.
        ``on_drained``: called when everything is sent while reading is paused.
        """
        self._reactor = reactor
        self._transport = transport
        self._fd = transport.sock.fileno()
        self._handler = handler
        self.max_frame_bytes = max_frame_bytes
        self._eager_bytes = eager_bytes
        self._account = account
        self._memory = memory
        self._on_drained = on_drained
        self._partial = b""
        self._frame: memoryview | None = None
        self._frame_size = 0
        self._frame_filled = 0
        self._queue: deque[Any] = deque()
        self._flush_planned = False
        self._interest = READABLE
        self._reading = True
        self._open = True
        self._last_words: tuple[Exception | None] | None = None
        self.unsent_bytes = 0
        self.last_read_ms = reactor.now_ms()
        reactor.watch(self._fd, READABLE, self._ready)
        self._receive_waiting()

    # --- the owner's side

    @property
    def frame_incomplete(self) -> bool:
        """Whether a frame has begun to arrive and has not ended."""
        return self._frame is not None or bool(self._partial)

    def send(self, chunks: Iterable[Any]) -> None:
        """Queue buffers and file slices; they are sent in order at the end of the loop's turn."""
        if not self._open:
            return
        for chunk in chunks:
            size = len(chunk)
            if size:
                self.unsent_bytes += size
                self._queue.append(chunk)
        if not self._flush_planned:
            self._flush_planned = True
            self._reactor.defer(self._flush)

    def pause_reading(self) -> None:
        """Stop reading, so that the socket's buffers fill up and slow the peer down."""
        if self._reading and self._open:
            self._reading = False
            self._set_interest(self._interest & ~READABLE)

    def resume_reading(self) -> None:
        if not self._reading and self._open and self._last_words is None:
            self._reading = True
            self._set_interest(self._interest | READABLE)
            self._receive_waiting()

    def close_when_sent(self, error: Exception | None = None) -> None:
        """Read nothing more, and close when all that was queued is sent."""
        self.pause_reading()
        self._last_words = (error,)
        if not self._flush_planned:
            self._flush()

    def close(self, error: Exception | None = None) -> None:
        """Close now. Unsent data is dropped, and ``closed`` is called before this returns."""
        if not self._open:
            return
        self._open = False
        self._reactor.unwatch(self._fd)
        self._transport.close()
        self._queue.clear()
        self.unsent_bytes = 0
        self._drop_frame()
        self._handler.closed(error)

    # --- receiving

    def _ready(self, events: int) -> None:
        try:
            if events & WRITABLE:
                self._flush()
            if events & ~WRITABLE and self._open:
                self._receive()
        except OSError as error:
            self.close(error)
        except CorruptMessage as error:
            self.close(error)

    def _receive_waiting(self) -> None:
        """Receive, in this turn, what the transport holds already: no readiness of the socket tells of it."""
        if self._transport.has_received:
            self._reactor.defer(lambda: self._ready(READABLE) if self._open and self._reading else None)

    def _receive(self) -> None:
        if not self._reading:
            # Nothing is read now, so this event is an error or the peer's close.
            self.close(_socket_error(self._transport.sock))
            return
        self._receive_once()
        while self._transport.has_received and self._open and self._reading:
            self._receive_once()
        if self._transport.has_unsent:  # TLS answers some messages itself, such as a change of keys
            self._flush()

    def _receive_once(self) -> None:
        target = self._frame[self._frame_filled :] if self._frame is not None else self._reactor.scratch
        try:
            count = self._transport.receive_into(target)
        except (BlockingIOError, InterruptedError):
            return
        if count == 0:
            cut = (
                CorruptMessage("the peer closed in the middle of a frame") if self.frame_incomplete else None
            )
            self.close(cut)
            return
        self.last_read_ms = self._reactor.now_ms()
        if self._frame is None:
            self._split(count)
        else:
            self._frame_filled += count
            if self._frame_filled == self._frame_size:
                self._finish_frame()
            elif self._frame_filled == len(self._frame):
                self._grow_frame()

    def _split(self, count: int) -> None:
        """Cut whole frames out of the shared buffer; keep what is left of the last."""
        view = self._reactor.scratch[:count]
        if self._partial:
            view = memoryview(self._partial + view)
            self._partial = b""
        position, end = 0, len(view)
        while end - position >= 4:
            size = int.from_bytes(view[position : position + 4], "big")
            if size > self.max_frame_bytes:
                raise CorruptMessage(f"a frame of {size} bytes is over the limit of {self.max_frame_bytes}")
            position += 4
            if end - position < size:
                self._start_frame(size, view[position:])
                return
            # A copy, because the next receive overwrites the shared buffer.
            self._handler.frame_received(memoryview(bytes(view[position : position + size])))
            if not self._open:
                return
            position += size
        self._partial = bytes(view[position:])

    def _start_frame(self, size: int, begun: memoryview) -> None:
        room = min(size, max(self._eager_bytes, 2 * len(begun)))
        self._reserve(room)
        if not self._open:
            return
        self._frame = self._new_memory(room)
        self._frame[: len(begun)] = begun
        self._frame_size = size
        self._frame_filled = len(begun)

    def _grow_frame(self) -> None:
        assert self._frame is not None, "only a frame that has begun can grow"
        room = min(self._frame_size, 2 * len(self._frame))
        self._reserve(room - len(self._frame))
        if not self._open:
            return
        larger = self._new_memory(room)
        larger[: self._frame_filled] = self._frame
        self._frame = larger

    def _new_memory(self, size: int) -> memoryview:
        return memoryview(bytearray(size)) if self._memory is None else self._memory.take(size)

    def _finish_frame(self) -> None:
        frame = self._frame
        assert frame is not None, "a frame was being received"
        self._drop_frame()
        self._handler.frame_received(frame)

    def _reserve(self, size: int) -> None:
        if self._account is not None:
            self._account.reserve(self, size)

    def _drop_frame(self) -> None:
        if self._frame is not None and self._account is not None:
            self._account.release(self, len(self._frame))
        self._frame = None
        self._partial = b""

    # --- sending

    def _flush(self) -> None:
        """Send until the queue is empty or the socket is full; then wait for the socket."""
        self._flush_planned = False
        if not self._open:
            return
        try:
            while self._queue or self._transport.has_unsent:
                self.unsent_bytes -= self._transport.send(self._queue)
        except (BlockingIOError, InterruptedError):
            self._set_interest(self._interest | WRITABLE)
            return
        except (OSError, EOFError) as error:
            self.close(error)
            return
        self._set_interest(self._interest & ~WRITABLE)
        if self._last_words is not None:
            self.close(*self._last_words)
            return
        # Also without a wait: the socket may take at once what made the owner stop reading.
        if not self._reading and self._on_drained is not None:
            self._on_drained()

    def _set_interest(self, interest: int) -> None:
        if interest != self._interest and self._open:
            self._interest = interest
            self._reactor.change_interest(self._fd, interest)


def _socket_error(sock: socket.socket) -> OSError:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return (
        OSError(code, os.strerror(code)) if code else ConnectionResetError("the peer closed the connection")
    )
