"""TLS under framed connections: the same messages, in bounded memory, after a handshake that never blocks."""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from millstream.net.connection import FrameConnection
from millstream.net.handshake import TlsHandshake
from millstream.net.reactor import Reactor
from millstream.net.transport import TlsTransport
from millstream.wire.slices import FileSlice
from tests.unit.net.test_connection import Recorder, framed
from tests.waiting import SECONDS, until

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class OpenFile:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._fd


class Server:
    """A TLS connection on a running reactor, and the socket of its client."""

    def __init__(self, authority: trustme.CA, *, timeout_ms: int = 30_000) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        self.reactor = Reactor()
        ours, plain = socket.socketpair()
        ours.setblocking(False)
        plain.settimeout(SECONDS)
        self.peer: socket.socket = plain
        self.handler = Recorder()
        self.connection: FrameConnection | None = None
        self.failures: list[Exception] = []
        self.steps: list[str] = []
        self._threads = ThreadPoolExecutor(1, "handshake")
        self.handshake = TlsHandshake(
            self.reactor,
            ours,
            context,
            server_side=True,
            timeout_ms=timeout_ms,
            on_done=self._done,
            on_failed=self.failures.append,
            run=self._run,
        )
        self._thread = threading.Thread(target=self.reactor.run)
        self._thread.start()

    def _run(self, step: Callable[[], None]) -> None:
        def computed() -> None:
            self.steps.append(threading.current_thread().name)
            step()

        self._threads.submit(computed)

    def _done(self, transport: TlsTransport) -> None:
        self.transport = transport
        self.connection = FrameConnection(self.reactor, transport, self.handler, max_frame_bytes=1 << 26)

    def send(self, *chunks: object) -> None:
        assert self.connection is not None
        connection = self.connection
        self.reactor.call_threadsafe(lambda: connection.send(chunks))

    def close(self) -> None:
        if self.connection is not None:
            self.reactor.call_threadsafe(self.connection.close)
        self.reactor.stop()
        self._thread.join()
        self.reactor.close()
        self._threads.shutdown()
        self.peer.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[Server]:
    made = Server(authority)
    yield made
    made.close()


def client(
    server: Server, authority: trustme.CA, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.minimum_version = context.maximum_version = version
    secured = context.wrap_socket(server.peer, server_hostname="localhost")
    server.peer = secured
    return secured


def read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        assert chunk, "the connection ended early"
        data += chunk
    return bytes(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_cross_whole_in_both_directions(
    server: Server, authority: trustme.CA, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    peer = client(server, authority, version)
    rng = random.Random(3)
    messages = [rng.randbytes(size) for size in (0, 1, 4, 100, 70_000, 300_000, 2_500_000, 2)]
    stream = memoryview(framed(*messages))
    while stream:
        step = rng.choice((1, 7, 1000, 65_536, 400_000))
        peer.sendall(stream[:step])
        stream = stream[step:]
    until(lambda: len(server.handler.frames) == len(messages), lambda: "all frames")
    assert server.handler.frames == messages

    path = tmp_path / "log"
    path.write_bytes(rng.randbytes(3_000_000))
    body = b"head" + path.read_bytes()[10:2_900_000] + b"tail"
    server.send(struct.pack(">i", len(body)), b"head", FileSlice(OpenFile(path), 10, 2_899_990), b"tail")
    assert read(peer, 4) == struct.pack(">i", len(body))
    assert read(peer, len(body)) == body
    assert peer.version() == ("TLSv1.2" if version == ssl.TLSVersion.TLSv1_2 else "TLSv1.3")
    assert set(server.steps) == {"handshake_0"}, "no step of the handshake was computed on the event loop"


def test_a_slow_reader_costs_one_piece_of_memory_and_not_its_whole_answer(
    server: Server, authority: trustme.CA, tmp_path: Path
) -> None:
    peer = client(server, authority)
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1 << 20) * 32)
    peer.sendall(framed(b"hello"))
    until(lambda: server.handler.frames, lambda: "the first frame")
    server.send(FileSlice(OpenFile(path), 0, 32 << 20))
    assert server.connection is not None
    until(lambda: server.transport.has_unsent, lambda: "the socket is full")
    assert len(server.transport._encrypted) <= 160 * 1024
    assert server.connection.unsent_bytes > 24 << 20
    assert read(peer, 32 << 20) == path.read_bytes()
    until(lambda: server.connection is not None and not server.connection.unsent_bytes, lambda: "all sent")


def test_what_was_received_before_a_pause_is_handled_after_it(server: Server, authority: trustme.CA) -> None:
    peer = client(server, authority)
    paused = threading.Event()

    def pause(frame: memoryview) -> None:
        if bytes(frame) == b"pause":
            assert server.connection is not None
            server.connection.pause_reading()
            paused.set()

    server.handler.on_frame = pause
    peer.sendall(framed(b"pause") + framed(b"x" * 20_000, b"y" * 20_000))
    assert paused.wait(SECONDS)
    assert server.connection is not None
    server.reactor.call_threadsafe(server.connection.resume_reading)
    until(lambda: len(server.handler.frames) == 3, lambda: "the frames behind the pause")


def test_an_orderly_close_is_told_to_the_peer(server: Server, authority: trustme.CA) -> None:
    peer = client(server, authority)
    peer.sendall(framed(b"hello"))
    until(lambda: server.handler.frames, lambda: "the frame")
    assert server.connection is not None
    server.reactor.call_threadsafe(server.connection.close)
    assert peer.recv(10) == b"", "close_notify, not a cut"


def test_the_end_of_the_peer_is_no_error(server: Server, authority: trustme.CA) -> None:
    peer = client(server, authority)
    peer.sendall(framed(b"last"))
    peer.unwrap()
    until(lambda: server.handler.errors, lambda: "the end")
    assert server.handler.frames == [b"last"]
    assert server.handler.errors == [None]


def test_a_plain_client_fails_the_handshake(server: Server) -> None:
    server.peer.sendall(framed(b"\x00\x12\x00\x03plain Kafka request"))
    until(lambda: server.failures, lambda: "the failure")
    assert isinstance(server.failures[0], ssl.SSLError)


def test_a_half_open_handshake_ends_at_its_timeout(authority: trustme.CA) -> None:
    made = Server(authority, timeout_ms=50)
    try:
        until(lambda: made.failures, lambda: "the timeout")
        assert isinstance(made.failures[0], TimeoutError)
        assert made.peer.recv(1) == b""
    finally:
        made.close()


def test_a_client_that_hangs_up_fails_the_handshake(server: Server) -> None:
    server.peer.shutdown(socket.SHUT_WR)
    until(lambda: server.failures, lambda: "the failure")
    assert isinstance(server.failures[0], ConnectionResetError)
