"""One broker as a client sees it: a connection that comes and goes, and the requests that wait for it.

A link lives as long as its client knows the broker. Requests may be given to it at any time: it connects when
there is something to send, waits out the back-off after failures, and closes when it was idle for long. ::

    IDLE ──request──▶ BACKOFF ──time──▶ CONNECTING ──▶ SETUP ──versions known──▶ READY
      ▲                                     │            │                         │
      └────────── failed, closed, idle ─────┴────────────┴─────────────────────────┘

What is in flight when a connection ends has an unknown fate: it fails with NetworkError, and the sender
decides. So does a request whose answer takes longer than its time-out, and with it the connection: answers
come in order, so that nothing behind a lost one can be trusted to come.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from typing import Protocol

from millstream.client.call import Call
from millstream.client.chance import chance
from millstream.client.cluster import BrokerInfo
from millstream.client.link_settings import LinkSettings
from millstream.client.metrics import ClientMetrics
from millstream.errors import BrokerError, CorruptMessage, MillstreamError, NetworkError
from millstream.net.connect import PendingConnection
from millstream.net.connection import FrameConnection
from millstream.net.reactor import Reactor, Timer
from millstream.wire.frames import decode_response, encode_request
from millstream.wire.schema import Request
from millstream.wire.versions import BrokerVersions, Negotiation

log = logging.getLogger("millstream.client")


class LinkPhase(Enum):
    """Where a link is between nothing and a usable connection."""

    IDLE = "idle"
    BACKOFF = "backoff"
    CONNECTING = "connecting"
    SETUP = "setup"
    READY = "ready"
    CLOSED = "closed"


class LinkOwner(Protocol):
    """Who hears of changes: a link became ready, ended, or has room for more requests."""

    def link_changed(self, link: Link) -> None: ...


class Link:
    """The requests to one broker, and the connection they go over. Belongs to the I/O thread."""

    def __init__(
        self,
        reactor: Reactor,
        broker: BrokerInfo,
        settings: LinkSettings,
        metrics: ClientMetrics,
        owner: LinkOwner,
    ) -> None:
        self.broker = broker
        self.phase = LinkPhase.IDLE
        self.failures = 0
        self.retry_at_ms = 0
        self.versions: BrokerVersions | None = None
        self._reactor = reactor
        self._settings = settings
        self._metrics = metrics
        self._owner = owner
        self._queue: deque[Call] = deque()
        self._in_flight: deque[Call] = deque()
        self._fetches = 0
        self._next_correlation_id = 0
        self._attempt: PendingConnection | None = None
        self._connection: FrameConnection | None = None
        self._negotiation: Negotiation | None = None
        self._drop_reason: MillstreamError | None = None
        self._phase_timer: Timer | None = None
        self._timeout_timer: Timer | None = None
        self._idle_timer: Timer | None = None
        self._last_used_ms = 0
        self._throttled_until_ms = 0
        self._throttle_timer: Timer | None = None

    # -- what others ask of a link

    @property
    def load(self) -> int:
        """Requests that wait for an answer or for their turn."""
        return len(self._in_flight) + len(self._queue)

    @property
    def has_fetch(self) -> bool:
        """Whether a fetch is under way, or waits for its turn: a broker may keep it until there is data."""
        return self._fetches > 0

    @property
    def has_room(self) -> bool:
        """Whether a request given now would leave at once."""
        return (
            self.phase is LinkPhase.READY
            and not self._queue
            and len(self._in_flight) < self._settings.max_in_flight
            and self._reactor.now_ms() >= self._throttled_until_ms
        )

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to connect failed, and none has succeeded since."""
        return self.failures > 0 and self.phase is not LinkPhase.READY

    def connect(self) -> None:
        """Have a connection soon, though there is nothing to send yet."""
        if self.phase is LinkPhase.IDLE:
            self._start()

    def send(self, call: Call) -> None:
        """Send when the connection allows it; one of the call's callbacks follows, never inside this call."""
        if self.phase is LinkPhase.CLOSED:
            self._reactor.defer(lambda: call.fail(NetworkError(f"{self.broker}: the client is closed")))
            return
        self._queue.append(call)
        self._fetches += call.is_fetch
        self._watch_deadline(call.deadline_ms)
        if self.phase is LinkPhase.READY:
            self._flush()
        elif self.phase is LinkPhase.IDLE:
            self._start()

    def move(self, broker: BrokerInfo) -> None:
        """The broker has another address now: leave the old one."""
        moved = (broker.host, broker.port) != (self.broker.host, self.broker.port)
        self.broker = broker
        if moved and self.phase is not LinkPhase.CLOSED:
            self.failures = self.retry_at_ms = 0
            self._drop(NetworkError(f"the broker has moved: it is {broker} now"))

    def close(self, error: MillstreamError) -> None:
        """End for good; whatever waits fails with this error."""
        self._drop(error, final=True)

    # -- connecting

    def _start(self) -> None:
        if self.retry_at_ms > self._reactor.now_ms():
            self.phase = LinkPhase.BACKOFF
            self._phase_timer = self._reactor.call_at(self.retry_at_ms, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self.phase = LinkPhase.CONNECTING
        settings = self._settings
        self._attempt = PendingConnection(
            self._reactor,
            self.broker.host,
            self.broker.port,
            self,
            timeout_ms=max(1, settings.setup_timeout.delay_ms(self.failures + 1, chance())),
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
        )

    def connected(self) -> None:
        """The socket is connected: agree on versions first. (TLS and SASL would take their steps here.)"""
        assert self._attempt is not None and self._attempt.connection is not None, "an attempt succeeded"
        self._connection, self._attempt = self._attempt.connection, None
        self._metrics.connections_opened += 1
        self.phase = LinkPhase.SETUP
        deadline_ms = self._reactor.now_ms() + self._settings.request_timeout_ms
        self._phase_timer = self._reactor.call_at(deadline_ms, self._setup_timed_out)
        self._negotiation = Negotiation(self._settings.software_version, str(self.broker))
        self._negotiate()

    def _negotiate(self) -> None:
        assert self._negotiation is not None, "only while versions are being agreed on"
        self._write(self._negotiation.request(), self._negotiation.version, self._new_correlation_id())

    def _setup_received(self, frame: memoryview) -> None:
        assert self._negotiation is not None, "only while versions are being agreed on"
        _, versions = self._negotiation.receive(frame)
        if versions is None:
            self._negotiate()
            return
        self.versions = versions
        self._negotiation = None
        self._became_ready()

    def _setup_timed_out(self) -> None:
        assert self._connection is not None, "set-up happens on a connection"
        self._connection.close(NetworkError(f"{self.broker} did not say in time which versions it speaks"))

    def _became_ready(self) -> None:
        self._cancel_phase_timer()
        self.phase = LinkPhase.READY
        self.failures = self.retry_at_ms = self._throttled_until_ms = 0
        log.debug("connected to %s", self.broker)
        self._last_used_ms = self._reactor.now_ms()
        if self._settings.max_idle_ms >= 0:
            self._idle_timer = self._reactor.call_at(
                self._last_used_ms + self._settings.max_idle_ms, self._check_idle
            )
        self._queue = deque(sorted(self._queue, key=lambda call: call.is_fetch))  # which may wait there
        self._flush()
        self._owner.link_changed(self)

    # -- requests and answers

    def _flush(self) -> None:
        now_ms = self._reactor.now_ms()
        while (
            self._queue
            and self.phase is LinkPhase.READY
            and len(self._in_flight) < self._settings.max_in_flight
            and now_ms >= self._throttled_until_ms
        ):
            self._transmit(self._queue.popleft(), now_ms)

    def _transmit(self, call: Call, now_ms: int) -> None:
        assert self.versions is not None, "a ready link knows its versions"
        try:
            call.version = self.versions.choose(call.request_type.api, call.max_version)
            request = call.build(call.version)
            call.correlation_id = self._new_correlation_id()
            self._write(request, call.version, call.correlation_id)
        except MillstreamError as error:
            refused = error
            self._fetches -= call.is_fetch
            self._reactor.defer(lambda: call.fail(refused))
            return
        call.sent_ms = self._last_used_ms = now_ms
        self._metrics.requests_sent += 1
        if call.expects_response:
            self._in_flight.append(call)
        else:
            self._reactor.defer(lambda: call.respond(None))

    def _write(self, request: Request, version: int, correlation_id: int) -> None:
        assert self._connection is not None, "requests are written to an open connection"
        chunks = encode_request(request, version, correlation_id, self._settings.client_id)
        self._metrics.bytes_sent += sum(map(len, chunks))
        self._connection.send(chunks)

    def _new_correlation_id(self) -> int:
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        return self._next_correlation_id

    def frame_received(self, frame: memoryview) -> None:
        """An answer: to the oldest request in flight, as brokers answer in order."""
        try:
            if self.phase is LinkPhase.SETUP:
                self._setup_received(frame)
            else:
                self._answer_received(frame)
        except MillstreamError as error:
            assert self._connection is not None, "frames arrive on an open connection"
            self._connection.close(error)

    def _answer_received(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise CorruptMessage(f"{self.broker} sent an answer that nobody asked for")
        call = self._in_flight[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != call.correlation_id:
            raise CorruptMessage(
                f"{self.broker} answered request {correlation_id}, though {call.correlation_id} is next"
            )
        _, response = decode_response(call.request_type, call.version, frame)
        self._in_flight.popleft()
        self._fetches -= call.is_fetch
        self._last_used_ms = now_ms = self._reactor.now_ms()
        self._metrics.answered(call.name, now_ms - call.sent_ms, len(frame) + 4)
        self._throttle(getattr(response, "throttle_time_ms", 0), now_ms)
        call.respond(response)
        self._flush()
        self._owner.link_changed(self)

    def _throttle(self, throttle_ms: int, now_ms: int) -> None:
        """The broker reads nothing from us for so long: keep requests here, where their time is seen
        (KIP-219).
        """
        if throttle_ms <= 0:
            return
        self._metrics.throttle_ms += throttle_ms
        self._throttled_until_ms = now_ms + throttle_ms
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._throttle_timer = self._reactor.call_at(self._throttled_until_ms, self._throttle_ended)

    def _throttle_ended(self) -> None:
        self._flush()
        self._owner.link_changed(self)

    # -- time

    def _watch_deadline(self, deadline_ms: int) -> None:
        """Have one timer, at the earliest deadline that was seen; it sets itself again as long as needed."""
        timer = self._timeout_timer
        if timer is not None and timer.callback is not None and timer.deadline_ms <= deadline_ms:
            return
        if timer is not None:
            timer.cancel()
        self._timeout_timer = self._reactor.call_at(deadline_ms, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timeout_timer = None
        now_ms = self._reactor.now_ms()
        late = next((call for call in self._in_flight if call.deadline_ms <= now_ms), None)
        if late is not None and self._connection is not None:
            self._metrics.requests_timed_out += 1
            took_ms = now_ms - late.sent_ms
            self._connection.close(
                NetworkError(f"{self.broker} did not answer {late.name} within {took_ms} ms")
            )
        for call in [call for call in self._queue if call.deadline_ms <= now_ms]:
            self._queue.remove(call)
            self._fetches -= call.is_fetch
            self._metrics.requests_timed_out += 1
            call.fail(NetworkError(f"{self.broker}: there was no connection to send {call.name} in its time"))
        deadlines = [call.deadline_ms for calls in (self._queue, self._in_flight) for call in calls]
        if deadlines:
            self._watch_deadline(min(deadlines))

    def _check_idle(self) -> None:
        idle_since_ms = self._last_used_ms + self._settings.max_idle_ms
        if self._connection is None:
            return
        if self.load or idle_since_ms > self._reactor.now_ms():
            again_ms = max(idle_since_ms, self._reactor.now_ms() + 1)
            self._idle_timer = self._reactor.call_at(again_ms, self._check_idle)
            return
        log.debug("closing the idle connection to %s", self.broker)
        self._connection.close()

    # -- the end of a connection

    def closed(self, error: Exception | None) -> None:
        """The connection or the attempt ended: fail what waited, and remember to wait before the next one."""
        usable = self.phase is LinkPhase.READY
        self._forget_connection()
        if self.phase is not LinkPhase.CLOSED:
            self.phase = LinkPhase.IDLE
            if not usable and self._drop_reason is None:
                self.failures += 1
                self._metrics.connections_failed += 1
            if error is not None or not usable or self.load:
                delay_ms = self._settings.reconnect.delay_ms(max(self.failures, 1), chance())
                self.retry_at_ms = self._reactor.now_ms() + delay_ms
            log.debug("the connection to %s ended: %s", self.broker, error or "closed")
        self._fail_all(self._reason(error))
        self._owner.link_changed(self)

    def _reason(self, error: Exception | None) -> MillstreamError:
        if self._drop_reason is not None:
            return self._drop_reason
        if isinstance(error, BrokerError):
            return error
        return NetworkError(f"{self.broker}: {error or 'the connection was closed'}")

    def _forget_connection(self) -> None:
        self._cancel_phase_timer()
        for timer in (self._idle_timer, self._throttle_timer):
            if timer is not None:
                timer.cancel()
        if self._connection is not None:
            self._metrics.connections_closed += 1
        self._attempt = self._connection = self._negotiation = self.versions = None

    def _fail_all(self, error: MillstreamError) -> None:
        calls = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        self._fetches = 0
        self._metrics.requests_failed += len(calls)
        for call in calls:
            call.fail(error)

    def _drop(self, error: MillstreamError, *, final: bool = False) -> None:
        """Close whatever there is, and fail what waits, also where there is no connection yet."""
        connection, attempt = self._connection, self._attempt
        self._drop_reason = error
        if final:
            self.phase = LinkPhase.CLOSED
        if connection is not None:
            connection.close()
        elif attempt is not None:
            attempt.close()
        else:
            self._cancel_phase_timer()
            self.phase = LinkPhase.CLOSED if final else LinkPhase.IDLE
            self._fail_all(error)
        self._drop_reason = None
        if self._timeout_timer is not None and final:
            self._timeout_timer.cancel()

    def _cancel_phase_timer(self) -> None:
        if self._phase_timer is not None:
            self._phase_timer.cancel()
            self._phase_timer = None
