"""One connected client: reads its requests, and sends the answers in their order.

The answers of a connection are sent in the order of its requests, as Kafka's clients expect. The requests
themselves may complete in any order: a produce that waits for the disk does not delay the next one's append.
Pipelined requests and unsent answers have a limit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from millstream.broker.connections.limits import address_as_in_java
from millstream.broker.handlers.api_versions import unsupported_version_response
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.request_context import RequestContext
from millstream.broker.security.listener_security import ANONYMOUS, ListenerSecurity
from millstream.broker.security.sasl import SaslSession
from millstream.errors import CorruptMessage, MillstreamError, SaslAuthenticationFailedError
from millstream.net.connection import FrameConnection
from millstream.net.reactor import Reactor
from millstream.net.transport import Transport
from millstream.wire.frames import RequestHeader, UnknownRequestError, decode_request, peek_api_key
from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.messages.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_MAX_PIPELINED: Final = 100
"""Reading stops while more requests of the connection than this wait for their answers."""
_MAX_UNSENT_BYTES: Final = 1 << 20
"""Reading stops while more than this waits to be sent to the client."""
_SMALL_REQUEST_BYTES: Final = 8 << 20
"""The limit for all requests but Produce, because decoded objects are larger than their bytes."""

_OF_LOGIN: Final = (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key)
"""The session itself says when these are out of order."""

Dispatch = Callable[[Request, RequestContext], Response | None]
"""Answers a request at once, or returns None and calls ``reply`` or ``drop`` of the context later, once."""


class ClientMemory(Protocol):
    """Counts the memory of clients' incomplete frames."""

    def reserve(self, client: ClientConnection, size: int) -> None: ...

    def release(self, client: ClientConnection) -> None: ...


class ClientOwner(Protocol):
    """What a connection needs of the server that accepted it."""

    reactor: Reactor
    dispatch: Dispatch
    metrics: BrokerMetrics
    max_request_bytes: int

    @property
    def memory(self) -> ClientMemory:
        """What counts the memory of incomplete frames."""

    def client_closed(self, client: ClientConnection, error: Exception | None) -> None: ...


class ClientConnection:
    """One connected client, and its requests in order until each is answered."""

    def __init__(self, server: ClientOwner, transport: Transport, security: ListenerSecurity) -> None:
        self._server = server
        self.metrics = server.metrics
        self.listener = security.listener
        self.sasl = security.new_session()
        self.connected_ms = server.reactor.now_ms()
        self._tls_principal = security.principal_of(transport)
        first_frames = min(security.settings.sasl_server_max_receive_size, server.max_request_bytes)
        self.remote_host = address_as_in_java(transport.sock.getpeername()[0])
        self.local_address: tuple[str, int] = transport.sock.getsockname()[:2]
        self._waiting: deque[RequestContext] = deque()
        self._muted_until_ms = 0
        self.connection = FrameConnection(
            server.reactor,
            transport,
            self,
            max_frame_bytes=server.max_request_bytes if self.sasl is None else first_frames,
            account=self,
            on_drained=self._hold_back,
        )

    def reserve(self, connection: FrameConnection, size: int) -> None:
        self._server.memory.reserve(self, size)

    def release(self, connection: FrameConnection, size: int) -> None:
        self._server.memory.release(self)

    def connected(self) -> None:
        """Nothing to do: accepted sockets are connected already."""

    def frame_received(self, frame: memoryview) -> None:
        self.metrics.bytes_in += len(frame) + 4
        try:
            if self.sasl is not None and not self._admits(peek_api_key(frame), self.sasl):
                return
            _check_size(frame)
            header, request = decode_request(frame)
        except UnknownRequestError as error:
            self._answer_unknown(error)
            return
        except MillstreamError as error:
            self.metrics.malformed_requests += 1
            self.connection.close(error)
            return
        self._dispatch(header, request, len(frame))

    def _dispatch(self, header: RequestHeader, request: Request, size: int) -> None:
        context = RequestContext(self, request.api, header, size)
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
        elif not context.done:
            context.parked()
        self._hold_back()

    def _admits(self, api_key: int, sasl: SaslSession) -> bool:
        """Close the connection, and return False, if the client must log in before it sends this.

        The request is not decoded before this: of strangers, only requests of the login are.
        """
        now_ms = self._server.reactor.now_ms()
        if sasl.admits_requests(now_ms):
            return True
        expired = sasl.has_expired(now_ms)
        may_ask_versions = sasl.admits_versions and not expired
        if api_key in _OF_LOGIN or (api_key == API_VERSIONS.key and may_ask_versions):
            return True
        self.metrics.unauthenticated_requests += 1
        self.close(f"a request of API {api_key} {'after the login expired' if expired else 'before a login'}")
        return False

    @property
    def principal(self) -> str:
        """Who the client is: by its login where there is one, or else by its certificate."""
        if self.sasl is None:
            return self._tls_principal
        return self.sasl.principal or ANONYMOUS

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
        context.reply(unsupported_version_response(context))

    def flush_answers(self) -> None:
        """Send the answers that are complete, up to the first request without one."""
        waiting = self._waiting
        if self.sasl is not None and not self.awaits_login:  # the next request may be a large one
            self.connection.max_frame_bytes = self._server.max_request_bytes
        while waiting and waiting[0].done:
            chunks = waiting.popleft().chunks
            self.metrics.bytes_out += sum(map(len, chunks))
            self.connection.send(chunks)
        self._hold_back()

    def _hold_back(self) -> None:
        """Stop reading while too much is pending for the client, and resume when it has caught up."""
        connection = self.connection
        if (
            self.is_muted
            or len(self._waiting) >= _MAX_PIPELINED
            or connection.unsent_bytes > _MAX_UNSENT_BYTES
        ):
            connection.pause_reading()
        else:
            connection.resume_reading()

    @property
    def is_muted(self) -> bool:
        """Whether the client is over its quota, and its requests wait."""
        return self._muted_until_ms > self._server.reactor.now_ms()

    def mute(self, throttle_ms: int) -> None:
        """Read no requests for a time: the client is over its quota (KIP-219)."""
        reactor = self._server.reactor
        self._muted_until_ms = max(self._muted_until_ms, reactor.now_ms() + throttle_ms)
        reactor.call_at(self._muted_until_ms, self._hold_back)
        self._hold_back()

    @property
    def awaits_write(self) -> bool:
        """Whether a request waits for the disk, and is therefore answered soon."""
        return any(context.header.api_key == PRODUCE.key for context in self._waiting)

    @property
    def awaits_login(self) -> bool:
        """Whether the client has to log in, and has not done so."""
        return self.sasl is not None and self.sasl.principal is None

    def close(self, reason: str) -> None:
        """Close the connection with an error."""
        self.connection.close(CorruptMessage(reason))

    def close_when_sent(self, reason: str) -> None:
        """Close the connection for a failed login, when all answers so far are sent."""
        self.connection.close_when_sent(SaslAuthenticationFailedError(reason))

    def closed(self, error: Exception | None) -> None:
        for context in self._waiting:
            if context.on_abandoned is not None and not context.done:
                context.on_abandoned()
        self._server.client_closed(self, error)


def _check_size(frame: memoryview) -> None:
    if len(frame) > _SMALL_REQUEST_BYTES and peek_api_key(frame) != PRODUCE.key:
        raise CorruptMessage(f"a request of {len(frame)} bytes that is not Produce")
