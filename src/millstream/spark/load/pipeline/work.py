"""What a task does with the records it has read: rows to one table, rejected rows to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.spark.load.pipeline import checks, columns
from millstream.spark.load.pipeline.formats import parser_of
from millstream.spark.load.pipeline.formats.parsed import Parsed
from millstream.spark.load.pipeline.partitioning import Partitioning
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import TaskWriter
from millstream.spark.sinks.capabilities import RefusesRows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shaped:
    """A batch of records, shaped. ``places`` say which of the batch each row is; None: all, in order."""

    rows: pa.RecordBatch
    places: NDArray[np.int64] | None
    bad: list[int]
    reasons: list[str]


class Shaper:
    """Turns batches of records (the source's columns) into rows. One for each task, used by one thread."""

    def __init__(self, shaping: Shaping) -> None:
        """Raises ConfigError for a schema that makes no sense."""
        self._shaping = shaping
        self._parser = parser_of(shaping)
        self.schema = row_schema(shaping, self._parser)
        self._checks = checks.compile_checks(shaping.checks, self.schema)

    @property
    def checks_here(self) -> bool:
        """Whether it can do all checks itself."""
        return self._checks is not None

    @property
    def read_columns(self) -> list[str]:
        """Which columns of the source it needs."""
        return list(columns.RAW if self._shaping.headers else columns.RAW[:-1])

    def shape(self, batch: pa.RecordBatch) -> Shaped:
        """Rows, and the reasons of the others; checks that only Spark understands are left out."""
        found = self._parsed(batch)
        if not self._checks or not found.rows.num_rows:
            return found
        failed, reasons = checks.failures(self._checks, found.rows)
        if failed is None:
            return found
        places = np.arange(batch.num_rows) if found.places is None else found.places
        bad, all_reasons = _joined(found.bad, found.reasons, places[failed].tolist(), reasons)
        return Shaped(filtered(found.rows, ~failed), places[~failed], bad, all_reasons)

    def _parsed(self, batch: pa.RecordBatch) -> Shaped:
        import pyarrow as pa

        if self._parser is None:
            return Shaped(batch, None, [], [])
        found: Parsed = self._parser.parse(batch.column("value"))
        from_record = [batch.column(name[1:]) for name in columns.POSITIONS]
        if found.good is not None:
            chosen = pa.array(found.good)
            from_record = [column.take(chosen) for column in from_record]
        rows = pa.RecordBatch.from_arrays([*found.rows.columns, *from_record], schema=self.schema)
        return Shaped(rows, found.good, found.bad, found.reasons)


def row_schema(shaping: Shaping, parser: Any) -> pa.Schema:
    """The rows as they come out of the records: before SQL, without derived partition columns."""
    if parser is None:
        return columns.raw_schema(headers=shaping.headers)
    return columns.with_positions(list(parser.schema))


def table_partitioning(shaping: Shaping, schema: pa.Schema) -> Partitioning:
    """How rows of this schema are divided."""
    return Partitioning(shaping.partition_by, schema)


def rejected_rows(batch: pa.RecordBatch, bad: Sequence[int], reasons: Sequence[str]) -> pa.RecordBatch | None:
    """The records at these places as rejected rows; None where there are none."""
    import pyarrow as pa

    if not bad:
        return None
    chosen = batch.take(pa.array(bad, pa.int64()))
    schema = columns.rejected_schema()
    now = pa.scalar(datetime.now(UTC), schema.field("rejected_at").type)
    arrays = [
        chosen.column(name) if name in batch.schema.names else pa.nulls(len(bad), schema.field(name).type)
        for name in columns.RAW
    ]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(reasons, pa.string()), pa.repeat(now, len(bad))], schema=schema
    )


def refusals(writer: TaskWriter, rows: pa.RecordBatch) -> pa.StringArray | None:
    """For each row why the sink cannot hold it, null where it can; None where it can hold all.

    A sink with rules of its own (PostgreSQL has no U+0000 in texts) has a writer that knows them.
    """
    found = writer.refusals(rows) if rows.num_rows and isinstance(writer, RefusesRows) else None
    return None if found is None or found.null_count == len(found) else found


def accepted(shaped: Shaped, writer: TaskWriter, count: int) -> Shaped:
    """What was shaped of a batch of ``count`` records, with rows that the sink refuses among the bad ones."""
    refused = refusals(writer, shaped.rows)
    if refused is None:
        return shaped
    places = np.arange(count) if shaped.places is None else shaped.places
    wrong = refused.is_valid().to_numpy(zero_copy_only=False)
    said = refused.drop_null().to_pylist()
    bad, reasons = _joined(shaped.bad, shaped.reasons, places[wrong].tolist(), said)
    return Shaped(filtered(shaped.rows, ~wrong), places[~wrong], bad, reasons)


def filtered(rows: pa.RecordBatch, mask: Any) -> pa.RecordBatch:
    """The rows for which a mask of numpy's is true."""
    import pyarrow as pa

    return rows.filter(pa.array(mask))


def _joined(
    bad: list[int], reasons: list[str], more: list[int], more_reasons: list[str]
) -> tuple[list[int], list[str]]:
    pairs = sorted([*zip(bad, reasons, strict=True), *zip(more, more_reasons, strict=True)])
    return [place for place, _ in pairs], [reason for _, reason in pairs]
