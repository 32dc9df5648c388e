"""A socket that listens: binds an address and hands on the connections that it accepts."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from millstream.broker.security.listeners import Listener
from millstream.errors import ConfigError
from millstream.net.reactor import READABLE, Reactor

log = logging.getLogger("millstream.broker")

_ACCEPT_PAUSE_MS: Final = 200


class ListeningSocket:
    """One bound address, until ``close``."""

    def __init__(self, reactor: Reactor, listener: Listener, admit: Callable[[socket.socket], int]) -> None:
        """Bind and listen. Raises ConfigError. ``admit`` returns for how many ms to accept nothing."""
        self._reactor = reactor
        self._admit = admit
        self._sock: socket.socket | None = bind(listener)
        self.address: tuple[str, int] = self._sock.getsockname()[:2]
        reactor.watch(self._sock.fileno(), READABLE, self._accept)

    def close(self) -> None:
        if self._sock is not None:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _accept(self, events: int) -> None:
        assert self._sock is not None, "the socket is open while it is watched"
        for _ in range(64):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # without free descriptors, each try would fail at once
                log.error("cannot accept connections: %s. The next try is in %d ms", error, _ACCEPT_PAUSE_MS)
                self._pause(self._sock, _ACCEPT_PAUSE_MS)
                return
            if pause_ms := self._admit(sock):
                self._pause(self._sock, pause_ms)
                return

    def _pause(self, sock: socket.socket, pause_ms: int) -> None:
        """Accept nothing for a while."""
        self._reactor.unwatch(sock.fileno())

        def resume() -> None:
            if self._sock is sock:
                self._reactor.watch(sock.fileno(), READABLE, self._accept)

        self._reactor.call_at(self._reactor.now_ms() + pause_ms, resume)


def bind(listener: Listener) -> socket.socket:
    """Return a non-blocking socket that listens on the listener's address. Raises ConfigError."""
    host, port = listener.address
    family, address = _resolve(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Is a broker running there already? "
            f"Choose another port with --listen {host}:PORT, or port 0 for any free one"
        ) from error
    sock.setblocking(False)
    return sock


def check_remote(listener: Listener, *, authenticates: bool, allow_remote: bool) -> None:
    """Refuse an address that other machines reach, if not everyone who connects must prove who they are."""
    host = listener.address.host
    _, address = _resolve(*listener.address)
    if ipaddress.ip_address(address[0].partition("%")[0]).is_loopback or authenticates:
        return
    if not allow_remote:
        raise ConfigError(
            f"{host} can be reached from other machines, and {listener.name} has no authentication. "
            "Start with --secure, listen on 127.0.0.1, "
            "or say --allow-remote if everyone on the network may read and write"
        )
    log.warning("listening on %s without authentication: anyone who can reach it may read and write", host)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror}. Try 127.0.0.1:{port}") from error
    family, _, _, _, address = found[0]
    return family, address
