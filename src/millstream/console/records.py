"""Records of a topic for a page: which offsets to read, and reading them without a group.

Reading is bounded in records, bytes and time. Each record is cut to a preview at once, so large values cost
network traffic, not memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from millstream.config import ClientConfig
from millstream.console.cluster_snapshot import SampledTopic
from millstream.console.views.previews import Preview, preview, visible
from millstream.consumer import Consumer, Record
from millstream.model import TopicPartition
from millstream.terminal.output import time_text

MOST_RECORDS: Final = 200
USUAL_RECORDS: Final = 20

_MOST_READ: Final = 2_000
"""Of all partitions together, for the newest records of a topic."""
_MOST_BYTES: Final = 32 << 20
_READ_SECONDS: Final = 4.0
_PREVIEW_BYTES: Final = 2 << 10
_WHOLE_BYTES: Final = 64 << 10
"""How much is shown of a single record."""
_MOST_HEADERS: Final = 50


class Range(NamedTuple):
    """Offsets of one partition, from ``start`` up to ``stop``."""

    start: int
    stop: int


Ranges = dict[TopicPartition, Range]


@dataclass(frozen=True, slots=True)
class RecordPreview:
    """One record, cut to what a page shows."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Preview
    value: Preview
    headers: tuple[tuple[str, Preview], ...]
    headers_left_out: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "time": time_text(self.timestamp_ms),
            "key": self.key.as_dict(),
            "value": self.value.as_dict(),
            "headers": [{"name": name, **value.as_dict()} for name, value in self.headers],
            "headers_left_out": self.headers_left_out,
        }


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Records, the newest first. ``is_complete`` is false if a bound ended the reading."""

    records: tuple[RecordPreview, ...]
    is_complete: bool = True


def newest(topic: SampledTopic, count: int, partition: int | None = None) -> Ranges:
    """The ranges of the newest ``count`` records: ``count`` of each partition, as one may hold them all.

    With many partitions fewer are read from each, so the result is approximate.
    """
    chosen = [one for one in topic.partitions if partition in (None, one.partition)]
    each = max(1, min(count, _MOST_READ // max(1, len(chosen))))
    return {
        TopicPartition(topic.name, one.partition): Range(max(one.start, one.end - each), one.end)
        for one in chosen
        if one.start is not None and one.end is not None and one.end > one.start
    }


def from_offset(topic: SampledTopic, partition: int, offset: int, count: int) -> Ranges:
    """At most ``count`` offsets of one partition from ``offset`` on."""
    one = next(each for each in topic.partitions if each.partition == partition)
    if one.start is None or one.end is None:
        return {}
    start = max(one.start, offset)
    stop = min(one.end, start + count)
    return {TopicPartition(topic.name, partition): Range(start, stop)} if start < stop else {}


def read(settings: Mapping[str, object], ranges: Ranges, count: int) -> RecordsRead:
    """Read these ranges, and return their newest ``count`` records."""
    if not ranges:
        return RecordsRead(())
    limit = _WHOLE_BYTES if count == 1 else _PREVIEW_BYTES
    with Consumer(_consumer_settings(settings)) as consumer:
        consumer.assign(list(ranges))
        for partition, bounds in ranges.items():
            consumer.seek(partition, bounds.start)
        records, is_complete = _read_all(consumer, ranges, limit)
    records.sort(key=lambda one: (one.timestamp_ms, one.offset, one.partition), reverse=True)
    return RecordsRead(tuple(records[:count]), is_complete)


def _consumer_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The client settings of the console, for a consumer without a group."""
    return {
        **{name: value for name, value in settings.items() if ClientConfig.knows(name)},
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": "false",
        "fetch.max.bytes": 4 << 20,
        "max.partition.fetch.bytes": 256 << 10,
        "queued.max.bytes": 8 << 20,
        "max.poll.records": 100,
    }


def _read_all(consumer: Consumer, ranges: Ranges, limit: int) -> tuple[list[RecordPreview], bool]:
    deadline_s = time.monotonic() + _READ_SECONDS
    bytes_left = _MOST_BYTES
    found: list[RecordPreview] = []
    waiting = set(ranges)
    while waiting:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or bytes_left <= 0:
            return found, False
        for record in consumer.poll(timeout=left_s):
            bytes_left -= len(record.key or b"") + len(record.value or b"")
            if record.offset < ranges[record.topic_partition].stop:
                found.append(_preview(record, limit))
        # Compare positions, not records: compaction and transaction markers leave gaps.
        done = {one for one in waiting if consumer.position(one, timeout=_READ_SECONDS) >= ranges[one].stop}
        if done:
            consumer.pause(*done)
            waiting -= done
    return found, True


def _preview(record: Record, limit: int) -> RecordPreview:
    """A record with at most ``limit`` bytes of its value, key and each header."""
    headers = record.headers[:_MOST_HEADERS]
    return RecordPreview(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=preview(record.key, limit),
        value=preview(record.value, limit),
        headers=tuple((visible(name[:limit]), preview(value, limit)) for name, value in headers),
        headers_left_out=len(record.headers) - len(headers),
    )
