"""Runs the user's SQL over the good rows of a cycle, as a view named ``batch``.

A query that keeps the position columns (``_topic``, ``_partition``, ``_offset``; for raw records without
underscores) makes rows that belong to records, and runs once over the cycle. Any other query, usually one
that counts or sums, runs once over each partition's range of the cycle, however many tasks read it; its rows
are stamped with the range: topic, partition and first offset. So they can be found and replaced when the
range is loaded again.

It does not run over several partitions at once: a rewind moves partitions one by one, and other drivers may
own some of them, so that a row of several partitions could not be replaced as a whole.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.spark.load.decisions.cycles import merged
from millstream.spark.load.pipeline import columns, ddl, frames
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.pipeline.spark_schema import arrow_schema
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

VIEW: Final = "batch"
_BESIDE: Final = (frames.RECORD, frames.REASON, frames.PIECE)
_AT_A_TIME: Final = 32
"""Ranges in one job: with many more, Spark's planning time grows faster than linearly."""
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class QueryShape:
    """What a query returns."""

    schema: pa.Schema
    """The rows as they are written, stamped if they aggregate."""
    aggregates: bool
    """Whether rows aggregate ranges rather than belong to records."""


def shape(spark: Any, shaping: Shaping, rows: pa.Schema) -> QueryShape:
    """Let Spark analyse the query over rows of this schema; raises ConfigError with Spark's reason."""
    import pyarrow as pa

    empty = spark.createDataFrame([], ddl.render(pa.schema([field.with_nullable(True) for field in rows])))
    with view_of(empty, shaping) as text:
        try:
            found = spark.sql(text).schema
        except Exception as error:
            if not is_spark_error(error):
                raise
            raise ConfigError(f"sql: {said(error)}", setting="sql") from error
    schema = arrow_schema(found, "sql: the result")
    positions = [name for name in _positions(shaping) if name in schema.names]
    if not shaping.is_raw and positions and len(positions) < 3:
        missing = set(_positions(shaping)) - set(positions)
        raise ConfigError(
            f"sql keeps {', '.join(positions)} but not {', '.join(sorted(missing))}: keep all, or none",
            setting="sql",
        )
    if len(positions) == 3:
        _check_positions(schema, shaping)
        return QueryShape(schema, aggregates=False)
    for name in columns.POSITIONS:
        if name in schema.names:
            raise ConfigError(
                f"sql: the column {name} is one that a load adds: rename it with AS", setting="sql"
            )
    return QueryShape(columns.with_positions(list(schema)), aggregates=True)


def _positions(shaping: Shaping) -> tuple[str, ...]:
    return columns.RAW[:3] if shaping.is_raw else columns.POSITIONS[:3]


def _check_positions(schema: pa.Schema, shaping: Shaping) -> None:
    for name, field in zip(_positions(shaping), columns.position_fields(), strict=False):
        if not schema.field(name).type.equals(field.type):
            raise ConfigError(
                f"sql: {name} must keep its type: it says which record a row came from", setting="sql"
            )


def run(
    spark: Any, shaped: QueryShape, frame: Any, task: frames.WriteTask, filled: Container[int]
) -> list[PieceResult]:
    """Run the query over the good rows of a parsed frame, and write its result.

    ``filled`` are the pieces that had records: an empty range must not become a row with a sum of 0.
    """
    from pyspark.sql import functions

    if not shaped.aggregates:
        return _written(spark, [(_good(frame), None)], task)
    inputs = [
        (_good(frame.where(functions.col(frames.PIECE).isin(indexes))), one)
        for one, indexes in _by_range(task.pieces).items()
        if any(index in filled for index in indexes)
    ]
    found: list[PieceResult] = []
    for first in range(0, len(inputs), _AT_A_TIME):
        found += _written(spark, inputs[first : first + _AT_A_TIME], task)
    return found


def _by_range(pieces: Sequence[OffsetRange]) -> dict[OffsetRange, list[int]]:
    """The ranges that the pieces were cut from, each with the indexes of its pieces."""
    return {
        one: [
            index
            for index, piece in enumerate(pieces)
            if piece.topic_partition == one.topic_partition and one.start <= piece.start < one.end
        ]
        for one in merged(pieces)
    }


def _good(frame: Any) -> Any:
    """The good rows of a parsed frame, without the columns of records and reasons."""
    from pyspark.sql import functions

    quoted = ["`" + name.replace("`", "``") + "`" for name in frame.columns if name not in _BESIDE]
    names = [functions.col(name) for name in quoted]
    return frame.where(functions.col(frames.REASON).isNull()).select(*names)


def result(spark: Any, shaping: Shaping, frame: Any) -> pa.Table:
    """The query's result over the good rows of a parsed frame."""
    with view_of(_good(frame), shaping) as text:
        return spark.sql(text).toArrow()


def _written(
    spark: Any, inputs: Sequence[tuple[Any, OffsetRange | None]], task: frames.WriteTask
) -> list[PieceResult]:
    """Run the query over each input, all in one job, and write the rows."""
    with ExitStack() as views:
        made = []
        for rows, one in inputs:
            text = views.enter_context(view_of(rows, task.shaping))
            result = spark.sql(text)
            made.append(result if one is None else _stamped(result, one))
        return frames.write_rows(reduce(lambda left, right: left.unionAll(right), made), task)


def _stamped(frame: Any, part: OffsetRange) -> Any:
    from pyspark.sql import functions

    kinds = ("string", "int", "bigint", "timestamp")
    values = (part.topic, part.partition, part.start, None)
    stamps = [
        functions.lit(value).cast(kind).alias(name)
        for name, value, kind in zip(columns.POSITIONS, values, kinds, strict=True)
    ]
    return frame.select("*", *stamps)


@contextmanager
def view_of(frame: Any, shaping: Shaping) -> Iterator[str]:
    """The query's text over this frame, which becomes a view of a unique name."""
    name = f"millstream_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield _text(shaping, name)
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def _text(shaping: Shaping, view: str) -> str:
    assert shaping.sql is not None
    names = [VIEW]
    if len(shaping.topics) == 1 and _PLAIN.fullmatch(shaping.topics[0]) and shaping.topics[0].lower() != VIEW:
        names.append(shaping.topics[0])
    tables = ", ".join(f"`{name}` AS (SELECT * FROM {view})" for name in names)
    return f"WITH {tables} SELECT * FROM (\n{shaping.sql.strip().rstrip(';')}\n)"


def is_spark_error(error: Exception) -> bool:
    """Whether Spark refuses a query or an expression."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException)


def said(error: Exception) -> str:
    """Spark's reason, without plans and positions."""
    text = str(error).strip().splitlines()[0]
    text = re.sub(r"\s*;?\s*line \d+,? pos \d+;?\s*$", "", text)
    return re.sub(r"\s*SQLSTATE: \w+\s*(\(line.*\))?;?", "", text).strip()
