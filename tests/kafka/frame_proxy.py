"""A proxy that understands frames. It can make a broker look old, cut a connection inside an answer, and
refuse a request; and it remembers what clients have asked for.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from millstream.wire import apis
from millstream.wire.frames import decode_request, decode_response, encode_response
from millstream.wire.messages.api_versions import API_VERSIONS, ApiVersionsResponse
from millstream.wire.messages.groups import FIND_COORDINATOR, FindCoordinatorResponse
from millstream.wire.messages.metadata import METADATA, MetadataResponse
from millstream.wire.schema import Request, Response
from tests.kafka.refusals import Refusal, refuse_topics, refused, version_of

_HEADER: Final = struct.Struct(">hhi")
_HOST: Final = "127.0.0.1"


@dataclass
class Cut:
    """End the connection after so many bytes of an answer to this API; once."""

    api_key: int
    after_bytes: int
    skip: int = 0
    """So many answers to this API come through whole before it."""
    done: threading.Event = field(default_factory=threading.Event)
    answer_size: int = 0
    """The size of the answer that was cut, its length included."""


@dataclass(frozen=True)
class Seen:
    """A request that came by, and whether it was refused here."""

    client_id: str | None
    request: Request
    is_refused: bool


@dataclass
class _Asked:
    """A request that waits for its answer; ``refusal`` is what to make of the broker's."""

    correlation_id: int
    api_key: int
    version: int
    refusal: Refusal | None = None
    own_answer: bytes = b""


class FrameProxy:
    """Listens on a free port, and passes whole frames on to ``target`` (a port of this machine).

    ``most`` are the highest versions that ApiVersions may show; None hides an API. With ``watches``, requests
    are remembered and can be refused, and brokers are shown under the proxy's own address. With ``newest``,
    clients ask for ApiVersions in a version as new as that, unless they ask in version 0.
    """

    def __init__(self, most: Mapping[int, int | None] | None = None, *, watches: bool = False) -> None:
        self.target = 0
        self.cut: Cut | None = None
        self.refusal: Refusal | None = None
        self.connections = 0
        self.newest: int | None = None
        self._holding: Refusal | None = None
        self._most = most or {}
        self._watches = watches
        self._seen: list[Seen] = []
        self._listener = socket.create_server((_HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    def seen(self, client_id: str) -> list[Seen]:
        """What a client has asked for so far."""
        with self._lock:
            return [each for each in self._seen if each.client_id == client_id]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((_HOST, self.target))
            except OSError:  # the broker is gone, and so is whoever wanted to speak to it
                near.close()
                continue
            self.connections += 1
            connection = _Connection(near, far)
            for work in (self._pass_requests, self._pass_answers):
                threading.Thread(target=connection.run, args=(work,), daemon=True).start()

    # --- requests

    def _pass_requests(self, connection: _Connection) -> None:
        while frame := _read_frame(connection.near):
            api_key, version, correlation_id = _HEADER.unpack_from(frame)
            asked = _Asked(correlation_id, api_key, version)
            if self._watches:
                self._watch(asked, frame)
            if self.newest is not None and api_key == API_VERSIONS.key and version > 0:
                frame = _HEADER.pack(api_key, self.newest, correlation_id) + frame[_HEADER.size :]
            connection.ask(asked, frame)

    def _watch(self, asked: _Asked, frame: bytes) -> None:
        header, request = decode_request(memoryview(frame))
        with self._lock:
            refusal = self.refusal
            if refusal is not None and refusal.suits(header.client_id, request):
                refusal.times -= 1
                self.refusal = refusal if refusal.times else None
                self._holding = refusal if refusal.holds else None
            else:
                refusal = None
            holding = self._holding
            self._seen.append(Seen(header.client_id, request, refusal is not None))
        if refusal is None:
            if holding is not None and holding.suits(header.client_id, request):
                holding.over.wait()
            return
        refusal.before(request)
        if refusal.changes_the_answer:
            asked.refusal = refusal
        else:
            asked.own_answer = _encoded(refused(request, asked.version, refusal), asked)
        refusal.done.set()

    # --- answers

    def _pass_answers(self, connection: _Connection) -> None:
        while frame := _read_frame(connection.far):
            asked = connection.take_asked(int.from_bytes(frame[:4], "big"))
            data = self._changed(asked, frame)
            cut = self._take_cut(asked.api_key)
            if cut is not None:
                cut.answer_size = len(data)
                connection.near.sendall(data[: cut.after_bytes])
                cut.done.set()
                return
            connection.answer(data)

    def _take_cut(self, api_key: int) -> Cut | None:
        with self._lock:
            if self.cut is None or self.cut.api_key != api_key:
                return None
            if self.cut.skip:
                self.cut.skip -= 1
                return None
            cut, self.cut = self.cut, None
            return cut

    def _changed(self, asked: _Asked, frame: bytes) -> bytes:
        """The answer as the client is to see it."""
        change: Callable[[_Asked, Response], None] | None = None
        if asked.api_key == API_VERSIONS.key and self._most:
            change = self._look_old
        elif asked.api_key in (METADATA.key, FIND_COORDINATOR.key) and self._watches:
            change = self._look_like_the_broker
        if change is None:
            return _framed(frame)
        request_type = apis.all_apis()[asked.api_key].request_type
        _, response = decode_response(request_type, asked.version, memoryview(frame))
        change(asked, response)
        return _encoded(response, asked)

    def _look_old(self, asked: _Asked, response: Response) -> None:
        assert isinstance(response, ApiVersionsResponse)
        for each in response.api_keys:
            most = self._most.get(each.api_key, each.max_version)
            each.max_version = min(each.max_version, -1 if most is None else most)
        response.api_keys = [each for each in response.api_keys if each.max_version >= each.min_version]

    def _look_like_the_broker(self, asked: _Asked, response: Response) -> None:
        if isinstance(response, FindCoordinatorResponse):
            response.host, response.port = _HOST, self.port
            for one in response.coordinators:
                one.host, one.port = _HOST, self.port
            return
        assert isinstance(response, MetadataResponse)
        for broker in response.brokers:
            broker.host, broker.port = _HOST, self.port
        if asked.refusal is not None:
            refuse_topics(response, asked.refusal)


class _Connection:
    """A client's connection and the one to the broker that it is passed on to. Answers keep their order."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self._asked: deque[_Asked] = deque()
        self._lock = threading.Lock()
        for sock in (near, far):  # a small frame must not wait until the one before it is acknowledged
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, work: Callable[[_Connection], None]) -> None:
        """Do one half of the work until either side ends; then end both."""
        with contextlib.suppress(OSError):
            work(self)
        for sock in (self.near, self.far):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def ask(self, asked: _Asked, frame: bytes) -> None:
        """Pass a request on, unless it has an answer already, which waits for those before it."""
        with self._lock:
            self._asked.append(asked)
            self._send_own_answers()
        if not asked.own_answer:
            self.far.sendall(_framed(frame))

    def take_asked(self, correlation_id: int) -> _Asked:
        """The request that the broker has answered; those before it have no answer (acks=0)."""
        with self._lock:
            while self._asked[0].correlation_id != correlation_id:
                self._asked.popleft()
            return self._asked[0]

    def answer(self, data: bytes) -> None:
        with self._lock:
            self._asked.popleft()
            self.near.sendall(data)
            self._send_own_answers()

    def _send_own_answers(self) -> None:
        while self._asked and self._asked[0].own_answer:
            self.near.sendall(self._asked.popleft().own_answer)


def _encoded(response: Response, asked: _Asked) -> bytes:
    chunks = encode_response(response, version_of(response, asked.version), asked.correlation_id)
    return b"".join(bytes(chunk) for chunk in chunks)


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _read_frame(sock: socket.socket) -> bytes:
    """The next frame; empty at the end of the connection."""
    size = _read(sock, 4)
    return _read(sock, int.from_bytes(size, "big")) if size else b""


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            return b""
        data += chunk
    return bytes(data)
