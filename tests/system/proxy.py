"""A network that a test can break: bytes pass through until it says otherwise."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.embedded import EmbeddedBroker

_BREAKS_AFTER_SECONDS = 0.03
_BREAKS_EVERY_SECONDS = 2.0


class Proxy:
    """Listens on a free port, and passes connections on to ``target`` (a port of this machine)."""

    def __init__(self) -> None:
        self.target = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._is_holding = False
        self._held = b""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def hold(self) -> None:
        """From now on let nothing through to the target. What is held is lost in the next ``cut``."""
        with self._lock:
            self._is_holding, self._held = True, b""

    def has_held(self, api_key: int) -> bool:
        """Whether such a request was on its way."""
        rest = self._held
        while len(rest) >= 6:
            if int.from_bytes(rest[4:6], "big") == api_key:
                return True
            rest = rest[4 + int.from_bytes(rest[:4], "big") :]
        return False

    def cut(self) -> None:
        """Break all connections that are there now."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
            self._is_holding = False
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Cut, again and again, to the end of the block; ever more seldom, so that on a busy machine, too,
        something comes through in the end.
        """
        over = threading.Event()

        def break_connections() -> None:
            pause = _BREAKS_AFTER_SECONDS
            while not over.wait(pause):
                self.cut()
                pause = min(1.2 * pause, _BREAKS_EVERY_SECONDS)

        cutter = threading.Thread(target=break_connections, daemon=True)
        cutter.start()
        try:
            yield
        finally:
            over.set()
            cutter.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._sockets |= {near, far}
            for source, sink in ((near, far), (far, near)):
                to_target = sink is far
                threading.Thread(target=self._pass_on, args=(source, sink, to_target), daemon=True).start()

    def _holds(self, data: bytes) -> bool:
        with self._lock:
            if self._is_holding:
                self._held += data
            return self._is_holding

    def _pass_on(self, source: socket.socket, sink: socket.socket, to_target: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if to_target and self._holds(data):
                    continue
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@contextlib.contextmanager
def proxied_broker(data: Path | None = None) -> Iterator[Proxy]:
    """A broker that says it is where the proxy is, so that all of its clients come that way."""
    with (
        Proxy() as proxy,
        EmbeddedBroker(
            data=data, settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        ) as broker,
    ):
        proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
        yield proxy
