"""One request that waits for its answer: who sent it, in which version, and where the answer goes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from millstream.broker.metrics import BrokerMetrics
from millstream.broker.security.listeners import Listener
from millstream.broker.security.sasl import SaslSession
from millstream.errors import ErrorCode
from millstream.wire.faults import EncodeError
from millstream.wire.frames import RequestHeader, encode_response
from millstream.wire.schema import Api, Response

log = logging.getLogger("millstream.broker")

_ERROR_NAMES: Final = {each.value: each.name for each in ErrorCode}


class RequestSource(Protocol):
    """The connection that a request came from."""

    remote_host: str
    local_address: tuple[str, int]
    listener: Listener
    sasl: SaslSession | None
    metrics: BrokerMetrics

    @property
    def principal(self) -> str:
        """Who the client is, such as ``User:alice``."""

    def flush_answers(self) -> None:
        """Send the answers that are complete, in the order of the requests."""

    def close(self, reason: str) -> None:
        """Close the connection."""

    def mute(self, throttle_ms: int) -> None:
        """Read no requests for a time: the client is over its quota (KIP-219)."""

    def close_when_sent(self, reason: str) -> None:
        """Answer what is answered already, and close the connection."""


class RequestContext:
    """A request from its arrival until ``reply`` or ``drop``, one of which is called exactly once."""

    __slots__ = (
        "_amendments",
        "_busy_seconds",
        "_source",
        "_started",
        "api",
        "chunks",
        "done",
        "header",
        "on_abandoned",
        "permits_topic",
        "resume_ms",
        "size",
        "throttle",
    )

    def __init__(self, source: RequestSource, api: Api, header: RequestHeader, size: int = 0) -> None:
        self._source = source
        self._started = time.perf_counter()
        self.api = api
        self.header = header
        self.size = size
        """The bytes of the request."""
        self._busy_seconds: float | None = None
        self.throttle: Callable[[Response | None], int] | None = None
        """Measures the request when it is answered; returns how long its client must pause."""
        self.resume_ms = 0
        """Until when the client must pause, on the clock of the quotas, as far as the handler knows."""
        self.chunks: list[Any] = []
        """The encoded answer; empty until there is one."""
        self.done = False
        self.permits_topic: Callable[[str], bool] | None = None
        """Whether the client may read a topic; None if it may read all."""
        self._amendments: tuple[Callable[[Any], None], ...] = ()
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the connection closes before the answer, to release what is held for the request."""

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        """The client's address as Kafka's tools show it, with a slash in front."""
        return "/" + self._source.remote_host

    @property
    def local_address(self) -> tuple[str, int]:
        """The address by which the client reached the broker."""
        return self._source.local_address

    @property
    def listener(self) -> Listener:
        """The listener by which the client came."""
        return self._source.listener

    @property
    def principal(self) -> str:
        """Who sent the request, such as ``User:alice``."""
        return self._source.principal

    @property
    def sasl(self) -> SaslSession | None:
        """The login of the connection; None if its listener has none."""
        return self._source.sasl

    @property
    def remote_host(self) -> str:
        """The client's IP address."""
        return self._source.remote_host

    def amend(self, amendment: Callable[[Any], None]) -> None:
        """Have the answer changed before it is sent: what the principal may not see, and refused items."""
        self._amendments += (amendment,)

    def reply(self, response: Response) -> None:
        """Answer the request. The answer is sent after those to earlier requests of the connection.

        One that cannot be encoded closes the connection: its client must not wait for ever.
        """
        assert not self.done, "a request is answered once"
        for amendment in self._amendments:
            amendment(response)
        if code := getattr(response, "error_code", 0):
            self.count_error(code)
        throttle_ms = self._measure(response)
        if throttle_ms > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        try:
            self.chunks = encode_response(response, self.header.version, self.header.correlation_id)
        except EncodeError as error:
            log.exception("an answer to %s of %s cannot be encoded", self.api.name, self.remote_host)
            self.done = True
            self.close(f"an answer to {self.api.name} cannot be encoded: {error}")
            return
        self._finish()

    def reply_and_close(self, response: Response, reason: str) -> None:
        """Answer the request, and close the connection when the answer is sent."""
        self.reply(response)
        self._source.close_when_sent(reason)

    def mute(self, throttle_ms: int) -> None:
        """Read no further requests of the connection for a time."""
        self._source.mute(throttle_ms)

    def drop(self) -> None:
        """End a request that gets no answer (acks=0); one with refused items closes the connection."""
        assert not self.done, "a request is answered once"
        self._measure(None)
        self._finish()
        if self._amendments:
            self.close(f"{self.principal} may not write to all topics of a produce request with acks=0")

    def close(self, reason: str) -> None:
        """Close the connection: the only way to report an error to a client that expects no answer."""
        self._source.close(reason)

    def parked(self) -> None:
        """The handler has returned without an answer, which follows later."""
        self._busy_seconds = time.perf_counter() - self._started

    @property
    def busy_seconds(self) -> float:
        """How long the handler has worked on the request, without the time in which it waited."""
        return time.perf_counter() - self._started if self._busy_seconds is None else self._busy_seconds

    def count_error(self, code: int) -> None:
        """Count an error that the answer reports, as a whole or for one of its items."""
        self._source.metrics.errors[self.api.name, _ERROR_NAMES.get(code, str(code))] += 1

    def _measure(self, response: Response | None) -> int:
        throttle_ms = 0 if self.throttle is None else self.throttle(response)
        if throttle_ms > 0:
            self._source.metrics.throttled_requests += 1
            self._source.metrics.client_throttled_requests.add(self.client_id)
            self.mute(throttle_ms)
        return throttle_ms

    def _finish(self) -> None:
        self.done = True
        metrics = self._source.metrics
        metrics.request_seconds[self.api.name].observe(time.perf_counter() - self._started)
        metrics.client_requests.add(self.client_id)
        self._source.flush_answers()
