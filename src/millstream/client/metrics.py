"""The metrics of one client: a registry of numbers with descriptions, read through ``snapshot``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """One number: its name, what it counts or measures, and how to read it from any thread."""

    name: str
    description: str
    read: Callable[[], int | float]


def counter(description: str) -> int:
    """Declare a counter: a field of a dataclass that ``ClientMetrics.include`` takes."""
    count: int = field(default=0, metadata={"description": description})
    return count


@dataclass(slots=True)
class RequestLatency:
    """The answered requests of one API, and how long the answers took."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0


@dataclass(eq=False)
class ClientMetrics:
    """Plain integers, written by the I/O thread alone: other threads read at worst a slightly old number."""

    connections_opened: int = counter("connections that were established")
    connections_closed: int = counter("connections that have ended")
    connections_failed: int = counter("attempts to connect, set-up included, that failed")
    requests_sent: int = counter("requests handed to a socket")
    requests_failed: int = counter("requests that failed with their connection")
    requests_timed_out: int = counter("requests without an answer, or not sent, before their deadline")
    responses_received: int = counter("answers from brokers")
    bytes_sent: int = counter("bytes of requests")
    bytes_received: int = counter("bytes of answers")
    metadata_refreshes: int = counter("metadata updates")
    throttle_ms: int = counter("milliseconds for which brokers throttled this client")

    def __post_init__(self) -> None:
        self._metrics: list[Metric] = []
        self._by_api: dict[str, RequestLatency] = {}
        self.include(self)

    def include(self, counters: Any) -> None:
        """Register the counters of a dataclass."""
        for one in fields(counters):
            self.register(one.name, one.metadata["description"], partial(getattr, counters, one.name))

    def register(self, name: str, description: str, read: Callable[[], int | float]) -> None:
        """Add a number that ``snapshot`` reads."""
        self._metrics.append(Metric(name, description, read))

    def answered(self, api: str, latency_ms: int, frame_bytes: int) -> None:
        """Count an answer of ``frame_bytes`` that came ``latency_ms`` after its request."""
        self.responses_received += 1
        self.bytes_received += frame_bytes
        latency = self._by_api.setdefault(api, RequestLatency())
        latency.count += 1
        latency.total_ms += latency_ms
        latency.max_ms = max(latency.max_ms, latency_ms)

    def snapshot(self) -> dict[str, int | float]:
        """All numbers by name; latencies as ``request_latency_ms.Produce.avg`` and the like."""
        values = {metric.name: metric.read() for metric in self._metrics}
        for api, latency in list(self._by_api.items()):
            prefix = f"request_latency_ms.{api}"
            values[f"{prefix}.count"] = latency.count
            values[f"{prefix}.total"] = latency.total_ms
            values[f"{prefix}.max"] = latency.max_ms
            values[f"{prefix}.avg"] = latency.total_ms / latency.count
        return values
