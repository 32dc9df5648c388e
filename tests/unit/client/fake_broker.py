"""A broker that does what a test tells it: real sockets, scripted answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from millstream.wire import apis
from millstream.wire.frames import RequestHeader, decode_request, encode_response
from millstream.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from millstream.wire.schema import Request, Response

Answer = Response | bytes | None
"""A response, or raw bytes to send in place of one; None: never answer."""


class HangUp(Exception):  # noqa: N818 - it is an instruction
    """Raised by a handler: close the connection instead of answering."""


class FakeBroker:
    """Listens on a free port and answers each request with what the handler of its type returns."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.handlers: dict[type[Request], Callable[[Request], Answer]] = {
            ApiVersionsRequest: lambda request: all_versions(),
            MetadataRequest: lambda request: self.metadata(),
        }
        self.peers: list[FakeBroker] = [self]
        self.requests: list[tuple[RequestHeader, Request]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def metadata(self) -> MetadataResponse:
        """All brokers of the pretended cluster, and no topic."""
        brokers = [
            MetadataResponseBroker(node_id=b.node_id, host="127.0.0.1", port=b.port) for b in self.peers
        ]
        return MetadataResponse(brokers=brokers, topics=[], cluster_id="fake", controller_id=self.node_id)

    def received(self, request_type: type[Request]) -> list[Request]:
        return [request for _, request in self.requests if isinstance(request, request_type)]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for thread in self._threads:
            thread.join(5)

    def close(self) -> None:
        """Stop listening, and break all connections."""
        if self._closed:
            return
        self._closed = True
        # A blocked accept only ends when the socket is shut down, not when it is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for sock in list(self._sockets):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.add(sock)
            self._start(lambda sock=sock: self._serve(sock))  # type: ignore[misc]

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while True:
                    (size,) = struct.unpack(">i", _read(sock, 4))
                    self._answer(sock, memoryview(_read(sock, size)))
            except (OSError, EOFError, HangUp):
                pass
            finally:
                self._sockets.discard(sock)

    def _answer(self, sock: socket.socket, frame: memoryview) -> None:
        header, request = decode_request(frame)
        self.requests.append((header, request))
        answer = self.handlers[type(request)](request)
        if isinstance(answer, Response):
            sock.sendall(b"".join(encode_response(answer, header.version, header.correlation_id)))
        elif answer is not None:
            sock.sendall(answer)


def all_versions(**limits: int) -> ApiVersionsResponse:
    """Every API in our own versions; ``Metadata=4`` limits one of them."""
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=0, max_version=limits.get(api.name, api.max_version))
            for api in apis.all_apis().values()
        ],
    )


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
