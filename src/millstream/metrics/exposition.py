"""Prometheus' text format: readings in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from millstream.metrics.declarations import Labels, LatencyHistogram, Metric, MetricReading

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES: Final = 50_000
"""The most values of one metric that are written: beyond, a scrape would hurt more than it helps."""
LEFT_OUT: Final = Metric(
    "millstream_metrics_left_out",
    "gauge",
    f"Values that this answer does not have, as a metric had more than {MAX_SERIES}.",
)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def exposition(readings: Iterable[MetricReading]) -> bytes:
    """Return an answer to a scrape."""
    return "".join(_lines(readings)).encode("utf-8", "replace")


def _lines(readings: Iterable[MetricReading]) -> Iterator[str]:
    left_out = 0
    for reading in readings:
        yield _head(reading.metric)
        for number, (values, value) in enumerate(reading.values.items()):
            if number < MAX_SERIES:
                yield _sample(reading.metric, values, value)
            else:
                left_out += 1
    yield f"{_head(LEFT_OUT)}{LEFT_OUT.name} {left_out}\n"


def _head(metric: Metric) -> str:
    name, text = metric.name, metric.help.translate(_HELP_ESCAPES)
    return f"# HELP {name} {text}\n# TYPE {name} {metric.kind}\n"


def _sample(metric: Metric, values: Labels, value: float | LatencyHistogram) -> str:
    labels = ",".join(
        f'{label}="{text.translate(_ESCAPES)}"' for label, text in zip(metric.labels, values, strict=True)
    )
    if isinstance(value, LatencyHistogram):
        return "".join(_buckets(metric.name, labels, value))
    return f"{metric.name}{{{labels}}} {value}\n" if labels else f"{metric.name} {value}\n"


def _buckets(name: str, labels: str, histogram: LatencyHistogram) -> Iterator[str]:
    before = f"{labels}," if labels else ""
    bounds = (*map(repr, histogram.BOUNDS_S), "+Inf")
    for bound, count in zip(bounds, accumulate(histogram.buckets), strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    shown = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{shown} {histogram.total_s}\n{name}_count{shown} {histogram.count}\n"
