"""The tasks of a read: one range of offsets each, read in a Python worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from millstream.spark.planning.losses import DataLoss, lost_error
from millstream.spark.planning.ranges import OffsetRange, split
from millstream.spark.reading.memory import keep_freed
from millstream.spark.reading.reader import read_range
from millstream.spark.source.late_binding import LateRange, find_ranges, late_ranges
from millstream.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.spark")


class RangeReader:
    """Plans tasks on the driver and reads them in the workers, to which it is pickled."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._reported: set[str] = set()

    def tasks(self, ranges: Sequence[OffsetRange], *, late: bool = False) -> list[InputPartition]:
        """One task for each range, or for each piece of a large one. ``late``: they look up bounds again."""
        options = self._options
        pieces = split(
            ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
        )
        return [InputPartition(part) for part in (late_ranges(pieces) if late else pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        task = getattr(partition, "value", None)
        keep_freed()
        if isinstance(task, LateRange):
            return self._read_late(task)
        if isinstance(task, OffsetRange):
            return self._read_range(task)
        return iter(())  # Spark's placeholder if there is nothing to read

    def _read_late(self, task: LateRange) -> Iterator[pa.RecordBatch]:
        for ranges, losses in find_ranges(task, self._options):
            self.report(losses)
            for part in ranges:
                yield from self._read_range(part)

    def _read_range(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        options = self._options
        return read_range(
            options.settings,
            part,
            headers=options.include_headers,
            columns=self._columns,
            fail_on_data_loss=options.fail_on_data_loss,
            stall_seconds=options.stall_ms / 1000,
        )

    def report(self, losses: Sequence[DataLoss]) -> None:
        """Raise DataLostError, or log the losses with ``failOnDataLoss=false``."""
        if losses and self._options.fail_on_data_loss:
            raise lost_error(losses)
        for text in map(str, losses):
            if text not in self._reported:  # a topic that stays away is reported once
                log.warning("lost and skipped: %s", text)
            self._reported.add(text)


def warn_of_ignored(options: SourceOptions) -> None:
    """Name the options that have no effect, in one warning."""
    if options.ignored:
        kind = "stream" if options.streaming else "batch"
        log.warning("these options have no effect in this %s: %s", kind, ", ".join(options.ignored))
