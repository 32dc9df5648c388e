"""Why was a connection closed? The address is asked once, and only if the peer itself has closed it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.client.client import Client
from millstream.client.setup import listener
from tests.unit.client.fake_broker import FakeBroker, HangUp
from tests.unit.client.sending import client_of
from tests.waiting import until

ATTEMPTS = 6


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The brokers that were looked into, by the real check."""
    found: list[str] = []
    original = listener.find_problem

    def counted(address: tuple[str, int], protocol: str) -> str | None:
        found.append(f"{address[0]}:{address[1]}")
        return original(address, protocol)

    monkeypatch.setattr(listener, "find_problem", counted)
    return found


def until_failed(client: Client, times: int = ATTEMPTS) -> None:
    """Connect again and again until so many attempts have failed."""

    def look() -> bool:
        client.submit(lambda: client.metadata.refresh(None))
        return client.metrics.connections_failed >= times

    until(look, f"{times} attempts have failed")


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections, and never says a word."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as port:

        def accept() -> None:
            while True:
                try:
                    taken.append(port.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield port.getsockname()[1]
        finally:
            port.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in taken:
                each.close()


def hang_up(request: object) -> None:
    raise HangUp


QUICK = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
}


def test_a_peer_that_hangs_up_is_looked_into_once(broker: FakeBroker, checks: list[str]) -> None:
    for request_type in list(broker.handlers):
        broker.handlers[request_type] = hang_up
    with client_of(broker, **QUICK) as client:
        until_failed(client, 1)
        until(lambda: broker.connections >= 3, "the check has asked twice")
        until_failed(client)
    assert checks == [f"127.0.0.1:{broker.port}"]


def test_a_slow_peer_is_not_looked_into(checks: list[str]) -> None:
    with (
        silent_port() as port,
        client_of(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_ms=50, **QUICK) as client,
    ):
        until_failed(client)
    assert checks == []


def test_a_port_where_nothing_listens_is_not_looked_into(checks: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with client_of(bootstrap_servers=f"127.0.0.1:{port}", **QUICK) as client:
        until_failed(client)
    assert checks == []
