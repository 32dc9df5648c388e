"""The requests to one broker: those that wait to be sent, and those that wait for their answer.

A broker answers the requests of a connection in order. So an answer belongs to the oldest request in flight,
and a request that gets no answer in time takes its connection with it: no later answer can be trusted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.client.cluster import BrokerInfo
from millstream.client.metrics import ClientMetrics
from millstream.errors import CorruptMessage, MillstreamError, NetworkError
from millstream.net.reactor import Reactor, Timer
from millstream.wire.frames import decode_response
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_offsets import OFFSET_COMMIT
from millstream.wire.messages.groups import JOIN_GROUP, SYNC_GROUP
from millstream.wire.schema import Request, Response
from millstream.wire.versions import BrokerVersions

log = logging.getLogger("millstream.client")


@dataclass(slots=True, eq=False)
class Call:
    """One request, from when it is given to a link until exactly one of its two callbacks is called.

    ``build`` makes the request for the version that is agreed with the broker. Without an expected response
    (acks=0), ``on_response`` gets None as soon as the request has been handed to the socket.
    """

    request_type: type[Request]
    build: Callable[[int], Request]
    deadline_ms: int
    on_response: Callable[[Any], None]
    on_failure: Callable[[MillstreamError], None]
    max_version: int | None = None
    expects_response: bool = True
    version: int = -1
    correlation_id: int = -1
    sent_ms: int = -1

    @property
    def name(self) -> str:
        return self.request_type.api.name

    @property
    def is_fetch(self) -> bool:
        """Whether the broker may hold the answer until there is data, and all later answers with it."""
        return self.request_type.api is FETCH

    def respond(self, response: Response | None) -> None:
        self._protected(self.on_response, response)

    def fail(self, error: MillstreamError) -> None:
        self._protected(self.on_failure, error)

    def _protected(self, callback: Callable[[Any], None], argument: Any) -> None:
        """A callback that raises must not stop the others, nor leave the link half changed."""
        try:
            callback(argument)
        except Exception:
            log.exception("the callback of a %s request failed", self.name)


class Carrier(Protocol):
    """The connection that requests are sent over."""

    broker: BrokerInfo
    versions: BrokerVersions | None
    """What the broker speaks; None while there is no connection ready for requests."""

    def write(self, request: Request, version: int) -> int:
        """Send a request; returns its correlation id."""

    def abort(self, error: MillstreamError) -> None:
        """Close the connection, which fails all requests."""

    def room_changed(self) -> None:
        """There may be room for more requests."""


class RequestQueue:
    """Sends calls in order while the carrier is ready, and matches answers to them."""

    def __init__(
        self, reactor: Reactor, max_in_flight: int, metrics: ClientMetrics, carrier: Carrier
    ) -> None:
        self.last_used_ms = 0
        self._reactor = reactor
        self._max_in_flight = max_in_flight
        self._metrics = metrics
        self._carrier = carrier
        self._waiting: deque[Call] = deque()
        self._in_flight: deque[Call] = deque()
        self._fetches = 0
        self._throttled_until_ms = 0
        self._is_held = False
        self._throttle_timer: Timer | None = None
        self._deadline_timer: Timer | None = None

    def __len__(self) -> int:
        """Requests that wait to be sent, or for their answer."""
        return len(self._in_flight) + len(self._waiting)

    @property
    def has_fetch(self) -> bool:
        """Whether a fetch is in flight or waits: the broker may hold its answer until there is data."""
        return self._fetches > 0

    @property
    def has_join(self) -> bool:
        """Whether an OffsetFetch should overtake: a join or sync is unanswered, but no OffsetCommit."""
        apis = {call.request_type.api.key for call in (*self._in_flight, *self._waiting)}
        return not apis.isdisjoint((JOIN_GROUP.key, SYNC_GROUP.key)) and OFFSET_COMMIT.key not in apis

    @property
    def has_room(self) -> bool:
        """Whether a request added now would be sent at once."""
        return not self._waiting and self._may_send(self._reactor.now_ms())

    def add(self, call: Call) -> None:
        """Send the call as soon as the carrier is ready, or fail it at its deadline."""
        self._waiting.append(call)
        self._fetches += call.is_fetch
        self._watch_deadline(call.deadline_ms)
        self._flush()

    def start(self) -> None:
        """The carrier is ready: send what waits, fetches last, as other answers would wait behind theirs."""
        self._throttled_until_ms = 0
        self._is_held = False
        self.last_used_ms = self._reactor.now_ms()
        self._waiting = deque(sorted(self._waiting, key=lambda call: call.is_fetch))
        self._flush()

    def hold(self) -> None:
        """Send nothing more until ``release``; answers to what was sent still come."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._resume()

    def fail_all(self, error: MillstreamError) -> None:
        """The connection has ended, or none was made: whether a request in flight was handled is unknown."""
        for timer in (self._throttle_timer, self._deadline_timer):
            if timer is not None:
                timer.cancel()
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._fetches = 0
        self._metrics.requests_failed += len(calls)
        for call in calls:
            call.fail(error)

    # -- sending

    def _may_send(self, now_ms: int) -> bool:
        return (
            self._carrier.versions is not None
            and not self._is_held
            and len(self._in_flight) < self._max_in_flight
            and now_ms >= self._throttled_until_ms
        )

    def _flush(self) -> None:
        now_ms = self._reactor.now_ms()
        while self._waiting and self._may_send(now_ms):
            self._transmit(self._waiting.popleft(), now_ms)

    def _transmit(self, call: Call, now_ms: int) -> None:
        versions = self._carrier.versions
        assert versions is not None, "a ready link knows its versions"
        try:
            call.version = versions.choose(call.request_type.api, call.max_version)
            call.correlation_id = self._carrier.write(call.build(call.version), call.version)
        except MillstreamError as error:
            refused = error
            self._fetches -= call.is_fetch
            self._reactor.defer(lambda: call.fail(refused))
            return
        call.sent_ms = self.last_used_ms = now_ms
        self._metrics.requests_sent += 1
        if call.expects_response:
            self._in_flight.append(call)
        else:
            self._reactor.defer(lambda: call.respond(None))

    # -- answers

    def receive(self, frame: memoryview) -> None:
        """Hand an answer to the oldest request in flight."""
        broker = self._carrier.broker
        if not self._in_flight:
            raise CorruptMessage(f"{broker} sent an answer without a request")
        call = self._in_flight[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != call.correlation_id:
            raise CorruptMessage(
                f"{broker} answered request {correlation_id}, though {call.correlation_id} is next"
            )
        _, response = decode_response(call.request_type, call.version, frame)
        self._in_flight.popleft()
        self._fetches -= call.is_fetch
        self.last_used_ms = now_ms = self._reactor.now_ms()
        self._metrics.answered(call.name, now_ms - call.sent_ms, len(frame) + 4, now_ms)
        self._throttle(getattr(response, "throttle_time_ms", 0), now_ms)
        call.respond(response)
        self._resume()

    def _throttle(self, throttle_ms: int, now_ms: int) -> None:
        """The broker reads nothing from us for ``throttle_ms``: keep requests here, where their deadlines are
        watched (KIP-219).
        """
        if throttle_ms <= 0:
            return
        self._metrics.throttle_ms += throttle_ms
        self._throttled_until_ms = now_ms + throttle_ms
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._throttle_timer = self._reactor.call_at(self._throttled_until_ms, self._resume)

    def _resume(self) -> None:
        self._flush()
        self._carrier.room_changed()

    # -- deadlines

    def _watch_deadline(self, deadline_ms: int) -> None:
        """Keep one timer, at the earliest deadline; ``_check_deadlines`` sets it again."""
        timer = self._deadline_timer
        if timer is not None:
            if timer.callback is not None and timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._deadline_timer = self._reactor.call_at(deadline_ms, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._deadline_timer = None
        now_ms = self._reactor.now_ms()
        broker = self._carrier.broker
        late = next((call for call in self._in_flight if call.deadline_ms <= now_ms), None)
        if late is not None:
            self._metrics.requests_timed_out += 1
            took_ms = now_ms - late.sent_ms
            self._carrier.abort(NetworkError(f"{broker} did not answer {late.name} within {took_ms} ms"))
        for call in [call for call in self._waiting if call.deadline_ms <= now_ms]:
            self._waiting.remove(call)
            self._fetches -= call.is_fetch
            self._metrics.requests_timed_out += 1
            call.fail(NetworkError(f"{broker}: no connection to send {call.name} before its deadline"))
        deadlines = [call.deadline_ms for calls in (self._waiting, self._in_flight) for call in calls]
        if deadlines:
            self._watch_deadline(min(deadlines))
