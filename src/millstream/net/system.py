"""System calls that some systems lack, each with its substitute. The log's are in ``broker.log.files``.

Linux has all of them. macOS lacks epoll and MSG_MORE, and old releases lack preadv. A test runs broker and
clients with each of them taken away.
"""

from __future__ import annotations

import os
import select
import socket
from typing import Final

SEND_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""The flag of a send that another one follows at once; 0 where there is none."""
_PIECE_BYTES: Final = 256 * 1024


class _Poller:
    """``select.poll`` with the interface of epoll."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout < 0 else timeout * 1000)

    def close(self) -> None:
        """There is nothing to close."""


def make_poller() -> _Poller | select.epoll:
    """Return an epoll object, or one that works like it."""
    return select.epoll() if hasattr(select, "epoll") else _Poller()


def send_file(sock: socket.socket, fd: int, offset: int, count: int) -> int:
    """Send a part of a file; return how many bytes the socket took, 0 at the end of the file."""
    if hasattr(os, "sendfile"):
        return os.sendfile(sock.fileno(), fd, offset, count)
    piece = os.pread(fd, min(count, _PIECE_BYTES), offset)
    return sock.send(piece) if piece else 0


def read_into(fd: int, target: memoryview, offset: int) -> int:
    """Read from a file into memory; return how many bytes it were, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [target], offset)
    piece = os.pread(fd, len(target), offset)
    target[: len(piece)] = piece
    return len(piece)
