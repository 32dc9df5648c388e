"""Reads one range of one partition: what every Spark task does, and every thread of a scan.

The result depends on the range alone: a task that runs twice reads the same rows twice, or fails. Offsets
without a record (compaction, transaction markers) are skipped; offsets that the log no longer has are data
loss, which is never skipped silently.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.consumer import Consumer, Records
from millstream.consumer.compiled_decoder import background
from millstream.consumer.decoding.columns import Columns
from millstream.errors import (
    DataLostError,
    InconsistentTopicIdError,
    MillstreamTimeoutError,
    OffsetOutOfRangeError,
)
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading import pool, schema
from millstream.spark.reading.batches import BatchBuilder

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.spark")

_POLL_SECONDS: Final = 0.05
"""A poll that returns nothing may have skipped markers up to the end of the range: check this often."""
_CHECK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 10.0
"""A request may have to wait for the fetch before it, which waits for records."""
_PATIENCE_SECONDS: Final = 5.0
"""What looks lost must look lost for this long: a new leader may be wrong about ends for a moment."""

_SMALL: Final = 16_384
"""A range of at most this number of offsets is read with small fetches: data beyond its end is wasted."""
_WORTH_COMPILING: Final = 4_096
"""From this number of offsets on, the compiled decoder is worth waiting for."""

_SMALL_FETCHES: Final = {"max.partition.fetch.bytes": 1 << 20, "queued.max.bytes": 4 << 20}
_LARGE_FETCHES: Final = {
    "max.partition.fetch.bytes": 16 << 20,
    "fetch.max.bytes": 16 << 20,
    "queued.max.bytes": 64 << 20,
    "receive.buffer.bytes": 4 << 20,
}
_SHORT_WAITS: Final = {"fetch.max.wait.ms": 10}
"""A range is complete: only a fetch beyond its end waits, and the next task's fetch would wait for that."""
_REMEDY: Final = (
    "Start again from what is left (startingOffsets, or a reset of the group), or accept the loss with "
    "failOnDataLoss=false"
)
_ALWAYS: Final = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
}


def read_range(
    servers_settings: Mapping[str, object],
    part: OffsetRange,
    *,
    headers: bool = False,
    columns: Sequence[str] | None = None,
    batch_rows: int = 65_536,
    fail_on_data_loss: bool = True,
    stall_seconds: float = 120.0,
) -> Iterator[pa.RecordBatch]:
    """Read exactly the records of ``part``, in batches of at most ``batch_rows``.

    ``servers_settings`` are a consumer's, under Kafka's names; those of a group are ignored. ``columns`` are
    names from ``schema.COLUMNS``, by default all. Raises DataLostError with the offsets that the log no
    longer has; without ``fail_on_data_loss`` they are logged and skipped. Raises MillstreamTimeoutError if
    nothing arrives for ``stall_seconds``.
    """
    chosen = schema.choose(columns, headers=headers)
    if part.start >= part.end:
        return
    builder = BatchBuilder(part.topic, part.partition, chosen)
    rules = ReadRules(batch_rows, fail_on_data_loss, stall_seconds, _REMEDY)
    with pool.borrowed(consumer_settings(servers_settings, part)) as consumer:
        for found in read_columns(consumer, part, rules):
            yield builder.build(found)


def consumer_settings(given: Mapping[str, object], part: OffsetRange) -> dict[str, object]:
    """The settings of the consumer that reads ``part``: large fetches for a large range."""
    return range_settings(given, _LARGE_FETCHES if part.offsets > _SMALL else _SMALL_FETCHES)


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How ranges are read."""

    batch_rows: int
    """The most records at a time."""
    fail_on_data_loss: bool
    """Raise DataLostError, or log the loss and continue after it."""
    stall_seconds: float
    """Raise MillstreamTimeoutError if nothing arrives for this long."""
    remedy: str
    """What to do about lost data: the end of the error's sentence."""
    is_fresh: bool = False
    """Whether the consumer's metadata are new: a topic of many partitions is slow to ask for."""


def read_columns(consumer: Consumer, part: OffsetRange, rules: ReadRules) -> Iterator[Sequence[Columns]]:
    """Read exactly the records of ``part``, a poll at a time.

    ``consumer`` has settings by ``range_settings``, and is assigned the partition.
    """
    return _RangeScan(consumer, part, rules).run()


def range_settings(given: Mapping[str, object], fetches: Mapping[str, object]) -> dict[str, object]:
    """The settings of a consumer that reads ranges; ``given`` counts before ``fetches``."""
    wanted = {name.replace("_", "."): value for name, value in given.items()}
    for name in ("group.id", "group.instance.id"):
        wanted.pop(name, None)
    return {**fetches, **_SHORT_WAITS, **wanted, **_ALWAYS}


class _RangeScan:
    """Moves a consumer through a range."""

    def __init__(self, consumer: Consumer, part: OffsetRange, rules: ReadRules) -> None:
        self._consumer = consumer
        self._part = part
        self._where = part.topic_partition
        self._rules = rules
        self._position = part.start
        self._moved_at = self._checked_at = time.monotonic()
        self._lost_since: float | None = None

    def run(self) -> Iterator[Sequence[Columns]]:
        """The records of the range, a poll at a time."""
        if not self._rules.is_fresh:
            self._consumer.partitions_for(self._part.topic)  # refreshes the metadata of an idle consumer
        self._consumer.assign([self._where])
        self._consumer.seek(self._where, self._part.start)
        self._consumer.fetch_until(self._where, self._part.end)
        if self._part.offsets >= _WORTH_COMPILING:
            background.wait()  # while the first fetch is in flight
        while self._position < self._part.end:
            found = self._poll()
            if found:
                self._moved_to(int(found[-1].offsets[-1]) + 1)
                wanted = self._within(found)
                if wanted:
                    yield wanted
            else:
                self._check_progress()

    def _poll(self) -> Sequence[Columns]:
        most = min(self._rules.batch_rows, self._part.end - self._position)
        try:
            records: Records = self._consumer.poll(timeout=_POLL_SECONDS, max_records=most)
        except OffsetOutOfRangeError:
            self._skip_lost()
            return ()
        except InconsistentTopicIdError:
            self._lose(self._part.end, "the topic was deleted and recreated")
            return ()
        return records.columns

    def _within(self, found: Sequence[Columns]) -> list[Columns]:
        """The records before the end of the range: where offsets are missing, a poll may go beyond it."""
        if self._position <= self._part.end:
            return list(found)
        cut = [part.rows(0, bisect_left(part.offsets, self._part.end)) for part in found]
        return [part for part in cut if len(part)]

    def _moved_to(self, position: int) -> None:
        self._position = position
        self._moved_at = time.monotonic()
        self._lost_since = None

    # -- when nothing arrives

    def _check_progress(self) -> None:
        """Nothing arrived: nothing is left, something is lost, or for a passing reason."""
        try:
            position = self._consumer.position(self._where, timeout=_CHECK_SECONDS)
        except MillstreamTimeoutError:
            position = self._position
        except (OffsetOutOfRangeError, InconsistentTopicIdError):
            return  # the next poll raises it too
        if position > self._position:
            self._moved_to(position)
            return
        now = time.monotonic()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        has_stalled = now - self._moved_at > self._rules.stall_seconds
        self._check_loss(now, patience_seconds=0.0 if has_stalled else _PATIENCE_SECONDS)
        if has_stalled and self._position < self._part.end:
            rest = OffsetRange(self._part.topic, self._part.partition, self._position, self._part.end)
            seconds = self._rules.stall_seconds
            raise MillstreamTimeoutError(
                f"nothing of {rest} came for {seconds:.0f} seconds: {self._consumer.diagnose()}"
            )

    def _check_loss(self, now: float, patience_seconds: float) -> None:
        reason = self._missing()
        if reason is None:
            self._lost_since = None
            return
        if self._lost_since is None:
            self._lost_since = now
        if now - self._lost_since >= patience_seconds:
            self._lose(self._part.end, reason)

    def _missing(self) -> str | None:
        """What seems wrong with the partition; None if nothing does."""
        seconds = min(_ANSWER_SECONDS, self._rules.stall_seconds)
        try:
            if self._where not in self._consumer.partitions_for(self._part.topic, timeout=seconds):
                return "the topic or partition no longer exists"
            end = self._consumer.end_offsets([self._where], timeout=seconds)[self._where]
        except MillstreamTimeoutError:
            return None
        # Records before the end may be slow to arrive, but they exist.
        return f"the log ends at {end}" if end <= self._position else None

    def _skip_lost(self) -> None:
        """The position is outside of the log, which starts later or ends earlier."""
        try:
            start = self._consumer.beginning_offsets([self._where], _ANSWER_SECONDS)[self._where]
            end = self._consumer.end_offsets([self._where], _ANSWER_SECONDS)[self._where]
        except MillstreamTimeoutError:  # the topic may have gone since: the next check sees that
            return
        if start > self._position:
            self._lose(min(start, self._part.end), f"the log starts at {start}")
        else:
            self._lose(self._part.end, f"the log ends at {end}")

    def _lose(self, up_to: int, reason: str) -> None:
        """The offsets up to ``up_to`` are gone: raise, or log that and continue after them."""
        gone = OffsetRange(self._part.topic, self._part.partition, self._position, up_to)
        if self._rules.fail_on_data_loss:
            raise DataLostError(
                f"{gone} cannot be read: {reason}. {self._rules.remedy}",
                [(gone.topic, gone.partition, gone.start, gone.end)],
            )
        log.warning("%s is lost and skipped: %s", gone, reason)
        self._moved_to(up_to)
        if up_to < self._part.end:
            self._consumer.seek(self._where, up_to)
