"""A task's output: Parquet files for the two tables of a Delta sink."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from millstream.spark.sinks.base import SinkError, TaskOutput, Written
from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.parquet.files import Shape, TableWriter, pack


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Pickled into the tasks of one cycle."""

    rows: Shape
    rejected: Shape | None
    cycle_id: str

    def open(self) -> TaskOutput:
        return DeltaOutput(self)


class DeltaOutput:
    """One attempt of one task. File names are unique, so two attempts never write the same file."""

    def __init__(self, writer: DeltaWriter) -> None:
        self._writer = writer
        self._rows = TableWriter(writer.rows, writer.cycle_id)
        self._rejected = None if writer.rejected is None else TableWriter(writer.rejected, writer.cycle_id)

    def write_rows(self, batch: pa.RecordBatch) -> None:
        with self._explained():
            self._rows.write(batch)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        if self._rejected is None:
            raise SinkError("a raw load rejects nothing: there is no table for rejected rows")
        with self._explained():
            self._rejected.write(batch)

    def finish(self) -> Written:
        with self._explained():
            rows = self._rows.finish()
            rejected = [] if self._rejected is None else self._rejected.finish()
        files = [*rows, *rejected]
        return Written(
            rows=sum(file.rows for file in rows),
            rejected=sum(file.rows for file in rejected),
            size=sum(file.size for file in files),
            files=len(files),
            payload=pack(rows, rejected),
        )

    def abort(self) -> None:
        self._rows.abort()
        if self._rejected is not None:
            self._rejected.abort()

    def _explained(self) -> AbstractContextManager[None]:
        remedy = "Nothing of this task is visible, and running again is safe"
        return explained(f"rows could not be written to {self._writer.rows.directory}", remedy)
