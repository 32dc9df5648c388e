"""The format ``millstream``: Spark's door to the source, for batches and streams.

Spark makes these objects in processes of its own and sends them around as pickles, so they hold options and
nothing else. They connect when they are asked something, and close again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.errors import ConfigError
from millstream.spark.planning.limits import split
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading import schema
from millstream.spark.reading.memory import keep_freed
from millstream.spark.reading.reader import read_range
from millstream.spark.runtime import shipping
from millstream.spark.source import places
from millstream.spark.source.cluster import Cluster
from millstream.spark.source.options import SourceOptions, check_names, includes_headers, read_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger("millstream.spark")

NAME: Final = "millstream"


def register(spark: SparkSession) -> None:
    """Make ``format("millstream")`` known to a session, classic or Connect. Repeating it is harmless."""
    spark.dataSource.register(MillstreamSource)


class RangePartition(InputPartition):
    """One task: a range to read."""

    def __init__(self, part: OffsetRange) -> None:
        super().__init__(part)
        self.part = part


class RangeReader:
    """What a task does. Made on the driver, and sent to the workers."""

    def __init__(self, options: SourceOptions, chosen: Sequence[str]) -> None:
        self._options = options
        self._chosen = tuple(chosen)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark's stand-in where there is nothing to read
            return iter(())
        keep_freed()
        options = self._options
        return read_range(
            options.settings,
            partition.part,
            headers=options.include_headers,
            columns=self._chosen,
            fail_on_data_loss=options.fail_on_data_loss,
            stall_seconds=options.stall_ms / 1000,
        )


def tasks(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[RangePartition]:
    """One task for each range, or for each piece of a range."""
    pieces = split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [RangePartition(part) for part in pieces]


class BatchReader(DataSourceReader):
    """Reads the ranges that the options describe, as they are when the query is planned."""

    def __init__(self, options: SourceOptions, chosen: Sequence[str]) -> None:
        self._options = options
        self._reader = RangeReader(options, chosen)

    def partitions(self) -> list[RangePartition]:
        options = self._options
        for name in options.ignored:
            log.warning("%s has no effect in a batch", name)
        with Cluster(options) as cluster:
            seen = cluster.seen(*cluster.require(options.subscription))
            ranges, losses = places.batch_ranges(options, seen, cluster)
        if losses and options.fail_on_data_loss:
            raise places.lost(losses)
        for loss in losses:
            log.warning("lost, and left out: %s", loss)
        return tasks(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class MillstreamSource(DataSource):
    """``spark.read.format("millstream")`` and ``spark.readStream.format("millstream")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = dict(options)
        check_names(self._given)

    def __reduce__(self) -> tuple[Any, ...]:
        return shipping.restore, (shipping.archive_name(), self._given)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return schema.ddl(headers=includes_headers(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self._given, streaming=False)
        return BatchReader(options, _chosen(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from millstream.spark.source.stream import StreamReader

        options = read_options(self._given, streaming=True)
        return StreamReader(options, _chosen(schema, options))


def _chosen(wanted: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns that the user's schema asks for, which may be fewer, but not of other types."""
    chosen = schema.choose(wanted.fieldNames(), headers=options.include_headers)
    asked: Any = to_arrow_schema(wanted, timezone="UTC")
    for name in chosen:
        ours = schema.arrow_types()[name]
        if asked.field(name).type != ours:
            raise ConfigError(
                f"the column {name} is {schema.ddl_type(name)}, not {wanted[name].dataType.simpleString()}: "
                "read it as that, and cast it"
            )
    return chosen
