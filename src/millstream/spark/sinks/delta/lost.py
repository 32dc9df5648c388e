"""Lost ranges: offsets that were never loaded, in a small Delta table beside the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from deltalake import Schema

from millstream.spark.sinks.base import Cycle, Loss, LostRange, SinkError
from millstream.spark.sinks.delta.parquet.files import Shape, TableWriter
from millstream.spark.sinks.delta.parquet.reading import read_rows
from millstream.spark.sinks.delta.schema import create, fit
from millstream.spark.sinks.delta.table import CommitPlan, DeltaSnapshot, Table

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
        ("topic_id", pa.string()),
    ]
)


class LostRanges:
    """The table of lost ranges; created with the first one."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, cycle: Cycle, lost: Sequence[LostRange]) -> None:
        """Add these ranges of a cycle; those that are there already stay as they are."""
        group_id, cycle_id = cycle.group_id, cycle.cycle_id
        if not lost:
            return
        if not self._table.exists:
            create(self._table, Schema.from_arrow(SCHEMA))
        fit(self._table, Schema.from_arrow(SCHEMA), allowed=True)  # an earlier version kept no topic ids
        writers: list[TableWriter] = []

        def decide(snapshot: DeltaSnapshot) -> CommitPlan | None:
            known = {_key(found) for found in self._of(snapshot, group_id)}
            new = [one for one in lost if _key(one) not in known]
            if not new:
                return None
            writer = TableWriter(Shape(self._table.directory, SCHEMA), cycle_id)
            writers.append(writer)
            writer.write(_batch(group_id, cycle_id, new))
            return CommitPlan(writer.finish())

        def undo() -> None:
            for unused in writers:
                unused.abort()

        try:
            committed = self._table.transact(decide, undo)
        except OSError as error:
            raise SinkError(
                f"lost ranges could not be written to {self._table.directory}: {error}"
            ) from error
        if committed:
            for unused in writers[:-1]:
                unused.abort()

    def read(self, group_id: str) -> list[LostRange]:
        """The lost ranges of a group, in the order in which they were noticed."""
        snapshot = self._table.look()
        found = [] if snapshot is None else self._of(snapshot, group_id)
        return sorted(found, key=lambda one: (one.noticed_at, one.topic, one.partition, one.start))

    def _of(self, snapshot: DeltaSnapshot, group_id: str) -> list[LostRange]:
        rows = read_rows(snapshot, self._table.directory).to_pylist()
        return [_lost(row) for row in rows if row["group_id"] == group_id]


def _key(one: LostRange) -> tuple[str, int, int, int, Loss, str]:
    return one.topic, one.partition, one.start, one.end, one.reason, one.topic_id


def _batch(group_id: str, cycle_id: str, lost: Sequence[LostRange]) -> pa.RecordBatch:
    rows = [{"group_id": group_id, "cycle_id": cycle_id} | asdict(one) for one in lost]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _lost(row: dict[str, Any]) -> LostRange:
    where = row["topic"], row["partition"], row["start"], row["end"]
    return LostRange(*where, Loss(row["reason"]), row["noticed_at"], row.get("topic_id") or "")
