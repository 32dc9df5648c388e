"""Sockets to requests: listening, framing, the order of replies, and the limits that keep a peer in bounds.

A connection's replies leave in the order of its requests, as Kafka's clients expect, while the requests
themselves may be answered in any order: a produce that waits for the disk does not hold up the next one's
append. What a peer can make the broker hold is bounded: pipelined requests, unsent replies, the memory of
half-received frames and the number of connections each have a limit.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from millstream.broker.handlers.api_versions import unsupported_version_response
from millstream.broker.metrics import BrokerMetrics
from millstream.errors import ConfigError, CorruptMessage, MillstreamError
from millstream.net.connection import FrameConnection
from millstream.net.reactor import READABLE, Reactor
from millstream.wire import apis
from millstream.wire.frames import (
    RequestHeader,
    UnknownRequestError,
    decode_request,
    encode_response,
    peek_api_key,
)
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_MAX_PIPELINED: Final = 100
"""Requests of one connection that may wait for their answers before its further bytes are left unread."""
_MAX_UNSENT_BYTES: Final = 1 << 20
"""Reading stops while more than this is waiting to be sent to the peer."""
_SWEEP_MS: Final = 1000
_REST_MS: Final = 200
_SMALL_REQUEST_BYTES: Final = 8 << 20
"""The limit for every request but Produce, as Python objects are larger than their bytes."""


class Dispatcher(Protocol):
    """Who answers requests."""

    def dispatch(self, request: Request, context: RequestContext) -> Response | None:
        """Answer at once, or return None and call ``context.reply`` or ``context.drop`` later, once."""


class RequestContext:
    """One request that waits for its answer: who asks, in which version, and where the answer goes."""

    __slots__ = ("_chunks", "_done", "_peer", "_started", "header", "on_abandoned")

    def __init__(self, peer: Peer, header: RequestHeader) -> None:
        self._peer = peer
        self.header = header
        self._started = time.perf_counter()
        self._chunks: list[Any] = []
        self._done = False
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the peer goes before the answer; for those who hold something for it."""

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka's tools show it, with a slash in front."""
        return "/" + self._peer.remote_host

    @property
    def local_address(self) -> tuple[str, int]:
        """The address that the peer reached us by, and so can reach us by again."""
        return self._peer.local_address

    def reply(self, response: Response) -> None:
        """Answer the request. The answer leaves once those to earlier requests have left."""
        assert not self._done, "a request is answered once"
        self._chunks = encode_response(response, self.header.version, self.header.correlation_id)
        self._finish()

    def drop(self) -> None:
        """End a request that gets no answer (acks=0)."""
        assert not self._done, "a request is answered once"
        self._finish()

    def close(self, reason: str) -> None:
        """Close the peer's connection: the only way to tell something to one that wants no answer."""
        self._peer.connection.close(CorruptMessage(reason))

    def _finish(self) -> None:
        self._done = True
        name = apis.APIS[self.header.api_key].name if self.header.api_key in apis.APIS else "unknown"
        elapsed_ms = (time.perf_counter() - self._started) * 1000
        self._peer.server.metrics.api(name).observe(elapsed_ms)
        self._peer.flush_answers()

    @property
    def answered(self) -> bool:
        return self._done

    @property
    def chunks(self) -> list[Any]:
        return self._chunks


class Peer:
    """One connected client: its requests in order, until each is answered."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self.server = server
        self.remote_host: str = sock.getpeername()[0]
        self.local_address: tuple[str, int] = sock.getsockname()[:2]
        self._waiting: deque[RequestContext] = deque()
        self.connection = FrameConnection(
            server.reactor,
            sock,
            self,
            max_frame_bytes=server.max_request_bytes,
            account=server.memory,
            on_drained=self._hold_back,
        )

    def connected(self) -> None:
        """Nothing to do: the listener hands over sockets that are connected."""

    def frame_received(self, frame: memoryview) -> None:
        self.server.metrics.bytes_in += len(frame) + 4
        try:
            _check_size(frame)
            header, request = decode_request(frame)
        except UnknownRequestError as error:
            self._answer_unknown(error)
            return
        except MillstreamError as error:
            self.server.metrics.malformed_requests += 1
            self.connection.close(error)
            return
        self._dispatch(header, request)

    def _dispatch(self, header: RequestHeader, request: Request) -> None:
        context = RequestContext(self, header)
        self._waiting.append(context)
        try:
            response = self.server.dispatcher.dispatch(request, context)
        except Exception as error:
            # A handler answers the errors it knows. This one is ours, and the peer must not wait for ever.
            log.exception("%s of %s failed", apis.APIS[header.api_key].name, self.remote_host)
            self.connection.close(error)
            return
        if response is not None:
            context.reply(response)
        self._hold_back()

    def _answer_unknown(self, error: UnknownRequestError) -> None:
        """ApiVersions of an unknown version is answered in version 0, which lists what we speak (KIP-511)."""
        header = error.header
        if header.api_key != apis.API_VERSIONS.key:
            self.server.metrics.malformed_requests += 1
            self.connection.close(error)
            return
        oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        context = RequestContext(self, oldest)
        self._waiting.append(context)
        context.reply(unsupported_version_response())

    def flush_answers(self) -> None:
        """Send what is answered, up to the first request that is not."""
        waiting = self._waiting
        while waiting and waiting[0].answered:
            chunks = waiting.popleft().chunks
            self.server.metrics.bytes_out += sum(map(len, chunks))
            self.connection.send(chunks)
        self._hold_back()

    def _hold_back(self) -> None:
        """Stop reading from a peer that has too much under way, and go on when it has caught up."""
        connection = self.connection
        if len(self._waiting) >= _MAX_PIPELINED or connection.unsent_bytes > _MAX_UNSENT_BYTES:
            connection.pause_reading()
        else:
            connection.resume_reading()

    @property
    def awaits_write(self) -> bool:
        """Whether a request waits for the disk rather than for data: it is answered soon."""
        return any(context.header.api_key == apis.PRODUCE.key for context in self._waiting)

    def closed(self, error: Exception | None) -> None:
        for context in self._waiting:
            if context.on_abandoned is not None and not context.answered:
                context.on_abandoned()
        self.server.peer_closed(self, error)


def _check_size(frame: memoryview) -> None:
    if len(frame) > _SMALL_REQUEST_BYTES and peek_api_key(frame) != apis.PRODUCE.key:
        raise CorruptMessage(f"a request of {len(frame)} bytes that is not Produce")


class FrameMemory:
    """The memory of all half-received large frames. Over the limit, the largest holder is cut off."""

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
            largest.close(
                CorruptMessage("half-received requests take too much memory: the largest is cut off")
            )

    def release(self, connection: FrameConnection, size: int) -> None:
        """A connection has one frame at a time, so all that it holds is given back."""
        self.total -= self._held.pop(connection, 0)


class Server:
    """Listens, accepts, and keeps the peers within their limits."""

    def __init__(
        self,
        reactor: Reactor,
        dispatcher: Dispatcher,
        metrics: BrokerMetrics,
        *,
        max_request_bytes: int,
        max_connections: int,
        max_frame_memory: int,
        idle_ms: int,
        stalled_frame_ms: int,
    ) -> None:
        self.reactor = reactor
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.max_request_bytes = max_request_bytes
        self.memory = FrameMemory(max_frame_memory)
        self._max_connections = max_connections
        self._idle_ms = idle_ms
        self._stalled_frame_ms = stalled_frame_ms
        self._peers: set[Peer] = set()
        self._listener: socket.socket | None = None

    def listen(self, host: str, port: int, *, allow_remote: bool) -> tuple[str, int]:
        """Bind and start to accept; returns the address, with the port that was chosen where 0 was given."""
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
        """Take no new connections; those that are open are served on."""
        if self._listener is not None:
            self.reactor.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Stop listening and close every connection."""
        self.stop_listening()
        for peer in list(self._peers):
            peer.connection.close()

    @property
    def has_answers_under_way(self) -> bool:
        """Whether any peer still has bytes to come that are ready to leave, or waits for the disk."""
        return any(peer.connection.unsent_bytes or peer.awaits_write for peer in self._peers)

    def peer_closed(self, peer: Peer, error: Exception | None) -> None:
        self._peers.discard(peer)
        self.metrics.connections_open -= 1
        if isinstance(error, MillstreamError):
            log.warning("closed the connection from %s: %s", peer.remote_host, error)
        elif error is not None:
            log.debug("the connection from %s broke: %s", peer.remote_host, error)

    def _accept(self, events: int) -> None:
        assert self._listener is not None, "the listener is open while it is watched"
        for _ in range(64):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._admit(sock)

    def _rest(self, error: OSError) -> None:
        """Leave new connections waiting for a while: without descriptors, each try would fail at once."""
        log.error("cannot accept connections: %s. The next try is in %d ms", error, _REST_MS)
        listener = self._listener
        assert listener is not None, "it has just failed"
        self.reactor.unwatch(listener.fileno())

        def go_on() -> None:
            if self._listener is listener:
                self.reactor.watch(listener.fileno(), READABLE, self._accept)

        self.reactor.call_at(self.reactor.now_ms() + _REST_MS, go_on)

    def _admit(self, sock: socket.socket) -> None:
        self.metrics.connections_total += 1
        if len(self._peers) >= self._max_connections:
            self.metrics.connections_refused += 1
            sock.close()
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(self, sock)
        except OSError as error:  # the client was gone before we looked
            log.debug("a connection ended before it began: %s", error)
            sock.close()
            return
        self._peers.add(peer)
        self.metrics.connections_open += 1

    def _plan_sweep(self) -> None:
        self.reactor.call_at(self.reactor.now_ms() + _SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        """Close the idle and the stalled."""
        if self._listener is None:
            return
        now_ms = self.reactor.now_ms()
        for peer in list(self._peers):
            self._check_peer(peer, now_ms)
        self._plan_sweep()

    def _check_peer(self, peer: Peer, now_ms: int) -> None:
        connection = peer.connection
        silent_ms = now_ms - connection.last_read_ms
        if connection.frame_incomplete and silent_ms > self._stalled_frame_ms:
            connection.close(CorruptMessage(f"a request stopped half-way for {silent_ms} ms"))
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
    log.warning("listening on %s without authentication: whoever reaches it may read and write", host)
