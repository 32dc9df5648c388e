"""Between a client and PostgreSQL: passes bytes on, until a COMMIT comes by."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self


class AtCommit(Enum):
    """What happens to the next COMMIT."""

    PASS = "goes through"
    LOSE_REPLY = "the server gets it; then the connection breaks"
    LOSE_REQUEST = "the connection breaks before the server gets it"
    HANG = "the client's half of the connection breaks, and the server goes on waiting"


class Relay:
    """Listens on a socket in ``directory``, for a server whose socket is ``server``."""

    def __init__(self, directory: Path, server: Path) -> None:
        self.at_commit = AtCommit.PASS
        self.directory = directory
        self._server = str(server)
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT\0" in data and self.at_commit is not AtCommit.PASS:
                    self._break(data, client, server)
                    return
                server.sendall(data)
        _close(server)

    def _break(self, data: bytes, client: socket.socket, server: socket.socket) -> None:
        what, self.at_commit = self.at_commit, AtCommit.PASS
        _close(client)
        if what is AtCommit.LOSE_REPLY:
            server.sendall(data)
        elif what is AtCommit.LOSE_REQUEST:
            _close(server)

    def _replies(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _close(client)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
