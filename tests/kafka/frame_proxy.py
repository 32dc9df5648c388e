"""A proxy that understands frames: it can make a broker look old, and cut a connection inside an answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from millstream.wire import apis
from millstream.wire.frames import decode_response, encode_response
from millstream.wire.messages.api_versions import ApiVersionsResponse

_HEADER = struct.Struct(">hhi")


@dataclass
class Cut:
    """End the connection after so many bytes of an answer to this API; once."""

    api_key: int
    after_bytes: int
    done: threading.Event = field(default_factory=threading.Event)
    answer_size: int = 0
    """The size of the answer that was cut, its length included."""


class FrameProxy:
    """Listens on a free port, and passes whole frames on to ``target`` (a port of this machine).

    ``most`` are the highest versions that ApiVersions may show; None hides an API.
    """

    def __init__(self, most: Mapping[int, int | None] | None = None) -> None:
        self.target = 0
        self.cut: Cut | None = None
        self.connections = 0
        self._most = most or {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

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
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.connections += 1
            asked: dict[int, tuple[int, int]] = {}
            for work in (self._pass_requests, self._pass_responses):
                threading.Thread(target=_until_closed, args=(work, near, far, asked), daemon=True).start()

    def _pass_requests(
        self, near: socket.socket, far: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := _read_frame(near):
            api_key, version, correlation_id = _HEADER.unpack_from(frame)
            asked[correlation_id] = (api_key, version)
            far.sendall(_framed(frame))

    def _pass_responses(
        self, near: socket.socket, far: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := _read_frame(far):
            api_key, version = asked.pop(int.from_bytes(frame[:4], "big"))
            data = _framed(frame)
            if api_key == apis.API_VERSIONS.key and self._most:
                data = self._older(frame, version)
            cut = self._take_cut(api_key)
            if cut is not None:
                cut.answer_size = len(data)
                near.sendall(data[: cut.after_bytes])
                cut.done.set()
                return
            near.sendall(data)

    def _take_cut(self, api_key: int) -> Cut | None:
        with self._lock:
            if self.cut is None or self.cut.api_key != api_key:
                return None
            cut, self.cut = self.cut, None
            return cut

    def _older(self, frame: bytes, version: int) -> bytes:
        correlation_id, response = decode_response(apis.API_VERSIONS.request_type, version, memoryview(frame))
        assert isinstance(response, ApiVersionsResponse)
        for each in response.api_keys:
            most = self._most.get(each.api_key, each.max_version)
            each.max_version = min(each.max_version, -1 if most is None else most)
        response.api_keys = [each for each in response.api_keys if each.max_version >= each.min_version]
        return b"".join(bytes(chunk) for chunk in encode_response(response, version, correlation_id))


def _until_closed(
    work: object, near: socket.socket, far: socket.socket, asked: dict[int, tuple[int, int]]
) -> None:
    assert callable(work)
    with contextlib.suppress(OSError):
        work(near, far, asked)
    for sock in (near, far):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


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
