"""Ranges that were never loaded, kept in a small Delta table beside the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import Loss, LostRange, SinkError
from millstream.spark.sinks.delta.parquet.files import Shape, TableWriter
from millstream.spark.sinks.delta.parquet.reading import read_rows
from millstream.spark.sinks.delta.table import Change, Snapshot, Table

SCHEMA: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("reason", pa.string()),
        ("noticed_at", pa.timestamp("us", "UTC")),
        ("cycle_id", pa.string()),
    ]
)


class LostRanges:
    """The table of lost ranges; made when the first one is to be kept."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, group_id: str, cycle_id: str, lost: Sequence[LostRange]) -> None:
        """Keep these; those that are there already are left as they are."""
        if not lost:
            return
        self._make()
        writers: list[TableWriter] = []

        def decide(snapshot: Snapshot) -> Change | None:
            known = {_key(found) for found in self._of(snapshot, group_id)}
            new = [one for one in lost if _key(one) not in known]
            if not new:
                return None
            writer = TableWriter(Shape(str(self._table.directory), SCHEMA), cycle_id)
            writers.append(writer)
            writer.write(_batch(group_id, cycle_id, new))
            return Change(writer.finish())

        def undo() -> None:
            for unused in writers:
                unused.abort()

        try:
            committed = self._table.transact(decide, undo)
        except OSError as error:
            raise SinkError(f"lost ranges could not be kept in {self._table.directory}: {error}") from error
        if committed:
            for unused in writers[:-1]:
                unused.abort()

    def _make(self) -> None:
        if self._table.exists:
            return
        try:
            DeltaTable.create(str(self._table.directory), Schema.from_arrow(SCHEMA), mode="ignore")
        except (DeltaError, OSError) as error:
            if not self._table.exists:  # nor was another driver faster
                raise SinkError(
                    f"the Delta table {self._table.directory}, which keeps lost ranges, could not be made: "
                    f"{error}"
                ) from error

    def read(self, group_id: str) -> list[LostRange]:
        """All that were kept for a group, in the order in which they were noticed."""
        snapshot = self._table.look()
        found = [] if snapshot is None else self._of(snapshot, group_id)
        return sorted(found, key=lambda one: (one.noticed_at, one.topic, one.partition, one.start))

    def _of(self, snapshot: Snapshot, group_id: str) -> list[LostRange]:
        rows = read_rows(snapshot, self._table.directory).to_pylist()
        return [_lost(row) for row in rows if row["group_id"] == group_id]


def _key(one: LostRange) -> tuple[str, int, int, int, Loss]:
    return one.topic, one.partition, one.start, one.end, one.reason


def _batch(group_id: str, cycle_id: str, lost: Sequence[LostRange]) -> pa.RecordBatch:
    rows = [
        {"group_id": group_id, "topic": one.topic, "partition": one.partition, "start": one.start}
        | {"end": one.end, "reason": one.reason.value, "noticed_at": one.noticed_at, "cycle_id": cycle_id}
        for one in lost
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _lost(row: dict[str, Any]) -> LostRange:
    where = row["topic"], row["partition"], row["start"], row["end"]
    return LostRange(*where, Loss(row["reason"]), row["noticed_at"])
