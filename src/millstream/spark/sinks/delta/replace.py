"""Taking rows out of a Delta table: files that hold nothing else go, others are written anew without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Position, SinkError, label_column
from millstream.spark.sinks.delta.labels import Labels, labels_of
from millstream.spark.sinks.delta.parquet.files import DataFile, Shape, TableWriter, remove
from millstream.spark.sinks.delta.parquet.reading import columns_of, only, stored, stored_columns
from millstream.spark.sinks.delta.table import ActiveFile, Snapshot


@dataclass(frozen=True, slots=True)
class Doomed:
    """Offsets of one partition: all of ``[start, end)``, or only ``offsets`` among them. Where the table has
    held several topics of this name, only rows with this ``label``, or without any. With ``moments`` only
    rows that were rejected at one of these.
    """

    start: int
    end: int
    offsets: pa.Array | None = None
    label: str | None = None
    moments: pa.Array | None = None

    @classmethod
    def of(cls, offsets: Iterable[int], label: str | None) -> Doomed:
        wanted = sorted(offsets)
        return cls(wanted[0], wanted[-1] + 1, pa.array(wanted, pa.int64()), label)

    def holds_all(self, least: int, most: int) -> bool:
        """Whether every row with an offset from ``least`` to ``most`` is meant."""
        return self.offsets is None and self.label is None and self.start <= least and most < self.end

    def mask(self, offsets: pa.Array, labels: pa.Array) -> pa.Array:
        if self.offsets is not None:
            found = pc.is_in(offsets, value_set=self.offsets)
        else:
            found = pc.and_(pc.greater_equal(offsets, self.start), pc.less(offsets, self.end))
        if self.label is None:
            return pc.and_(found, pc.is_null(labels))
        # No null may come of it: what is false and what is unknown are two things to Arrow.
        return pc.and_(found, pc.fill_null(pc.equal(labels, self.label), False))


def doomed_positions(positions: Iterable[Position], labels: Labels) -> dict[TopicPartition, Doomed]:
    """What to take out, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for position in positions:
        found.setdefault(TopicPartition(position.topic, position.partition), []).append(position.offset)
    return {where: Doomed.of(offsets, labels.get(where)) for where, offsets in found.items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What taking rows out means: these files go, and those come in their place."""

    remove: list[ActiveFile] = field(default_factory=list)
    add: list[DataFile] = field(default_factory=list)


REJECTED_AT: Final = "rejected_at"


class Remover:
    """Takes rows out of one table. Kept over the attempts of one commit: no file is written anew twice."""

    def __init__(
        self, directory: Path, doomed: Mapping[TopicPartition, Doomed], tag: str, compression: str
    ) -> None:
        self._directory = directory
        self._compression = compression
        self._doomed = {where: what for where, what in doomed.items() if what.start < what.end}
        self._tag = tag
        self._columns: pa.Schema = pa.schema([])
        self._rewritten: dict[str, list[DataFile] | None] = {}

    def outcome(self, snapshot: Snapshot, positions: tuple[str, str, str], keep: frozenset[str]) -> Outcome:
        """What it takes in this version of the table; files in ``keep`` are not looked at."""
        outcome = Outcome()
        if not self._doomed:
            return outcome
        self._columns = columns_of(snapshot)
        files = [file for file in snapshot.files() if file.path not in keep]
        touched = [file for file in files if self._may_hold(file, positions)]
        if touched:
            refuse_append_only(snapshot, self._directory)
            _refuse_odd_names(self._directory, touched)
            _refuse_deletion_vectors(snapshot, self._directory, touched)
        for file in touched:
            left = [] if self._is_doomed(file, positions) else self._without(file, positions)
            if left is not None:
                outcome.remove.append(file)
                outcome.add.extend(left)
        return outcome

    def moments(self, snapshot: Snapshot, positions: tuple[str, str, str]) -> pa.Array:
        """When the rows were rejected that would be taken out of this version, each moment once."""
        self._columns = columns_of(snapshot)
        wanted = only(self._columns, (*positions, label_column(positions), REJECTED_AT))
        found = [
            _column(batch, file, REJECTED_AT).filter(self._mask(batch, file, positions))
            for file in snapshot.files()
            if self._may_hold(file, positions)
            for batch in stored(file, self._directory, wanted)
        ]
        return pa.chunked_array(found, wanted.field(REJECTED_AT).type).unique()

    def discard(self) -> None:
        """Remove what was written, for a commit that certainly did not happen."""
        for files in self._rewritten.values():
            for file in files or ():
                remove(self._directory, file.path)

    def _may_hold(self, file: ActiveFile, positions: tuple[str, str, str]) -> bool:
        names = (*positions, label_column(positions))
        topics, partitions, offsets, labels = (_bounds(file, name) for name in names)
        return any(
            _overlap(topics, where.topic, where.topic)
            and _overlap(partitions, where.partition, where.partition)
            and _overlap(offsets, doomed.start, doomed.end - 1)
            and (doomed.label is None or _overlap(labels, doomed.label, doomed.label))
            for where, doomed in self._doomed.items()
        )

    def _is_doomed(self, file: ActiveFile, positions: tuple[str, str, str]) -> bool:
        """Whether the statistics alone say that every row goes."""
        topics, partitions, offsets = (_bounds(file, name) for name in positions)
        if topics is None or partitions is None or offsets is None:
            return False
        if _bounds(file, label_column(positions)) is not None:  # rows of several topics of one name
            return False
        if topics[0] != topics[1] or partitions[0] != partitions[1]:
            return False
        doomed = self._doomed.get(TopicPartition(topics[0], partitions[0]))
        return doomed is not None and doomed.holds_all(*offsets)

    def _without(self, file: ActiveFile, positions: tuple[str, str, str]) -> list[DataFile] | None:
        """The file written anew without the rows; None where it holds none of them."""
        if file.path not in self._rewritten:
            self._rewritten[file.path] = self._rewrite(file, positions)
        return self._rewritten[file.path]

    def _rewrite(self, file: ActiveFile, positions: tuple[str, str, str]) -> list[DataFile] | None:
        if not self._holds(file, positions):
            return None
        kept = stored_columns(file, self._directory, self._columns)
        writer = TableWriter(Shape(str(self._directory), kept, compression=self._compression), self._tag)
        try:
            for batch in stored(file, self._directory, kept):
                writer.write(batch.filter(pc.invert(self._mask(batch, file, positions))))
            return [replace(made, partition_values=file.partition_values) for made in writer.finish()]
        except BaseException:
            writer.abort()
            raise

    def _holds(self, file: ActiveFile, positions: tuple[str, str, str]) -> bool:
        wanted = only(self._columns, (*positions, label_column(positions), REJECTED_AT))
        return any(
            pc.any(self._mask(batch, file, positions)).as_py()
            for batch in stored(file, self._directory, wanted)
        )

    def _mask(self, batch: pa.RecordBatch, file: ActiveFile, positions: tuple[str, str, str]) -> pa.Array:
        """Which rows go."""
        topic, partition, offset = (_column(batch, file, name) for name in positions)
        labels = labels_of(batch, positions)
        mask = pa.repeat(pa.scalar(False), batch.num_rows)
        for where, doomed in self._doomed.items():
            here = pc.and_(pc.equal(topic, where.topic), pc.equal(partition, where.partition))
            here = pc.and_(here, doomed.mask(offset, labels))
            if doomed.moments is not None:
                here = pc.and_(here, pc.is_in(_column(batch, file, REJECTED_AT), value_set=doomed.moments))
            mask = pc.or_(mask, here)
        return pc.fill_null(mask, False)


def _column(batch: pa.RecordBatch, file: ActiveFile, name: str) -> pa.Array:
    """A column of a file; a partition column has one value, which the log knows."""
    if name in batch.schema.names:
        return batch.column(name)
    return pa.repeat(pa.scalar(file.least[name]), batch.num_rows)


def _bounds(file: ActiveFile, name: str) -> tuple[Any, Any] | None:
    """The least and greatest value of a column in a file; None where nobody knows."""
    least, most = file.least.get(name), file.most.get(name)
    return None if least is None or most is None else (least, most)


def _overlap(bounds: tuple[Any, Any] | None, least: Any, most: Any) -> bool:
    return bounds is None or (bounds[0] <= most and least <= bounds[1])


def refuse_append_only(snapshot: Snapshot, directory: Path) -> None:
    """Raise where no row may leave the table."""
    if snapshot.handle.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise SinkError(
            f"the Delta table {directory} is append-only, so that neither a rewind nor a replay can take "
            "rows out of it. Unset it (ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly')), or move the "
            "group's offset forward again"
        )


def _refuse_odd_names(directory: Path, files: list[ActiveFile]) -> None:
    odd = [file.path for file in files if not file.can_be_removed]
    if odd:
        raise SinkError(
            f"files of the Delta table {directory} have names that only the engine which wrote them can "
            f"quote ({', '.join(odd[:3])}), so that their rows cannot be replaced. Let it run OPTIMIZE, or "
            "load into a table that is partitioned by plainer values"
        )


def _refuse_deletion_vectors(snapshot: Snapshot, directory: Path, files: list[ActiveFile]) -> None:
    if "deletionVectors" not in (snapshot.handle.protocol().reader_features or ()):
        return
    marked: list[str] = pa.table(snapshot.handle.deletion_vectors())["filepath"].to_pylist()
    if any(
        path.endswith(file.path) or unquote(path).endswith(unquote(file.path))
        for path in marked
        for file in files
    ):
        raise SinkError(
            f"rows of the Delta table {directory} were deleted by deletion vectors, in files that would be "
            "written anew. Run OPTIMIZE or REORG TABLE … APPLY (PURGE) first"
        )
