"""Framed connections over real sockets: whole messages, whatever pieces they come in."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from millstream.errors import CorruptMessage
from millstream.net.connect import PendingConnection
from millstream.net.connection import FrameConnection
from millstream.net.reactor import Reactor
from millstream.net.transport import PlainTransport
from millstream.wire.slices import FileSlice
from tests.waiting import SECONDS, until


class Recorder:
    """A handler that keeps what it is told."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.errors: list[Exception | None] = []
        self.connections = 0
        self.on_frame: Callable[[memoryview], None] | None = None

    def connected(self) -> None:
        self.connections += 1

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        if self.on_frame is not None:
            self.on_frame(frame)

    def closed(self, error: Exception | None) -> None:
        self.errors.append(error)


class Pair:
    """A connection on a running reactor, and the plain blocking socket at its other end."""

    def __init__(self, max_frame_bytes: int = 1 << 24, eager_bytes: int = 1 << 20) -> None:
        self.reactor = Reactor()
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(SECONDS)
        ours.setblocking(False)
        self.handler = Recorder()
        self.connection = FrameConnection(
            self.reactor,
            PlainTransport(ours),
            self.handler,
            max_frame_bytes=max_frame_bytes,
            eager_bytes=eager_bytes,
        )
        self.thread = threading.Thread(target=self.reactor.run)
        self.thread.start()

    def wait(self, condition: Callable[[], object]) -> None:
        until(condition, lambda: f"the condition, after {len(self.handler.frames)} frames")

    def call(self, callback: Callable[[], None]) -> None:
        self.reactor.call_threadsafe(callback)

    def read_frame(self) -> bytes:
        size = struct.unpack(">i", self.read(4))[0]
        return self.read(size)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.peer.recv(size - len(data))
            assert chunk, "the connection ended early"
            data += chunk
        return data

    def close(self) -> None:
        self.reactor.call_threadsafe(self.connection.close)
        self.reactor.stop()
        self.thread.join()
        self.reactor.close()
        self.peer.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def framed(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(message)) + message for message in messages)


def test_frames_arrive_whole_however_they_are_cut(pair: Pair) -> None:
    rng = random.Random(7)
    sizes = [0, 1, 3, 4, 5, 100, 70_000, 300_000, 2_500_000, 2]
    messages = [rng.randbytes(size) for size in sizes]
    stream = memoryview(framed(*messages))
    while stream:
        step = rng.choice((1, 2, 3, 7, 1000, 65_536, 400_000))
        pair.peer.sendall(stream[:step])
        stream = stream[step:]
    pair.wait(lambda: len(pair.handler.frames) == len(messages))
    assert pair.handler.frames == messages


def test_each_frame_keeps_its_own_memory(pair: Pair) -> None:
    kept: list[memoryview] = []
    pair.handler.on_frame = kept.append
    pair.peer.sendall(framed(b"first", b"second"))
    pair.wait(lambda: len(kept) == 2)
    pair.peer.sendall(framed(b"xxxxxxxxxxxxxx"))
    pair.wait(lambda: len(kept) == 3)
    assert [bytes(frame) for frame in kept[:2]] == [b"first", b"second"]


@pytest.mark.parametrize("size", [(1 << 24) + 1, 0x7FFFFFFF, -1, -(2**31)])
def test_an_oversized_or_negative_length_closes_the_connection(pair: Pair, size: int) -> None:
    pair.peer.sendall(struct.pack(">i", size) + b"abc")
    pair.wait(lambda: bool(pair.handler.errors))
    assert isinstance(pair.handler.errors[0], CorruptMessage)
    assert pair.handler.frames == []


def test_a_claimed_size_alone_takes_little_memory() -> None:
    made = Pair(max_frame_bytes=1 << 30, eager_bytes=1 << 16)
    try:
        made.peer.sendall(struct.pack(">i", 1 << 30) + b"x" * 10)
        made.wait(lambda: made.connection.frame_incomplete)
        frame = made.connection._frame
        assert frame is not None
        assert len(frame) <= 1 << 16
    finally:
        made.close()


def test_an_orderly_end_and_a_cut_frame_are_told_apart() -> None:
    for sent, expected in ((framed(b"whole"), None), (framed(b"whole")[:-1], CorruptMessage)):
        made = Pair()
        made.peer.sendall(sent)
        made.peer.shutdown(socket.SHUT_WR)
        errors = made.handler.errors
        made.wait(errors.__len__)
        error = errors[0]
        assert error is None if expected is None else isinstance(error, expected)
        made.close()


def test_chunks_and_file_slices_leave_in_order_without_loss(pair: Pair, tmp_path: Path) -> None:
    rng = random.Random(3)
    content = rng.randbytes(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    with path.open("rb") as file:
        large, small = FileSlice(file, 1000, 2_500_000), FileSlice(file, 5, 900)
        chunks: list[bytes | memoryview | FileSlice] = [
            b"head",
            large,
            memoryview(b"-middle-"),
            small,
            b"tail",
        ]
        total = sum(map(len, chunks))
        pair.call(lambda: pair.connection.send([struct.pack(">i", total), *chunks]))
        received = pair.read_frame()
    assert received == b"head" + content[1000:2_501_000] + b"-middle-" + content[5:905] + b"tail"
    pair.wait(lambda: pair.connection.unsent_bytes == 0)


def test_a_slow_reader_holds_its_own_data_only(pair: Pair) -> None:
    messages = [os.urandom(200_000) for _ in range(40)]
    for message in messages:
        pair.call(partial(pair.connection.send, [struct.pack(">i", len(message)), message]))
    pair.wait(lambda: pair.connection.unsent_bytes > 0)
    assert [pair.read_frame() for _ in messages] == messages


def test_paused_reading_resumes_where_it_stopped(pair: Pair) -> None:
    paused = threading.Event()
    pair.call(pair.connection.pause_reading)
    pair.call(paused.set)
    assert paused.wait(SECONDS)
    pair.peer.sendall(framed(b"later"))
    pair.call(lambda: pair.handler.frames.append(b"marker"))
    pair.wait(lambda: pair.handler.frames == [b"marker"])
    pair.call(pair.connection.resume_reading)
    pair.wait(lambda: pair.handler.frames == [b"marker", b"later"])


def test_connecting_to_a_closed_port_reports_the_address() -> None:
    with socket.socket() as unused:  # bound but not listening: nobody else can listen there
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        reactor, handler = Reactor(), Recorder()
        PendingConnection(reactor, "127.0.0.1", port, handler, timeout_ms=60_000)
        thread = threading.Thread(target=reactor.run)
        thread.start()
        until(lambda: handler.errors, "the error is told")
    reactor.stop()
    thread.join()
    reactor.close()
    assert f"127.0.0.1:{port}" in str(handler.errors[0])
    assert handler.connections == 0
