"""The DataFrame route, for checks that only Spark can evaluate and for SQL.

First stage: tasks read and parse their pieces, and return rows beside the records they came from. Then Spark
evaluates the checks. Last stage: tasks write good rows, and rejected rows with their reasons. Without SQL
this is one pass, in which each partition of the DataFrame is a piece. With SQL the parsed rows are persisted,
as they are needed twice: for the rejected rows, and for the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MisuseError
from millstream.spark.load.pipeline import columns, ddl
from millstream.spark.load.pipeline.checks import FAILED
from millstream.spark.load.pipeline.fused import (
    RESULT_DDL,
    PieceResult,
    Stage,
    answer,
    for_each_number,
    results,
)
from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.pipeline.partitioning import Partitioning
from millstream.spark.load.pipeline.spark_schema import conformed
from millstream.spark.load.pipeline.work import Shaped, Shaper, refusals, rejected_rows
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading.memory import keep_freed
from millstream.spark.reading.reader import read_range
from millstream.spark.sinks.base import TaskOutput, TaskWriter

if TYPE_CHECKING:
    import pyarrow as pa

RECORD: Final = "__record"
REASON: Final = "__reason"
PIECE: Final = "__piece"


@dataclass(frozen=True, slots=True)
class ParseTask:
    """The first stage; pickled into its tasks."""

    settings: Mapping[str, object]
    pieces: Sequence[OffsetRange]
    shaping: Shaping

    def read(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, good and rejected, beside their records."""
        keep_freed()
        piece = self.pieces[index]
        shaper = Shaper(self.shaping)
        try:
            for batch in read_range(
                self.settings, piece, headers=self.shaping.headers, columns=shaper.read_columns
            ):
                yield beside(batch, shaper.shape(batch), index)
        except Exception as error:  # noqa: BLE001 - raised again, with the range
            TaskFailedError.fail(piece, error)


def beside(batch: pa.RecordBatch, shaped: Shaped, index: int) -> pa.RecordBatch:
    """Rows beside the records they came from, in the records' order."""
    import numpy as np
    import pyarrow as pa

    count = batch.num_rows
    row_columns = shaped.rows.columns
    reasons = pa.nulls(count, pa.string())
    if shaped.places is not None:
        # The index of each record's row; -1 for those without one.
        where = np.full(count, -1, np.int64)
        where[shaped.places] = np.arange(len(shaped.places))
        chosen = pa.array(where, mask=where < 0)
        row_columns = [column.take(chosen) for column in row_columns]
        said = dict(zip(shaped.bad, shaped.reasons, strict=True))
        reasons = pa.array([said.get(place) for place in range(count)], pa.string())
    arrays = [*row_columns, _record(batch), reasons, pa.repeat(pa.scalar(index, pa.int32()), count)]
    return pa.RecordBatch.from_arrays(arrays, [*shaped.rows.schema.names, RECORD, REASON, PIECE])


def _record(batch: pa.RecordBatch) -> pa.StructArray:
    import pyarrow as pa

    return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))


def parsed(spark: Any, task: ParseTask) -> Any:
    """A DataFrame of rows beside records, with reasons for rejected ones, and a partition for each piece."""
    count = len(task.pieces)
    numbers = spark.range(0, count, 1, count)
    frame = numbers.mapInArrow(for_each_number(task.read), parsed_ddl(task.shaping))
    if Shaper(task.shaping).checks_here:
        return frame
    return frame.withColumn(REASON, reason_column(task.shaping.checks))


def parsed_ddl(shaping: Shaping) -> str:
    """The columns of the first stage. All are nullable: a rejected record has no row."""
    import pyarrow as pa

    shaper = Shaper(shaping)
    record = pa.struct(list(columns.raw_schema(headers=shaping.headers)))
    fields = [field.with_nullable(True) for field in shaper.schema]
    more = [(RECORD, record), (REASON, pa.string()), (PIECE, pa.int32())]
    return ddl.render(pa.schema([*fields, *(pa.field(name, kind) for name, kind in more)]))


def reason_column(checks: Sequence[str]) -> Any:
    """The reason so far, or else which checks are not true; null for a good row."""
    from pyspark.sql import functions

    failed = [
        functions.when(functions.coalesce(functions.expr(check), functions.lit(False)), functions.lit(None))
        .otherwise(functions.lit(FAILED + check))
        .cast("string")
        for check in checks
    ]
    joined = functions.concat_ws("; ", *failed)
    return functions.when(functions.col(REASON).isNotNull(), functions.col(REASON)).when(joined != "", joined)


# ---- writing


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The last stage; pickled into its tasks. ``schema`` is that of the rows that come in."""

    pieces: Sequence[OffsetRange]
    writer: TaskWriter
    shaping: Shaping
    schema: pa.Schema
    with_rows: bool = True
    """Whether ``write_pieces`` writes good rows too, or only rejected ones."""

    def write_pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PieceResult]:
        """Write rows beside records, of one piece: its index is that of the partition."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        index = context.partitionId()
        partitioning = Partitioning(self.shaping.partition_by, self.schema)

        def write(batch: pa.RecordBatch, output: TaskOutput) -> int:
            good, rejected = self.divided(batch)
            if good.num_rows and self.with_rows:
                output.write_rows(partitioning.add(good))
            if rejected is not None:
                output.write_rejected(rejected)
            return int(batch.num_rows)

        yield self._written(index, batches, write)

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PieceResult]:
        """Write the rows of a query's result, of any pieces; a partition without rows writes nothing."""
        partitioning = Partitioning(self.shaping.partition_by, self.schema)
        filled = iter(batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return

        def write(batch: pa.RecordBatch, output: TaskOutput) -> int:
            rows = conformed(batch, self.schema)
            self._check_positions(rows)
            output.write_rows(partitioning.add(rows))
            return 0

        def everything() -> Iterator[pa.RecordBatch]:
            yield first
            yield from filled

        yield self._written(None, everything(), write)

    def _check_positions(self, rows: pa.RecordBatch) -> None:
        """Raise if a query changed positions: a rewind could not find such rows."""
        import pyarrow.compute as pc

        names = columns.POSITIONS[:3] if "_offset" in self.schema.names else columns.RAW[:3]
        topics, partitions, offsets = (rows.column(name) for name in names)
        known = None
        for (topic, partition), (start, end) in _spans(self.pieces).items():
            right = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            right = pc.and_(right, inside).fill_null(False)
            known = right if known is None else pc.or_(known, right)
        if known is not None and known.false_count:
            place = known.to_pylist().index(False)
            position = ", ".join(str(column[place]) for column in (topics, partitions, offsets))
            raise MisuseError(
                f"sql gives a row the position {position}, which is not that of any of its records"
            )

    def _written(
        self,
        index: int | None,
        batches: Iterable[pa.RecordBatch],
        write: Callable[[pa.RecordBatch, TaskOutput], int],
    ) -> PieceResult:
        output = self.writer.open()
        try:
            records = sum(write(batch, output) for batch in batches)
            return PieceResult(index, output.finish(), records)
        except BaseException as error:
            output.abort()
            if isinstance(error, Exception):
                part = None if index is None else self.pieces[index]
                TaskFailedError.fail(part, error)
            raise

    def divided(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Split rows beside records into good rows and rejected rows."""
        import pyarrow as pa

        names = batch.schema.names
        reasons = batch.column(names.index(REASON))
        row_columns = [batch.column(place) for place in range(len(self.schema))]
        rows = pa.RecordBatch.from_arrays(row_columns, self.schema.names)
        good = conformed(rows.filter(reasons.is_null()), self.schema)
        if self.shaping.can_reject:
            good, reasons = self._accepted(good, reasons)
        if reasons.null_count == len(reasons):
            return good, None
        bad = reasons.is_valid()
        record_schema = columns.raw_schema(headers=self.shaping.headers)
        records = batch.column(names.index(RECORD)).filter(bad)
        flat = conformed(pa.RecordBatch.from_arrays(records.flatten(), record_schema.names), record_schema)
        said = reasons.filter(bad).to_pylist()
        return good, rejected_rows(flat, range(flat.num_rows), said)

    def _accepted(self, good: pa.RecordBatch, reasons: pa.StringArray) -> tuple[pa.RecordBatch, Any]:
        """The rows that the sink can hold, and the reasons with those of rows that it refuses."""
        import pyarrow.compute as pc

        refused = refusals(self.writer, good) if self.with_rows else None
        if refused is None:
            return good, reasons
        reasons = pc.replace_with_mask(reasons, reasons.is_null(), refused)
        return good.filter(refused.is_null()), reasons


def _spans(pieces: Sequence[OffsetRange]) -> dict[tuple[str, int], tuple[int, int]]:
    """The first and last offset of each partition's pieces."""
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for piece in pieces:
        part = piece
        start, end = spans.get((part.topic, part.partition), (part.start, part.end))
        spans[part.topic, part.partition] = min(start, part.start), max(end, part.end)
    return spans


def _stage(write: Callable[[Iterable[pa.RecordBatch]], Iterator[PieceResult]]) -> Stage:
    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in write(batches):
            yield answer(result)

    return function


def write_pieces(frame: Any, task: WriteTask) -> list[PieceResult]:
    """Write rows and rejected rows of a parsed frame, one piece per task."""
    return results(frame.mapInArrow(_stage(task.write_pieces), RESULT_DDL).collect())


def write_rows(frame: Any, task: WriteTask) -> list[PieceResult]:
    """Write the rows of a query's result."""
    return results(frame.mapInArrow(_stage(task.write_rows), RESULT_DDL).collect())
