"""Listens, reads requests from connections, sends answers in order, and limits what a client may use.

The answers of a connection are sent in the order of its requests, as Kafka's clients expect. The requests
themselves may complete in any order: a produce that waits for the disk does not delay the next one's append.
Pipelined requests, unsent answers, the memory of incomplete frames and the number of connections each have a
limit.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from millstream.broker.handlers.api_versions import unsupported_version_response
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.request_context import RequestContext
from millstream.errors import ConfigError, CorruptMessage, MillstreamError
from millstream.net.connection import FrameConnection
from millstream.net.reactor import READABLE, Reactor
from millstream.net.transport import PlainTransport
from millstream.wire.frames import (
    RequestHeader,
    UnknownRequestError,
    decode_request,
    peek_api_key,
)
from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_MAX_PIPELINED: Final = 100
"""Reading stops while more requests of the connection than this wait for their answers."""
_MAX_UNSENT_BYTES: Final = 1 << 20
"""Reading stops while more than this waits to be sent to the client."""
_SWEEP_MS: Final = 1000
_ACCEPT_PAUSE_MS: Final = 200
_SMALL_REQUEST_BYTES: Final = 8 << 20
"""The limit for all requests but Produce, because decoded objects are larger than their bytes."""


Dispatch = Callable[[Request, RequestContext], Response | None]
"""Answers a request at once, or returns None and calls ``reply`` or ``drop`` of the context later, once."""


class ClientConnection:
    """One connected client, and its requests in order until each is answered."""

    def __init__(self, server: BrokerServer, sock: socket.socket) -> None:
        self._server = server
        self.metrics = server.metrics
        self.remote_host: str = sock.getpeername()[0]
        self.local_address: tuple[str, int] = sock.getsockname()[:2]
        self._waiting: deque[RequestContext] = deque()
        self.connection = FrameConnection(
            server.reactor,
            PlainTransport(sock),
            self,
            max_frame_bytes=server.max_request_bytes,
            account=server.memory,
            on_drained=self._hold_back,
        )

    def connected(self) -> None:
        """Nothing to do: accepted sockets are connected already."""

    def frame_received(self, frame: memoryview) -> None:
        self.metrics.bytes_in += len(frame) + 4
        try:
            _check_size(frame)
            header, request = decode_request(frame)
        except UnknownRequestError as error:
            self._answer_unknown(error)
            return
        except MillstreamError as error:
            self.metrics.malformed_requests += 1
            self.connection.close(error)
            return
        self._dispatch(header, request)

    def _dispatch(self, header: RequestHeader, request: Request) -> None:
        context = RequestContext(self, request.api, header)
        self._waiting.append(context)
        try:
            response = self._server.dispatch(request, context)
        except Exception as error:
            # Handlers answer the errors they expect. This is a bug, and the client must not wait for ever.
            log.exception("%s of %s failed", request.api.name, self.remote_host)
            self.connection.close(error)
            return
        if response is not None:
            context.reply(response)
        self._hold_back()

    def _answer_unknown(self, error: UnknownRequestError) -> None:
        """Answer an unknown version of ApiVersions in version 0 (KIP-511); close for all other APIs."""
        header = error.header
        if header.api_key != API_VERSIONS.key:
            self.metrics.malformed_requests += 1
            self.connection.close(error)
            return
        oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        context = RequestContext(self, API_VERSIONS, oldest)
        self._waiting.append(context)
        context.reply(unsupported_version_response())

    def flush_answers(self) -> None:
        """Send the answers that are complete, up to the first request without one."""
        waiting = self._waiting
        while waiting and waiting[0].done:
            chunks = waiting.popleft().chunks
            self.metrics.bytes_out += sum(map(len, chunks))
            self.connection.send(chunks)
        self._hold_back()

    def _hold_back(self) -> None:
        """Stop reading while too much is pending for the client, and resume when it has caught up."""
        connection = self.connection
        if len(self._waiting) >= _MAX_PIPELINED or connection.unsent_bytes > _MAX_UNSENT_BYTES:
            connection.pause_reading()
        else:
            connection.resume_reading()

    @property
    def awaits_write(self) -> bool:
        """Whether a request waits for the disk, and is therefore answered soon."""
        return any(context.header.api_key == PRODUCE.key for context in self._waiting)

    def close(self, reason: str) -> None:
        """Close the connection with an error."""
        self.connection.close(CorruptMessage(reason))

    def closed(self, error: Exception | None) -> None:
        for context in self._waiting:
            if context.on_abandoned is not None and not context.done:
                context.on_abandoned()
        self._server.client_closed(self, error)


def _check_size(frame: memoryview) -> None:
    if len(frame) > _SMALL_REQUEST_BYTES and peek_api_key(frame) != PRODUCE.key:
        raise CorruptMessage(f"a request of {len(frame)} bytes that is not Produce")


class FrameMemory:
    """The memory of all incomplete large frames. Above the limit, the largest holder is closed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[FrameConnection, int] = {}
        self.total = 0

    def reserve(self, connection: FrameConnection, size: int) -> None:
        self._held[connection] = self._held.get(connection, 0) + size
        self.total += size
        while self.total > self._limit:
            largest = max(self._held, key=self._held.__getitem__)
            self.release(largest, 0)
            largest.close(CorruptMessage("incomplete requests take too much memory: the largest is closed"))

    def release(self, connection: FrameConnection, size: int) -> None:
        """Release all that a connection holds: it has one frame at a time."""
        self.total -= self._held.pop(connection, 0)


class BrokerServer:
    """Accepts connections, and enforces their limits."""

    def __init__(
        self,
        reactor: Reactor,
        dispatch: Dispatch,
        metrics: BrokerMetrics,
        *,
        max_request_bytes: int,
        max_connections: int,
        max_frame_memory: int,
        idle_ms: int,
        stalled_frame_ms: int,
    ) -> None:
        self.reactor = reactor
        self.dispatch = dispatch
        self.metrics = metrics
        self.max_request_bytes = max_request_bytes
        self.memory = FrameMemory(max_frame_memory)
        self._max_connections = max_connections
        self._idle_ms = idle_ms
        self._stalled_frame_ms = stalled_frame_ms
        self._clients: set[ClientConnection] = set()
        self._listener: socket.socket | None = None

    def listen(self, host: str, port: int, *, allow_remote: bool) -> tuple[str, int]:
        """Bind and accept connections; return the address, with the actual port if ``port`` is 0."""
        family, address = _resolve_listener(host, port)
        if not ipaddress.ip_address(address[0]).is_loopback:
            _check_remote(host, allow_remote)
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}. Is a broker running there already? "
                f"Choose another port with --listen {host}:PORT, or port 0 for any free one"
            ) from error
        listener.setblocking(False)
        self._listener = listener
        self.reactor.watch(listener.fileno(), READABLE, self._accept)
        self._plan_sweep()
        bound: tuple[str, int] = listener.getsockname()[:2]
        return bound

    def stop_listening(self) -> None:
        """Accept no new connections; open ones are still served."""
        if self._listener is not None:
            self.reactor.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Stop listening and close every connection."""
        self.stop_listening()
        for client in list(self._clients):
            client.connection.close()

    @property
    def has_pending_answers(self) -> bool:
        """Whether any client has unsent answers, or waits for the disk."""
        return any(client.connection.unsent_bytes or client.awaits_write for client in self._clients)

    def client_closed(self, client: ClientConnection, error: Exception | None) -> None:
        self._clients.discard(client)
        self.metrics.connections_open -= 1
        if isinstance(error, MillstreamError):
            log.warning("closed the connection from %s: %s", client.remote_host, error)
        elif error is not None:
            log.debug("the connection from %s broke: %s", client.remote_host, error)

    def _accept(self, events: int) -> None:
        assert self._listener is not None, "the listener is open while it is watched"
        for _ in range(64):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            self._admit(sock)

    def _pause_accepting(self, error: OSError) -> None:
        """Accept nothing for a while: without free descriptors, each try would fail at once."""
        log.error("cannot accept connections: %s. The next try is in %d ms", error, _ACCEPT_PAUSE_MS)
        listener = self._listener
        assert listener is not None, "it has just failed"
        self.reactor.unwatch(listener.fileno())

        def resume() -> None:
            if self._listener is listener:
                self.reactor.watch(listener.fileno(), READABLE, self._accept)

        self.reactor.call_at(self.reactor.now_ms() + _ACCEPT_PAUSE_MS, resume)

    def _admit(self, sock: socket.socket) -> None:
        self.metrics.connections_total += 1
        if len(self._clients) >= self._max_connections:
            self.metrics.connections_refused += 1
            sock.close()
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = ClientConnection(self, sock)
        except OSError as error:  # the client is gone already
            log.debug("a client closed its connection before it was accepted: %s", error)
            sock.close()
            return
        self._clients.add(client)
        self.metrics.connections_open += 1

    def _plan_sweep(self) -> None:
        self.reactor.call_at(self.reactor.now_ms() + _SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        """Close connections that are idle or stalled."""
        if self._listener is None:
            return
        now_ms = self.reactor.now_ms()
        for client in list(self._clients):
            self._check_client(client, now_ms)
        self._plan_sweep()

    def _check_client(self, client: ClientConnection, now_ms: int) -> None:
        connection = client.connection
        silent_ms = now_ms - connection.last_read_ms
        if connection.frame_incomplete and silent_ms > self._stalled_frame_ms:
            connection.close(CorruptMessage(f"an incomplete request received nothing for {silent_ms} ms"))
        elif silent_ms > self._idle_ms and not connection.unsent_bytes:
            connection.close()


def _resolve_listener(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host!r}: {error.strerror}. Try 127.0.0.1:{port}") from error
    family, _, _, _, address = found[0]
    return family, address


def _check_remote(host: str, allow_remote: bool) -> None:
    if not allow_remote:
        raise ConfigError(
            f"{host} can be reached from other machines, and the broker has no authentication yet. "
            "Listen on 127.0.0.1, or say --allow-remote if everyone on the network may read and write"
        )
    log.warning("listening on %s without authentication: anyone who can reach it may read and write", host)
