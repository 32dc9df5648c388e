"""The metrics of one client: a registry of numbers with descriptions, read through ``snapshot``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final


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


_WINDOW_MS: Final = 30_000


class Samples:
    """Numbers as they come: their count and sum ever since, and average, maximum and rate of late.

    Of late is the current window of 30 seconds and the one before, as in Kafka (metrics.num.samples and
    metrics.sample.window.ms). Without a number in them, average and maximum are 0.
    """

    __slots__ = ("_before", "_began_ms", "_now", "count", "last_ms", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0
        self.last_ms: int | None = None
        """When the last one came."""
        self._began_ms = 0
        self._now, self._before = _Window(), _Window()

    def add(self, value: float, now_ms: int) -> None:
        """Take a number."""
        self._move(now_ms)
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)
        self.last_ms = now_ms
        self._now.add(value)

    def average(self, now_ms: int) -> float:
        self._move(now_ms)
        count = self._now.count + self._before.count
        return (self._now.total + self._before.total) / count if count else 0.0

    def highest(self, now_ms: int) -> float:
        self._move(now_ms)
        return max(self._now.maximum, self._before.maximum)

    def per_second(self, now_ms: int) -> float:
        """How many came per second, of at least one whole window."""
        self._move(now_ms)
        count = self._now.count + self._before.count
        return count * 1000 / (_WINDOW_MS + now_ms - self._began_ms)

    def _move(self, now_ms: int) -> None:
        passed = (now_ms - self._began_ms) // _WINDOW_MS
        if passed > 0:
            self._before = self._now if passed == 1 else _Window()
            self._now = _Window()
            self._began_ms += passed * _WINDOW_MS


class _Window:
    __slots__ = ("count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)


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
    reauthentications: int = counter("sessions that were renewed by another login")
    throttle_ms: int = counter("milliseconds for which brokers throttled this client")

    def __post_init__(self) -> None:
        self._metrics: list[Metric] = []
        self._by_api: dict[str, Samples] = {}
        self.include(self)

    def include(self, counters: Any) -> None:
        """Register the counters of a dataclass."""
        for one in fields(counters):
            self.register(one.name, one.metadata["description"], partial(getattr, counters, one.name))

    def register(self, name: str, description: str, read: Callable[[], int | float]) -> None:
        """Add a number that ``snapshot`` reads."""
        self._metrics.append(Metric(name, description, read))

    def answered(self, api: str, latency_ms: int, frame_bytes: int, now_ms: int) -> None:
        """Count an answer of ``frame_bytes`` that came ``latency_ms`` after its request."""
        self.responses_received += 1
        self.bytes_received += frame_bytes
        self.latency(api).add(latency_ms, now_ms)

    def latency(self, api: str) -> Samples:
        """How long the answers of one API took, in milliseconds."""
        return self._by_api.setdefault(api, Samples())

    def snapshot(self) -> dict[str, int | float]:
        """All numbers by name; latencies as ``request_latency_ms.Produce.avg`` and the like."""
        values = {metric.name: metric.read() for metric in self._metrics}
        for api, latency in list(self._by_api.items()):
            if latency.count:
                prefix = f"request_latency_ms.{api}"
                values[f"{prefix}.count"] = latency.count
                values[f"{prefix}.total"] = latency.total
                values[f"{prefix}.max"] = latency.maximum
                values[f"{prefix}.avg"] = latency.total / latency.count
        return values
