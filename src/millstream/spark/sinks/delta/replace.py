"""Deleting rows from a Delta table: files that hold no others are removed, other files are rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Position, SinkError, label_column
from millstream.spark.sinks.delta.parquet.columns import Labels, labels_of
from millstream.spark.sinks.delta.parquet.files import DataFile, Shape, TableWriter, remove
from millstream.spark.sinks.delta.parquet.reading import (
    columns_of,
    has_deletion_vectors,
    only,
    positions_of,
    stored,
    stored_columns,
)
from millstream.spark.sinks.delta.places.place import Place
from millstream.spark.sinks.delta.table import ActiveFile, DeltaSnapshot


@dataclass(frozen=True, slots=True)
class RowsToDelete:
    """Rows of one partition: all of ``[start, end)``, or only ``offsets`` among them. Only rows with
    ``label``, or without one if it is None. With ``moments``, only rows that were rejected at one of them.
    """

    start: int
    end: int
    offsets: pa.Array | None = None
    label: str | None = None
    moments: pa.Array | None = None

    @classmethod
    def of(cls, offsets: Iterable[int], label: str | None) -> RowsToDelete:
        wanted = sorted(offsets)
        return cls(wanted[0], wanted[-1] + 1, pa.array(wanted, pa.int64()), label)

    def holds_all(self, least: int, most: int) -> bool:
        """Whether every row with an offset from ``least`` to ``most`` is to be deleted."""
        return self.offsets is None and self.label is None and self.start <= least and most < self.end

    def mask(self, offsets: pa.Array, labels: pa.Array) -> pa.Array:
        if self.offsets is not None:
            found = pc.is_in(offsets, value_set=self.offsets)
        else:
            found = pc.and_(pc.greater_equal(offsets, self.start), pc.less(offsets, self.end))
        if self.label is None:
            return pc.and_(found, pc.is_null(labels))
        # The mask must not have nulls: to Arrow, null is not false.
        return pc.and_(found, pc.fill_null(pc.equal(labels, self.label), False))


def rows_to_delete(positions: Iterable[Position], labels: Labels) -> dict[TopicPartition, RowsToDelete]:
    """The rows at these positions, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for position in positions:
        found.setdefault(TopicPartition(position.topic, position.partition), []).append(position.offset)
    return {where: RowsToDelete.of(offsets, labels.get(where)) for where, offsets in found.items()}


@dataclass(frozen=True, slots=True)
class Replacement:
    """The files that a deletion removes, and those that take their place."""

    remove: list[ActiveFile] = field(default_factory=list)
    add: list[DataFile] = field(default_factory=list)


REJECTED_AT: Final = "rejected_at"


class Remover:
    """Deletes rows of one table. Kept over the attempts of one commit, so no file is rewritten twice."""

    def __init__(
        self, directory: Place, rows: Mapping[TopicPartition, RowsToDelete], tag: str, compression: str
    ) -> None:
        self._directory = directory
        self._compression = compression
        self._rows = {where: each for where, each in rows.items() if each.start < each.end}
        self._tag = tag
        self._columns: pa.Schema = pa.schema([])
        self._searched: pa.Schema = pa.schema([])
        self._positions = ("", "", "")
        self._rewritten: dict[str, list[DataFile] | None] = {}

    def plan(self, snapshot: DeltaSnapshot, keep: frozenset[str]) -> Replacement:
        """What to replace in this version of the table; files in ``keep`` stay."""
        replacement = Replacement()
        if not self._rows:
            return replacement
        self._look_at(snapshot)
        files = [file for file in snapshot.files() if file.path not in keep]
        touched = [file for file in files if self._may_hold(file)]
        if touched:
            refuse_append_only(snapshot, self._directory)
            _refuse_odd_names(self._directory, touched)
            _refuse_deletion_vectors(snapshot, self._directory, touched)
        for file in touched:
            left = [] if self._holds_no_other(file) else self._without(file)
            if left is not None:
                replacement.remove.append(file)
                replacement.add.extend(left)
        return replacement

    def moments(self, snapshot: DeltaSnapshot) -> pa.Array:
        """The distinct times at which the rows to delete were rejected, in this version."""
        self._look_at(snapshot)
        found = [
            _column(batch, file, REJECTED_AT).filter(self._mask(batch, file))
            for file in snapshot.files()
            if self._may_hold(file)
            for batch in stored(file, self._directory, self._searched)
        ]
        return pa.chunked_array(found, self._columns.field(REJECTED_AT).type).unique()

    def _look_at(self, snapshot: DeltaSnapshot) -> None:
        self._columns, self._positions = columns_of(snapshot), positions_of(snapshot)
        self._searched = only(self._columns, (*self._positions, label_column(self._positions), REJECTED_AT))

    def discard(self) -> None:
        """Delete the rewritten files of a commit that certainly was not made."""
        for files in self._rewritten.values():
            for file in files or ():
                remove(self._directory, file.path)

    def _may_hold(self, file: ActiveFile) -> bool:
        topic, partition, offset = self._positions
        return any(
            file.may_hold(topic, where.topic, where.topic)
            and file.may_hold(partition, where.partition, where.partition)
            and file.may_hold(offset, rows.start, rows.end - 1)
            and (rows.label is None or file.may_hold(label_column(self._positions), rows.label, rows.label))
            for where, rows in self._rows.items()
        )

    def _holds_no_other(self, file: ActiveFile) -> bool:
        """Whether the statistics alone show that every row is to be deleted."""
        topics, partitions, offsets = map(file.bounds, self._positions)
        if topics is None or partitions is None or offsets is None:
            return False
        if file.bounds(label_column(self._positions)) is not None:  # rows of several topics of one name
            return False
        if topics[0] != topics[1] or partitions[0] != partitions[1]:
            return False
        rows = self._rows.get(TopicPartition(topics[0], partitions[0]))
        return rows is not None and rows.holds_all(*offsets)

    def _without(self, file: ActiveFile) -> list[DataFile] | None:
        """The file rewritten without the rows; None where it holds none of them."""
        if file.path not in self._rewritten:
            self._rewritten[file.path] = self._rewrite(file)
        return self._rewritten[file.path]

    def _rewrite(self, file: ActiveFile) -> list[DataFile] | None:
        if not self._holds(file):
            return None
        kept = stored_columns(file, self._directory, self._columns)
        writer = TableWriter(Shape(self._directory, kept, compression=self._compression), self._tag)
        try:
            for batch in stored(file, self._directory, kept):
                writer.write(batch.filter(pc.invert(self._mask(batch, file))))
            return [replace(made, partition_values=file.partition_values) for made in writer.finish()]
        except BaseException:
            writer.abort()
            raise

    def _holds(self, file: ActiveFile) -> bool:
        return any(
            pc.any(self._mask(batch, file)).as_py() for batch in stored(file, self._directory, self._searched)
        )

    def _mask(self, batch: pa.RecordBatch, file: ActiveFile) -> pa.Array:
        """Which rows are to be deleted."""
        topic, partition, offset = (_column(batch, file, name) for name in self._positions)
        labels = labels_of(batch, self._positions)
        mask = pa.repeat(pa.scalar(False), batch.num_rows)
        for where, rows in self._rows.items():
            here = pc.and_(pc.equal(topic, where.topic), pc.equal(partition, where.partition))
            here = pc.and_(here, rows.mask(offset, labels))
            if rows.moments is not None:
                here = pc.and_(here, pc.is_in(_column(batch, file, REJECTED_AT), value_set=rows.moments))
            mask = pc.or_(mask, here)
        return pc.fill_null(mask, False)


def _column(batch: pa.RecordBatch, file: ActiveFile, name: str) -> pa.Array:
    """A column of a file; a partition column has one value, which is in the log."""
    if name in batch.schema.names:
        return batch.column(name)
    return pa.repeat(pa.scalar(file.least[name]), batch.num_rows)


def refuse_append_only(snapshot: DeltaSnapshot, directory: Place) -> None:
    """Raise where no row may be deleted from the table."""
    if snapshot.handle.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise SinkError(
            f"the Delta table {directory} is append-only, so a rewind or a replay cannot delete rows from "
            "it. Unset it (ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly')), or move the group's "
            "offset forward again"
        )


def _refuse_odd_names(directory: Place, files: list[ActiveFile]) -> None:
    odd = [file.path for file in files if not file.can_be_removed]
    if odd:
        raise SinkError(
            f"files of the Delta table {directory} have names that only the engine that wrote them can "
            f"quote ({', '.join(odd[:3])}), so their rows cannot be replaced. Run OPTIMIZE with that engine, "
            "or load into a table that is partitioned by plainer values"
        )


def _refuse_deletion_vectors(snapshot: DeltaSnapshot, directory: Place, files: list[ActiveFile]) -> None:
    if not has_deletion_vectors(snapshot):
        return
    marked: list[str] = pa.table(snapshot.handle.deletion_vectors())["filepath"].to_pylist()
    if any(
        path.endswith(file.path) or unquote(path).endswith(unquote(file.path))
        for path in marked
        for file in files
    ):
        raise SinkError(
            f"rows of the Delta table {directory} were deleted by deletion vectors, in files that must be "
            "rewritten. Run OPTIMIZE or REORG TABLE … APPLY (PURGE) first"
        )
