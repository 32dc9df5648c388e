"""The stream: which offsets the next micro-batch covers, and what happened to topics between two of them.

Spark keeps one of these objects, in a process of its own on the driver, for as long as the query runs. It
asks ``latestOffset`` for the end of the next batch, writes that into the checkpoint, and then asks
``partitions`` for the tasks; after a crash it asks for the tasks of the same batch again. So
``latestOffset`` decides, and ``partitions`` only carries out: whatever a batch depends on is written down
with its offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.spark.planning import limits as planning
from millstream.spark.planning.limits import Loss, Seen
from millstream.spark.planning.offsets import Offsets, StreamOffset
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.source import places
from millstream.spark.source.cluster import Cluster
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.source import RangePartition, RangeReader, tasks

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. With ``kafka.group.id``, its progress is committed for that group."""

    def __init__(self, options: SourceOptions, chosen: Sequence[str]) -> None:
        self._options = options
        self._reader = RangeReader(options, chosen)
        self._cluster: Cluster | None = None
        self._initial: StreamOffset | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._planned_at = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    # -- what Spark asks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts. Spark may ask more than once, and gets the same answer."""
        if self._initial is None:
            options = self._options
            ids, partitions = self.cluster.require(options.subscription)
            seen = self.cluster.seen(ids, partitions)
            start, losses = places.starts(options, seen, self.cluster)
            self._report(losses)
            self._initial = StreamOffset(start, ids, unstarted=places.is_moving(options.starting))
            log.info("the stream starts at %s", places.as_text(start))
        return self._initial.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """From now on, nothing is read that is not there yet."""
        self._target = self.cluster.latest(self.cluster.topics(self._options.subscription)[1])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch."""
        known = StreamOffset.from_dict(start)
        if known.unstarted:
            # "latest" is another place each time it is asked for: a first batch without rows writes it down.
            return StreamOffset(known.offsets, known.topic_ids).to_dict()
        self._mirror(known)
        seen = self.cluster.patiently(lambda: self._look(known), lambda seen: _is_doubtful(known, seen))
        self._report(planning.losses_of_topics(known, seen))
        self._latest = seen.latest
        settled = planning.settle(known, seen)
        self._report(_losses_of_new(known, settled))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = planning.advance(known, settled, seen.latest, most=most, target=self._target)
        if settled.offsets == dict(known.offsets) and self._waits(known, end, limit):
            return start
        self._planned_at = time.monotonic()
        return start if end.offsets == known.offsets else end.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return StreamOffset(self._latest).to_dict() if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of one batch: of this one, or, after a crash, of one that was planned before it."""
        known, planned = StreamOffset.from_dict(start), StreamOffset.from_dict(end)
        if known.unstarted:
            return []
        ranges = planning.ranges_between(known.offsets, planned.offsets)
        if not ranges:
            return []
        earliest = self.cluster.earliest([part.topic_partition for part in ranges])
        losses = planning.losses_of_ranges(ranges, earliest)
        self._report(losses)
        return tasks(self._options, planning.without(ranges, losses))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends here is durable."""
        self._mirror(StreamOffset.from_dict(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # -- parts of the above

    def _look(self, known: StreamOffset) -> Seen:
        ids, partitions = self.cluster.topics(self._options.subscription)
        anew = planning.recreated(known, ids)
        new = [each for each in partitions if each not in known.offsets or each.topic in anew]
        return Seen(ids, self.cluster.earliest(new), self.cluster.latest(partitions))

    def _waits(self, known: StreamOffset, end: StreamOffset, limit: ReadLimit) -> bool:
        """Whether there is too little to begin a batch with, and not for too long yet."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if planning.available(known.offsets, end.offsets) >= least:
            return False
        return (time.monotonic() - self._planned_at) * 1000 < self._options.max_trigger_delay_ms

    def _mirror(self, reached: StreamOffset) -> None:
        """Spark says that a batch is durable with the next one only; but so does asking what comes next."""
        if self._options.group_id is not None and reached != self._initial and not reached.unstarted:
            self.cluster.mirror(reached.offsets)

    def _report(self, losses: Sequence[Loss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise places.lost(losses)
        for loss in losses:
            log.warning("lost, and left out: %s", loss)


def _is_doubtful(known: StreamOffset, seen: Seen) -> bool:
    """Whether this looks like a loss, or like a broker that does not know better yet."""
    return bool(
        planning.vanished(known, seen.topic_ids, seen.partitions) or planning.went_back(known, seen.latest)
    )


def _losses_of_new(known: StreamOffset, settled: StreamOffset) -> list[Loss]:
    """A partition that is new to the stream has lost what lies before its beginning."""
    return [
        Loss(OffsetRange(each.topic, each.partition, 0, offset), f"the log starts at {offset}")
        for each, offset in sorted(settled.offsets.items())
        if each not in known.offsets and offset > 0
    ]
