"""What a task writes to the two tables of a Delta sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from millstream.spark.sinks.base import SinkError, TaskOutput, Written
from millstream.spark.sinks.delta.errors import failed
from millstream.spark.sinks.delta.parquet.files import Shape, TableWriter, pack


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Travels to the tasks of one cycle."""

    rows: Shape
    rejected: Shape | None
    cycle_id: str

    def open(self) -> TaskOutput:
        return DeltaOutput(self)


class DeltaOutput:
    """One attempt of one task. Its files have names of their own, so that two attempts never meet."""

    def __init__(self, writer: DeltaWriter) -> None:
        self._writer = writer
        self._rows = TableWriter(writer.rows, writer.cycle_id)
        self._rejected = None if writer.rejected is None else TableWriter(writer.rejected, writer.cycle_id)

    def write_rows(self, batch: pa.RecordBatch) -> None:
        try:
            self._rows.write(batch)
        except (OSError, pa.ArrowException) as error:
            self._failed(error)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        if self._rejected is None:
            raise SinkError("raw landing rejects nothing: there is no table for rejected rows")
        try:
            self._rejected.write(batch)
        except (OSError, pa.ArrowException) as error:
            self._failed(error)

    def finish(self) -> Written:
        try:
            rows = self._rows.finish()
            rejected = [] if self._rejected is None else self._rejected.finish()
        except (OSError, pa.ArrowException) as error:
            self._failed(error)
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

    def _failed(self, error: Exception) -> NoReturn:
        where = self._writer.rows.directory
        remedy = "Nothing of this task is visible, and running again is safe"
        raise failed(f"rows could not be written to {where}", error, remedy) from error
