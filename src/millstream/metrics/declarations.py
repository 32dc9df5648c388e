"""How a metric is declared, and what is read of it: its name, kind, help text, labels and values.

To add a metric, add a field to a class of metrics and count on it (``metrics.bytes_in += size``). ``read``
reads all of them. Counting takes no lock: each class is written by one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

OTHER: Final = "(other)"
"""The label of everything that came after a counter had all the labels that it may have."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What is declared of a metric."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()


class MetricReading(NamedTuple):
    """The values of one metric at one moment, by the values of its labels."""

    metric: Metric
    values: Mapping[Labels, float | LatencyHistogram]


class LatencyHistogram:
    """How long things took: their number and total, and how many fell into each bucket."""

    BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
    """The upper bounds of the buckets, inclusive; the last bucket has none."""

    __slots__ = ("buckets", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.buckets = [0] * (len(self.BOUNDS_S) + 1)

    def observe(self, elapsed_s: float) -> None:
        self.count += 1
        self.total_s += elapsed_s
        self.buckets[bisect_left(self.BOUNDS_S, elapsed_s)] += 1

    def copy(self) -> LatencyHistogram:
        """What it holds now: it may be counted on while the copy is written."""
        made = LatencyHistogram()
        made.count, made.total_s, made.buckets = self.count, self.total_s, list(self.buckets)
        return made


class BoundedCounts(dict[str, int]):
    """Counts by a label that clients choose: the first ``LIMIT`` have their own, all others share one."""

    LIMIT: Final = 1000
    LONGEST: Final = 249
    """A longer label is cut, which no topic has: a client id may have 32,767 characters."""

    def add(self, label: str, amount: int = 1) -> None:
        """Count under a label."""
        label = label[: self.LONGEST]
        if label not in self and len(self) >= self.LIMIT:
            label = OTHER
        self[label] = self.get(label, 0) + amount


def counter(help_text: str) -> Any:
    """Declare a number that only rises, from zero at every start."""
    return field(default=0, metadata={"kind": "counter", "help": help_text, "labels": ()})


def counts(help_text: str, *labels: str) -> Any:
    """Declare counters by labels that have few values."""
    metadata = {"kind": "counter", "help": help_text, "labels": labels}
    return field(default_factory=lambda: defaultdict(int), metadata=metadata)


def bounded_counts(help_text: str, label: str) -> Any:
    """Declare counters by a label whose values clients choose."""
    metadata = {"kind": "counter", "help": help_text, "labels": (label,)}
    return field(default_factory=BoundedCounts, metadata=metadata)


def gauge(help_text: str, *labels: str) -> Any:
    """Declare a number that rises and falls. With ``labels`` it is a dict, by their values."""
    metadata = {"kind": "gauge", "help": help_text, "labels": labels}
    return field(default_factory=dict if labels else int, metadata=metadata)


def histogram(help_text: str, *labels: str) -> Any:
    """Declare latencies in seconds: one LatencyHistogram, or with ``labels`` one for each of their values."""
    metadata = {"kind": "histogram", "help": help_text, "labels": labels}
    if not labels:
        return field(default_factory=LatencyHistogram, metadata=metadata)
    return field(default_factory=lambda: defaultdict(LatencyHistogram), metadata=metadata)


def declared(prefix: str, cls: Any) -> Iterator[tuple[str, Metric]]:
    """Return the metrics of a class, each with the name of its field. ``prefix`` begins their names."""
    for each in fields(cls):
        about = each.metadata
        is_bare = about["kind"] != "counter" or each.name.endswith("_total")
        name = f"millstream_{prefix}_{each.name}{'' if is_bare else '_total'}"
        yield each.name, Metric(name, about["kind"], about["help"], about["labels"])


def read(prefix: str, metrics: Any) -> Iterator[MetricReading]:
    """Read every metric of an object whose class declares them."""
    for name, metric in declared(prefix, type(metrics)):
        value = getattr(metrics, name)
        values = dict(value) if metric.labels else {(): value}
        yield MetricReading(
            metric,
            {
                key if isinstance(key, tuple) else (key,): (
                    each.copy() if isinstance(each, LatencyHistogram) else each
                )
                for key, each in values.items()
            },
        )
