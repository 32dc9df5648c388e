"""One range of one partition as Arrow record batches: what every task does.

A pure function of its range: a task that runs twice reads the same rows twice, whatever happened meanwhile,
or fails. Offsets that hold no record (compaction, markers of transactions) are passed over; offsets that the
log no longer has are a loss, which is never passed over in silence.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from millstream.consumer import Consumer, Records
from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.decoder import kernels
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
"""A poll that hands out nothing may have passed over markers up to the end of the range: look that often."""
_LOOK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 10.0
"""A question may have to wait for the fetch before it, which waits for records."""
_PATIENCE_SECONDS: Final = 5.0
"""What looks lost must look lost for so long: metadata and ends are wrong for a moment after a new leader."""

_SMALL: Final = 16_384
"""A range of so few offsets is read with small fetches: what they bring beyond its end is for nothing."""
_COMPILED: Final = 4_096
"""From so many offsets on, the compiled decoder is worth waiting for."""

_SMALL_FETCHES: Final = {"max.partition.fetch.bytes": 1 << 20, "queued.max.bytes": 4 << 20}
_LARGE_FETCHES: Final = {
    "max.partition.fetch.bytes": 16 << 20,
    "fetch.max.bytes": 16 << 20,
    "queued.max.bytes": 64 << 20,
    "receive.buffer.bytes": 4 << 20,
}
_SHORT_WAITS: Final = {"fetch.max.wait.ms": 10}
"""All of a range is there: only a fetch behind its end waits, and the next task's would wait behind it."""
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

    ``servers_settings`` are a consumer's, under Kafka's names; those of a group are left out. ``columns`` are
    those wanted (``schema.COLUMNS``), all by default. Raises DataLostError with the offsets that the log no
    longer has; without ``fail_on_data_loss`` they are logged and left out. Raises
    MillstreamTimeoutError when nothing comes for ``stall_seconds``.
    """
    chosen = schema.choose(columns, headers=headers)
    if part.start >= part.end:
        return
    builder = BatchBuilder(part.topic, part.partition, chosen)
    with pool.borrowed(_settings(servers_settings, part)) as consumer:
        for found in _Reading(consumer, part, batch_rows, fail_on_data_loss, stall_seconds).run():
            yield builder.build(found)


def _settings(given: Mapping[str, object], part: OffsetRange) -> dict[str, object]:
    fetches = _LARGE_FETCHES if part.offsets > _SMALL else _SMALL_FETCHES
    wanted = {name.replace("_", "."): value for name, value in given.items()}
    for name in ("group.id", "group.instance.id"):
        wanted.pop(name, None)
    return {**fetches, **_SHORT_WAITS, **wanted, **_ALWAYS}


class _Reading:
    """A consumer on its way through a range."""

    def __init__(
        self, consumer: Consumer, part: OffsetRange, batch_rows: int, fail_on_loss: bool, stall_seconds: float
    ) -> None:
        self._consumer = consumer
        self._part = part
        self._where = part.topic_partition
        self._batch_rows = batch_rows
        self._fail_on_loss = fail_on_loss
        self._stall_seconds = stall_seconds
        self._position = part.start
        self._moved_at = self._looked_at = time.monotonic()
        self._lost_since: float | None = None

    def run(self) -> Iterator[Sequence[Columns]]:
        """The records of the range, some at a time."""
        self._consumer.partitions_for(self._part.topic)  # what an idle consumer knew may be out of date
        self._consumer.assign([self._where])
        self._consumer.seek(self._where, self._part.start)
        self._consumer.fetch_until(self._where, self._part.end)
        if self._part.offsets >= _COMPILED and kernels() is None:
            compiling.background.wait()  # while the first fetch is under way
        while self._position < self._part.end:
            found = self._poll()
            if found:
                self._moved_to(int(found[-1].offsets[-1]) + 1)
                wanted = self._within(found)
                if wanted:
                    yield wanted
            else:
                self._look()

    def _poll(self) -> Sequence[Columns]:
        most = min(self._batch_rows, self._part.end - self._position)
        try:
            records: Records = self._consumer.poll(timeout=_POLL_SECONDS, max_records=most)
        except OffsetOutOfRangeError:
            self._skip_lost()
            return ()
        except InconsistentTopicIdError:
            self._lose(self._part.end, "the topic was deleted and made anew")
            return ()
        return records.columns

    def _within(self, found: Sequence[Columns]) -> list[Columns]:
        """What lies before the end of the range: where offsets are missing, a poll may go beyond it."""
        if self._position <= self._part.end:
            return list(found)
        cut = [part.rows(0, bisect_left(part.offsets, self._part.end)) for part in found]
        return [part for part in cut if len(part)]

    def _moved_to(self, position: int) -> None:
        self._position = position
        self._moved_at = time.monotonic()
        self._lost_since = None

    # -- when nothing comes

    def _look(self) -> None:
        """Nothing came: because nothing is left, because something is lost, or for a passing reason."""
        try:
            position = self._consumer.position(self._where, timeout=_LOOK_SECONDS)
        except MillstreamTimeoutError:
            position = self._position
        except (OffsetOutOfRangeError, InconsistentTopicIdError):
            return  # the next poll says so too
        if position > self._position:
            self._moved_to(position)
            return
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        self._look_closely(now)
        if now - self._moved_at > self._stall_seconds:
            rest = OffsetRange(self._part.topic, self._part.partition, self._position, self._part.end)
            raise MillstreamTimeoutError(
                f"nothing came of {rest} for {self._stall_seconds:.0f} seconds: {self._consumer.diagnose()}"
            )

    def _look_closely(self, now: float) -> None:
        reason = self._missing()
        if reason is None:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = now
        elif now - self._lost_since >= _PATIENCE_SECONDS:
            self._lose(self._part.end, reason)

    def _missing(self) -> str | None:
        """What is wrong with the partition, as it looks at the moment; None if nothing is."""
        try:
            if self._where not in self._consumer.partitions_for(self._part.topic, timeout=_ANSWER_SECONDS):
                return "the topic or partition does not exist any more"
            end = self._consumer.end_offsets([self._where], timeout=_ANSWER_SECONDS)[self._where]
        except MillstreamTimeoutError:
            return None
        # What lies before its end may be slow to come, but it is there.
        return f"the log ends at {end}" if end <= self._position else None

    def _skip_lost(self) -> None:
        """The log does not have the position: it starts later, or ends earlier."""
        start = self._consumer.beginning_offsets([self._where])[self._where]
        if start > self._position:
            self._lose(min(start, self._part.end), f"the log starts at {start}")
        else:
            end = self._consumer.end_offsets([self._where])[self._where]
            self._lose(self._part.end, f"the log ends at {end}")

    def _lose(self, up_to: int, reason: str) -> None:
        """The offsets from the position on are gone: raise, or log that and go on behind them."""
        gone = OffsetRange(self._part.topic, self._part.partition, self._position, up_to)
        if self._fail_on_loss:
            raise DataLostError(
                f"{gone} cannot be read, as {reason}. Start again from what is left (startingOffsets, or a "
                "reset of the group), or accept the loss with failOnDataLoss=false",
                [(gone.topic, gone.partition, gone.start, gone.end)],
            )
        log.warning("%s is lost and left out, as %s", gone, reason)
        self._moved_to(up_to)
        if up_to < self._part.end:
            self._consumer.seek(self._where, up_to)
