"""TLS handshakes with the console that are begun and never ended: bounded in number and time, by address."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream import EmbeddedBroker
from millstream.console.login.login import Login
from millstream.console.login.users import Users, set_user
from millstream.console.web import handshakes
from millstream.console.web.tls import TlsFiles
from tests.system.console_server import PASSWORD, Browser, Served, serving
from tests.system.secured import make_certificates
from tests.waiting import SECONDS, until

FLOOD = 600


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Connections, closed after the console has ended."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def served(
    millstream_broker: EmbeddedBroker, opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """A console with TLS and one user. It waits so long for handshakes that only their number is bounded."""
    monkeypatch.setattr(handshakes, "_SECONDS", 10 * SECONDS)
    certificates = make_certificates(tmp_path)
    set_user(tmp_path / "users.json", "ann", PASSWORD)
    trusts = ssl.create_default_context(cafile=certificates.ca)
    with serving(
        millstream_broker.bootstrap_servers,
        login=Login.configured(Users(tmp_path / "users.json"), None),
        tls=TlsFiles(certificates.server, certificates.server),
        trusts=trusts,
    ) as served:
        yield served


def first_bytes(trusts: ssl.SSLContext) -> bytes:
    """What a client sends first."""
    sent = ssl.MemoryBIO()
    client = trusts.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def half_open(served: Served, opened: ExitStack, source: str, count: int = FLOOD) -> list[socket.socket]:
    """Connections of this address: every second one says nothing, the others half of their first word."""
    assert served.trusts is not None
    hello = first_bytes(served.trusts)
    found = []
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", served.port), SECONDS, source_address=(source, 0))
        found.append(opened.enter_context(connection))
        if number % 2:
            connection.sendall(hello[:100])
    return found


def closed(connections: Sequence[socket.socket]) -> int:
    """How many the console has closed: it sends nothing to those that have not said enough."""
    poll = select.poll()
    for each in connections:
        poll.register(each, select.POLLIN)
    return len(poll.poll(0))


def test_half_open_handshakes_keep_no_one_out_and_are_bounded(served: Served, opened: ExitStack) -> None:
    connections = half_open(served, opened, "127.0.0.1")
    assert served.get("/healthz").status == 200
    assert Browser(served).log_in().status == 303
    until(
        lambda: closed(connections) >= FLOOD - handshakes.MOST,
        lambda: f"only {closed(connections)} of {FLOOD} are closed",
    )
    assert closed(connections[-handshakes.MOST // 2 :]) == 0, "the oldest make room"


def test_a_flood_from_one_address_ends_no_handshake_of_another(served: Served, opened: ExitStack) -> None:
    assert served.trusts is not None
    hello = first_bytes(served.trusts)
    [slow] = half_open(served, opened, "127.0.0.1", 1)
    slow.sendall(hello[:100])
    flood = half_open(served, opened, "127.0.0.2")
    until(lambda: closed(flood) >= FLOOD - handshakes.MOST, "the flood is bounded")
    slow.sendall(hello[100:])
    assert slow.recv(1) == b"\x16", "the console goes on with the handshake"


def test_a_handshake_that_never_ends_is_closed(
    served: Served, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "_SECONDS", 0.2)
    connections = half_open(served, opened, "127.0.0.1", 4)
    until(lambda: closed(connections) == 4, "all are closed")


def test_half_open_handshakes_do_not_keep_a_console_from_stopping(served: Served, opened: ExitStack) -> None:
    """The end of the fixture waits for it. What was left open would be a warning, and so an error."""
    half_open(served, opened, "127.0.0.1", 20)
    assert served.get("/healthz").status == 200, "they are accepted"
