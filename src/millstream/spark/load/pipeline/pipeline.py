"""Turns ranges of offsets into rows that a sink can commit, by Spark tasks.

Two routes give the same tables. The fused one (``fused``) does everything inside one Python task: raw
records, and parsing with checks that are simple comparisons. The other (``frames``) goes through a DataFrame,
for checks that only Spark can evaluate and for SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import columns, ddl, frames, fused, jobs, sql
from millstream.spark.load.pipeline.formats.avro import schema_text
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.pipeline.partitioning import Partitioning, remembered_for
from millstream.spark.load.pipeline.spark_schema import conformed
from millstream.spark.load.pipeline.work import Shaper
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import Tables, TaskWriter

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ReplayedRows:
    """Rejected records that were parsed and checked again."""

    good: list[int]
    """The indexes of those that are good now."""
    rows: pa.RecordBatch
    reasons: Mapping[int, str]
    """Why the others are rejected, by index."""


class Pipeline:
    """How a load turns pieces into rows. Holds no connection and no session; used for many cycles."""

    def __init__(self, shaping: Shaping) -> None:
        """Check all that can be checked without Spark; raises ConfigError that names the column."""
        if shaping.avro_schema is not None:
            shaping = replace(shaping, avro_schema=schema_text(shaping.avro_schema))
        self.shaping = shaping
        self._shaper = Shaper(shaping)
        self._query: sql.QueryShape | None = None
        self._given = shaping.partition_by
        if shaping.sql is None:
            Partitioning(shaping.partition_by, self._shaper.schema)

    @property
    def is_fused(self) -> bool:
        """Whether one task does everything, without a DataFrame."""
        return self.shaping.sql is None and self._shaper.checks_here

    @property
    def needs_spark_for_tables(self) -> bool:
        """Whether Spark is needed to know the tables' columns, or to validate the checks."""
        return not self.is_fused

    @property
    def aggregates(self) -> bool:
        """Whether the query's rows aggregate whole ranges; known once ``tables`` was called.

        Such a row is stamped with the first offset of its range: a rewind must start at one.
        """
        return self._query is not None and self._query.aggregates

    def tables(self, spark: Any, remembered: Sequence[str] = ()) -> Tables:
        """The tables that it writes. Raises ConfigError if Spark refuses a check or the SQL.

        ``spark`` may be None unless ``needs_spark_for_tables``. ``remembered`` is what the existing table is
        partitioned by; it counts if the load's settings do not say.
        """
        if not self._shaper.checks_here:
            self._ask_about_checks(spark)
        if self.shaping.sql is not None:
            self._query = sql.shape(spark, self.shaping, self._shaper.schema)
        schema = self._written_schema()
        self.shaping = replace(self.shaping, partition_by=self._given or remembered_for(schema, remembered))
        partitioning = Partitioning(self.shaping.partition_by, schema)
        return Tables(
            rows=partitioning.schema,
            rejected=columns.rejected_schema() if self.shaping.can_reject else None,
            partition_by=partitioning.names,
            add_columns=self.shaping.add_columns,
        )

    def _written_schema(self) -> Any:
        """The rows as they are written, without derived columns."""
        return self._shaper.schema if self._query is None else self._query.schema

    def _ask_about_checks(self, spark: Any) -> None:
        from pyspark.sql import functions

        empty = spark.createDataFrame([], ddl.render(self._shaper.schema))
        for check in self.shaping.checks:
            try:
                empty.where(functions.expr(check)).select(functions.expr(check)).schema.jsonValue()
            except Exception as error:
                if not sql.is_spark_error(error):
                    raise
                raise ConfigError(f"check {check!r}: {sql.said(error)}", setting="checks") from error

    def run(
        self,
        spark: Any,
        settings: Mapping[str, object],
        pieces: Sequence[OffsetRange],
        writer: TaskWriter,
        tag: str,
    ) -> list[PieceResult]:
        """Parse, check and write all pieces in Spark tasks, and wait for them.

        Raises TaskFailedError when a task failed for good, JobInterruptedError after ``interrupt`` with the
        same ``tag``. What was written then stays invisible.
        """
        if not pieces:
            return []
        with jobs.tagged(spark, tag):
            if self.is_fused:
                task = fused.FusedTask(dict(settings), tuple(pieces), writer, self.shaping)
                return fused.run(spark, task)
            return self._run_frames(spark, settings, pieces, writer)

    def _run_frames(
        self, spark: Any, settings: Mapping[str, object], pieces: Sequence[OffsetRange], writer: TaskWriter
    ) -> list[PieceResult]:
        if self.shaping.sql is not None and self._query is None:
            self.tables(spark, self.shaping.partition_by)
        pieces = tuple(pieces)
        frame = frames.parsed(spark, frames.ParseTask(dict(settings), pieces, self.shaping))
        task = frames.WriteTask(pieces, writer, self.shaping, self._shaper.schema)
        if self._query is None:
            return frames.write_pieces(frame, task)
        frame = frame.persist()
        try:
            rejected = frames.write_pieces(frame, replace(task, with_rows=False))
            query = replace(task, schema=self._query.schema)
            filled = {result.piece for result in rejected if result.piece is not None and result.records}
            return rejected + sql.run(spark, self._query, frame, query, filled)
        finally:
            frame.unpersist()

    def again(self, spark: Any, batch: pa.RecordBatch) -> ReplayedRows:
        """Parse and check records that were rejected before (columns of a raw table), here in the driver.

        ``spark`` may be None where ``is_fused``. A query must not aggregate.
        """
        assert not self.aggregates
        if not self.shaping.headers:
            batch = batch.select(columns.raw_schema(headers=False).names)
        shaped = self._shaper.shape(batch)
        if self.is_fused:
            good = range(batch.num_rows) if shaped.places is None else shaped.places.tolist()
            reasons = dict(zip(shaped.bad, shaped.reasons, strict=True))
            return ReplayedRows(list(good), self._partitioned(shaped.rows), reasons)
        return self._again_by_spark(spark, frames.beside(batch, shaped, 0))

    def _again_by_spark(self, spark: Any, beside: pa.RecordBatch) -> ReplayedRows:
        import pyarrow as pa

        frame = spark.createDataFrame(pa.Table.from_batches([beside]))
        if not self._shaper.checks_here:
            frame = frame.withColumn(frames.REASON, frames.reason_column(self.shaping.checks))
        if self._query is None:
            found = frame.toArrow().combine_chunks()
            reasons = found.column(frames.REASON).combine_chunks()
            rows = found.filter(reasons.is_null()).select(self._shaper.schema.names)
        else:
            # Two queries over the same rows: nothing is read again that could have changed.
            reasons = frame.select(frames.REASON).toArrow().column(0).combine_chunks()
            rows = sql.result(spark, self.shaping, frame)
        schema = self._written_schema()
        batches = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        said = {place: reason for place, reason in enumerate(reasons.to_pylist()) if reason is not None}
        good = [place for place in range(len(reasons)) if place not in said]
        return ReplayedRows(good, self._partitioned(conformed(batches[0], schema)), said)

    def _partitioned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return Partitioning(self.shaping.partition_by, self._written_schema()).add(rows)

    @staticmethod
    def interrupt(spark: Any, tag: str) -> None:
        """End the run of this tag, from another thread; its ``run`` raises JobInterruptedError."""
        jobs.interrupt(spark, tag)
