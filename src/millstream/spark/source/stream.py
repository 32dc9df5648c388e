"""The streaming reader: which offsets the next micro-batch covers, and what was lost since the last one.

Spark keeps one such object for each query, in a process of its own on the driver. It asks ``latestOffset``
for the end of the next batch, writes that to the checkpoint, and then asks ``partitions`` for the tasks;
after a crash it asks for the tasks of the same batch again. So ``latestOffset`` decides and ``partitions``
only carries out: everything that a batch depends on is in the checkpoint with its offsets.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.spark.planning import losses, micro_batches
from millstream.spark.planning.offsets import ClusterOffsets, Offsets, StreamOffset
from millstream.spark.planning.ranges import ranges_between
from millstream.spark.source import bounds
from millstream.spark.source.client import SourceClient
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.tasks import RangeReader, warn_of_ignored

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.spark")

_KEEP_GONE_SECONDS: Final = 600.0
"""With ``failOnDataLoss=false``, the offsets of a topic that is gone stay in the checkpoint for this long."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. With ``commitOffsets`` its progress is committed for ``kafka.group.id``."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._reader = RangeReader(options, columns)
        self._client: SourceClient | None = None
        self._initial: StreamOffset | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._planned_at = -math.inf
        """When the last batch was planned. The first one does not wait for ``minOffsetsPerTrigger``."""
        self._gone: dict[str, float] = {}
        """Topics that are gone, and since when."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @property
    def client(self) -> SourceClient:
        if self._client is None:
            warn_of_ignored(self._options)
            self._client = SourceClient(self._options)
        return self._client

    # -- what Spark calls

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts. Spark may ask more than once, and gets the same answer."""
        if self._initial is None:
            options = self._options
            ids, partitions = self.client.require()
            start, lost = bounds.starts(options, self.client.offsets(ids, partitions), self.client)
            self._reader.report(lost)
            moving = bool(start) and bounds.is_moving(options.starting)
            self._initial = StreamOffset(start, ids, unstarted=moving)
            log.info("the stream starts at %s", ", ".join(f"{each}@{n}" for each, n in sorted(start.items())))
        return self._initial.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read nothing beyond the ends of the logs as they are now."""
        self._target = self.client.latest(self.client.topics()[1])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch."""
        known = StreamOffset.from_dict(start)
        if known.unstarted:
            # "latest" resolves to another offset each time: a first batch without rows writes it down.
            return StreamOffset(known.offsets, known.topic_ids).to_dict()
        self._mirror(known)
        now = self.client.retry(lambda: self._ask(known), lambda found: self._is_doubtful(known, found))
        self._reader.report(losses.losses_of_topics(known, now))
        self._latest = now.latest
        settled = micro_batches.settle(known, now, self._recently_gone(known, now))
        self._reader.report(losses.losses_of_new_partitions(known, settled))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = micro_batches.advance(known, settled, now.latest, most=most, target=self._target)
        if settled.offsets == dict(known.offsets) and self._waits(known, end, limit):
            return start
        self._planned_at = time.monotonic()
        return start if end.offsets == known.offsets else end.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return StreamOffset(self._latest).to_dict() if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch: this one, or, after a crash, one that was planned before it."""
        known, planned = StreamOffset.from_dict(start), StreamOffset.from_dict(end)
        if known.unstarted:
            return []
        ranges = ranges_between(known.offsets, planned.offsets)
        if not ranges:
            return []
        wanted = [part.topic_partition for part in ranges]

        def ask() -> ClusterOffsets:
            ids, there = self.client.topics()
            earliest = self.client.earliest([each for each in wanted if each in set(there)])
            return ClusterOffsets(ids, earliest, earliest)

        now = self.client.retry(ask, lambda found: not found.partitions.issuperset(wanted))
        there, gone = losses.existing(ranges, planned, now)
        lost = losses.losses_of_ranges(there, now.earliest)
        self._reader.report([*gone, *lost])
        return self._reader.tasks(losses.without(there, lost))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends at ``end`` is durable."""
        self._mirror(StreamOffset.from_dict(end))

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- parts of the above

    def _ask(self, known: StreamOffset) -> ClusterOffsets:
        ids, partitions = self.client.topics()
        replaced = losses.recreated(known, ids)
        new = {each for each in partitions if each not in known.offsets or each.topic in replaced}
        earliest = self.client.earliest(new)
        deleted_meanwhile = new.difference(earliest)
        latest = self.client.latest([each for each in partitions if each not in deleted_meanwhile])
        return ClusterOffsets(ids, earliest, latest)

    def _is_doubtful(self, known: StreamOffset, now: ClusterOffsets) -> bool:
        """Whether this is a loss, or a broker with outdated metadata. What is known to be gone is no news."""
        gone = losses.vanished(known, now.topic_ids, now.partitions).difference(self._gone)
        return bool(gone or losses.went_back(known, now.latest))

    def _recently_gone(self, known: StreamOffset, now: ClusterOffsets) -> set[str]:
        """Topics that have just gone: their offsets are kept, as they may come back the same."""
        moment = time.monotonic()
        gone = losses.vanished(known, now.topic_ids, now.partitions)
        self._gone = {topic: self._gone.get(topic, moment) for topic in gone}
        return {topic for topic, since in self._gone.items() if moment - since < _KEEP_GONE_SECONDS}

    def _waits(self, known: StreamOffset, end: StreamOffset, limit: ReadLimit) -> bool:
        """Whether there is less than ``minOffsetsPerTrigger``, and ``maxTriggerDelay`` has not passed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if micro_batches.available(known.offsets, end.offsets) >= least:
            return False
        return (time.monotonic() - self._planned_at) * 1000 < self._options.max_trigger_delay_ms

    def _mirror(self, reached: StreamOffset) -> None:
        """Commit for the group; in ``latestOffset`` too, as Spark calls ``commit`` with the next batch."""
        if self._options.commits_progress and reached != self._initial and not reached.unstarted:
            self.client.mirror(
                {each: n for each, n in reached.offsets.items() if each.topic not in self._gone}
            )
