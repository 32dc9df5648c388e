"""Parses and checks batches of records inside a task: rows, and rejected rows with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.spark.load.pipeline import checks, columns
from millstream.spark.load.pipeline.formats import parser_of
from millstream.spark.load.pipeline.formats.parsed import Parsed
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import TaskWriter
from millstream.spark.sinks.capabilities import RefusesRows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shaped:
    """A batch, parsed and checked. ``places`` are the indexes of the rows' records; None: all, in order."""

    rows: pa.RecordBatch
    places: NDArray[np.int64] | None
    bad: list[int]
    reasons: list[str]


class Shaper:
    """Turns batches of records (the source's columns) into rows. One per task, used by one thread."""

    def __init__(self, shaping: Shaping) -> None:
        """Raises ConfigError for an invalid schema."""
        self._shaping = shaping
        self._parser = parser_of(shaping)
        self.schema = row_schema(shaping, self._parser)
        self._checks = checks.compile_checks(shaping.checks, self.schema)

    @property
    def checks_here(self) -> bool:
        """Whether it evaluates all checks itself, without Spark."""
        return self._checks is not None

    @property
    def read_columns(self) -> list[str]:
        """The columns of the source that it needs."""
        return list(columns.RAW if self._shaping.headers else columns.RAW[:-1])

    def shape(self, batch: pa.RecordBatch) -> Shaped:
        """Rows, and reasons for the others. Checks that only Spark can evaluate are left out."""
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


def rejected_rows(batch: pa.RecordBatch, bad: Sequence[int], reasons: Sequence[str]) -> pa.RecordBatch | None:
    """The records at these indexes as rejected rows; None if there are none."""
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
    """For each row why the sink cannot hold it, null if it can; None if it can hold all.

    A sink with rules of its own (PostgreSQL allows no U+0000 in text) has a writer that knows them.
    """
    found = writer.refusals(rows) if rows.num_rows and isinstance(writer, RefusesRows) else None
    return None if found is None or found.null_count == len(found) else found


def accepted(shaped: Shaped, writer: TaskWriter, count: int) -> Shaped:
    """``shaped`` of a batch of ``count`` records, with rows that the sink refuses moved to the bad ones."""
    refused = refusals(writer, shaped.rows)
    if refused is None:
        return shaped
    places = np.arange(count) if shaped.places is None else shaped.places
    wrong = refused.is_valid().to_numpy(zero_copy_only=False)
    said = refused.drop_null().to_pylist()
    bad, reasons = _joined(shaped.bad, shaped.reasons, places[wrong].tolist(), said)
    return Shaped(filtered(shaped.rows, ~wrong), places[~wrong], bad, reasons)


def filtered(rows: pa.RecordBatch, mask: Any) -> pa.RecordBatch:
    """The rows for which a numpy mask is true."""
    import pyarrow as pa

    return rows.filter(pa.array(mask))


def _joined(
    bad: list[int], reasons: list[str], more: list[int], more_reasons: list[str]
) -> tuple[list[int], list[str]]:
    pairs = sorted([*zip(bad, reasons, strict=True), *zip(more, more_reasons, strict=True)])
    return [place for place, _ in pairs], [reason for _, reason in pairs]
