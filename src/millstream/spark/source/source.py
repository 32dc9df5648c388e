"""The format ``millstream``: what Spark calls to plan, read and write batches and streams.

Spark pickles these objects into processes of its own, so they hold options and nothing else. They connect
when Spark asks for a plan, and close again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.errors import ConfigError, MillstreamError
from millstream.spark.reading import schema
from millstream.spark.runtime.shipping import archive_name
from millstream.spark.source.bounds import batch_ranges, is_fixed
from millstream.spark.source.client import SourceClient
from millstream.spark.source.options import (
    NAMES,
    SourceOptions,
    check_options,
    includes_headers,
    read_options,
)
from millstream.spark.source.stream import StreamReader
from millstream.spark.source.tables import options_of, table_options, table_schema
from millstream.spark.source.tasks import RangeReader, warn_of_ignored
from millstream.spark.writer.modes import accept_default_mode
from millstream.spark.writer.writer import batch_writer, stream_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def register(spark: SparkSession) -> None:
    """Register ``format("millstream")`` with a session, classic or Connect. Repeating it is harmless."""
    spark.dataSource.register(MillstreamSource)
    accept_default_mode(spark)


@contextmanager
def _errors_in_a_sentence() -> Iterator[None]:
    """Let PySpark report our errors without a traceback: what is wrong then stands in the first line.

    PySpark's workers read this variable when an exception reaches them. Only they have ``worker_util``: the
    environment of a user's own process stays as it is.
    """
    try:
        yield
    except MillstreamError:
        if "pyspark.worker_util" in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class BatchReader(DataSourceReader):
    """Reads the ranges that the options describe; tasks look up again what is not given as an offset."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._reader = RangeReader(options, columns)

    @_errors_in_a_sentence()
    def partitions(self) -> list[InputPartition]:
        options = self._options
        warn_of_ignored(options)
        with closing(SourceClient(options)) as client:
            now = client.offsets(*client.require())
            ranges, losses = batch_ranges(options, now, client)
        self._reader.report(losses)
        return self._reader.tasks(ranges, late=not is_fixed(options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class MillstreamSource(DataSource):
    """``format("millstream")`` of ``read``, ``readStream``, ``write`` and ``writeStream``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = dict(options)

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (archive_name(), self._given)

    @classmethod
    def name(cls) -> str:
        return "millstream"

    @_errors_in_a_sentence()
    def schema(self) -> str | StructType:
        """The columns. Spark asks for them at ``load()``: the first moment to refuse options."""
        table = table_options(self._given)
        given = self._given if table is None else table
        check_options(given)
        headers = includes_headers(given)
        return schema.ddl(headers=headers) if table is None else table_schema(table, headers=headers)

    @_errors_in_a_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options({**options_of(schema), **self._given}, streaming=False)
        return BatchReader(options, _columns(schema, options))

    @_errors_in_a_sentence()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options({**options_of(schema), **self._given}, streaming=True)
        return StreamReader(options, _columns(schema, options))

    @_errors_in_a_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(self._given, schema, overwrite=overwrite, of_reads=NAMES)

    @_errors_in_a_sentence()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return stream_writer(self._given, schema, of_reads=NAMES)


def _columns(wanted: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns of the user's schema, which may be fewer than all, but not of other types."""
    chosen = schema.choose(wanted.fieldNames(), headers=options.include_headers)
    types: Any = to_arrow_schema(wanted, timezone="UTC")
    for name in chosen:
        if types.field(name).type != schema.arrow_types()[name]:
            raise ConfigError(
                f"the column {name} is {schema.DDL[name]}, not {wanted[name].dataType.simpleString()}: "
                "read it as that, and cast it"
            )
    return chosen


def restore(archive: str, options: dict[str, str]) -> Any:
    """Unpickle a source, also where Spark has the shipped ``archive`` but does not import from it.

    The process that plans streams looks for shipped files in a directory ``streaming_job`` beside its own
    (Spark 4.3). This function is pickled by value, as it runs before millstream can be imported, so it uses
    nothing of this module.
    """
    import importlib.util
    import os
    import sys

    from pyspark import SparkFiles

    if importlib.util.find_spec("millstream") is None:
        above = os.path.dirname(SparkFiles.getRootDirectory())
        for directory, _, files in os.walk(above):
            if archive in files:
                sys.path.append(os.path.join(directory, archive))
                break
    from millstream.spark.source.source import MillstreamSource

    return MillstreamSource(options)


restore.__module__ = "__main__"  # cloudpickle then pickles the function by value
