"""The broker's metrics: each is one field that declares its kind, help text and label.

To add a metric, add a field to a class of metrics and count on it (``metrics.bytes_in += size``).
``Services.read_metrics`` reads all of them, with what was declared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


def counter(help_text: str) -> Any:
    """Declare a number that only rises, from zero at every start."""
    return field(default=0, metadata={"kind": "counter", "help": help_text, "label": ""})


def gauge(help_text: str, *, label: str = "") -> Any:
    """Declare a number that rises and falls. With ``label`` it is a dict, by that label's values."""
    metadata = {"kind": "gauge", "help": help_text, "label": label}
    return field(default_factory=dict if label else int, metadata=metadata)


def histogram(help_text: str, *, label: str) -> Any:
    """Declare latencies, as one LatencyHistogram for each value of ``label``."""
    metadata = {"kind": "histogram", "help": help_text, "label": label}
    return field(default_factory=lambda: defaultdict(LatencyHistogram), metadata=metadata)


class MetricReading(NamedTuple):
    """The value of one metric at one moment, with what its field declares."""

    name: str
    kind: Kind
    help: str
    label: str
    """The name of the label; empty for a metric without one."""
    values: Mapping[str, int | LatencyHistogram]
    """By the value of the label; under the empty string for a metric without one."""


def read(prefix: str, metrics: Any) -> Iterator[MetricReading]:
    """Read every metric of a class of metrics. ``prefix`` begins their names."""
    for each in fields(metrics):
        value, label = getattr(metrics, each.name), each.metadata["label"]
        values = dict(value) if label else {"": value}
        yield MetricReading(
            f"{prefix}_{each.name}", each.metadata["kind"], each.metadata["help"], label, values
        )


class LatencyHistogram:
    """How long things took: their number, total and maximum, and how many fell into each bucket."""

    BOUNDS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
    """The upper bounds of the buckets, inclusive; the last bucket has none."""

    __slots__ = ("buckets", "count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self.buckets = [0] * (len(self.BOUNDS_MS) + 1)

    def observe(self, elapsed_ms: float) -> None:
        self.count += 1
        self.total_ms += elapsed_ms
        self.max_ms = max(self.max_ms, elapsed_ms)
        self.buckets[bisect_left(self.BOUNDS_MS, elapsed_ms)] += 1


@dataclass(slots=True)
class BrokerMetrics:
    """What the broker counts outside its groups. Written on the event loop's thread only."""

    connections_open: int = gauge("Connections that are open.")
    connections_total: int = counter("Connections that clients opened.")
    connections_refused: int = counter("Connections that were refused, as there were too many.")
    handshakes_failed: int = counter("TLS handshakes that failed or took too long.")
    logins: int = counter("Logins by SASL, repeated ones included.")
    logins_failed: int = counter("Logins by SASL that were refused.")
    unauthenticated_requests: int = counter("Requests that closed a connection for want of a login.")
    malformed_requests: int = counter("Requests that could not be decoded, or whose API is unknown.")
    throttled_requests: int = counter("Requests after which a client had to pause, as it was over a quota.")
    bytes_in: int = counter("Bytes received in requests.")
    bytes_out: int = counter("Bytes sent in answers.")
    records_in: int = counter("Records appended by producers.")
    parked_fetches: int = gauge("Fetches that wait for data.")
    syncs: int = counter("Syncs of logs to the disk.")
    failed_syncs: int = counter("Syncs that the disk failed.")
    request_ms: defaultdict[str, LatencyHistogram] = histogram(
        "Milliseconds from a request's arrival to its answer.", label="api"
    )
