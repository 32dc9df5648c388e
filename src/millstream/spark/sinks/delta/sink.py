"""DeltaSink: loads into Delta Lake tables in a directory, by the rules of ``millstream.spark.sinks.base``.

Three tables: the rows at DIR, the rejected rows at DIR_rejected, and the ranges that were never loaded at
DIR_lost. Tasks write Parquet files. The driver's commits name them, and hold the progress as transactions
(``progress``); each commit applies to exactly the snapshot that it was planned on (``table``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa
from deltalake import Schema

from millstream.errors import ConfigError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Cycle,
    Loss,
    LostRange,
    Position,
    Progress,
    SinkError,
    Standing,
    Tables,
    TaskWriter,
    Written,
)
from millstream.spark.sinks.delta import schema as delta_schema
from millstream.spark.sinks.delta.errors import TROUBLE, explained
from millstream.spark.sinks.delta.log import is_named, newest_version
from millstream.spark.sinks.delta.lost import LostRanges
from millstream.spark.sinks.delta.output import DeltaWriter
from millstream.spark.sinks.delta.parquet.files import DataFile, Shape, missing_files, remove, unpack
from millstream.spark.sinks.delta.parquet.reading import (
    last_position,
    positions_of,
    read_batches,
    read_ordered,
)
from millstream.spark.sinks.delta.places.place import beside, identity, place_of
from millstream.spark.sinks.delta.progress import application, encode, pinned
from millstream.spark.sinks.delta.readmit import Deletions, refuse_half_replaced, repaired_rows
from millstream.spark.sinks.delta.replace import Remover, refuse_append_only, rows_to_delete
from millstream.spark.sinks.delta.steps import Step, conflict, described
from millstream.spark.sinks.delta.table import CommitPlan, DeltaSnapshot, Table

log = logging.getLogger("millstream.spark")

TARGET_FILE_SIZE: Final = 128 << 20
COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "none")


class DeltaSink:
    """Loads rows into the Delta table at ``path``, and creates the table if it is missing.

    ``path`` is a directory that the driver and all tasks see under the same name, or a URL of an object store
    (``s3://bucket/orders``), which ``storage_options`` say how to reach, and the environment where they do
    not. ``target_file_size`` is in bytes; a cycle with less data writes smaller files.
    """

    _of_topics = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        target_file_size: int = TARGET_FILE_SIZE,
        compression: str = "snappy",
    ) -> None:
        typed = os.fspath(path)
        if "{topic}" in typed and not self._of_topics:
            raise ConfigError(f"for a table of each topic at {typed}, use DeltaTopicsSink")
        if target_file_size < 1:
            raise ConfigError(f"target_file_size must be positive, not {target_file_size}")
        if compression not in COMPRESSIONS:
            raise ConfigError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
        self._typed = typed
        self._directory = place_of(typed, storage_options)
        self.names = (f"delta:{identity(self._directory)}", f"delta:{typed}")
        self._target = target_file_size
        self._compression = compression
        self._tables: Tables | None = None
        self._rows = Table(self._directory)
        self._rejected = Table(beside(self._directory, "_rejected"))
        self._lost = LostRanges(Table(beside(self._directory, "_lost")))
        self._labels: dict[Table, dict[TopicPartition, str]] = {self._rows: {}, self._rejected: {}}
        """Of both tables, as ``standing`` last read them."""
        self._columns: dict[Table, Schema] = {}
        """The load's columns of each table, as ``prepare`` checked them."""

    def __repr__(self) -> str:
        return f"DeltaSink({self._typed!r})"

    @property
    def name(self) -> str:
        return f"delta:{self._typed}"

    def close(self) -> None:
        """Nothing is held open."""

    # -- before a load

    def check(self, tables: Tables) -> None:
        """Raise SchemaConflictError for columns or partition columns that Delta does not support."""
        delta_schema.delta_schema(tables.rows, self._directory)
        delta_schema.check_partitioning(tables.rows, tables.partition_by, self._directory)

    def prepare(self, group_id: str, tables: Tables) -> None:
        self._tables = tables
        self._shape(self._rows, tables.rows, tables.partition_by)
        if tables.rejected is not None:
            self._shape(self._rejected, tables.rejected, ())

    def _shape(self, table: Table, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        """Create a table, or check that an existing one fits."""
        wanted = delta_schema.delta_schema(schema, table.directory)
        delta_schema.check_partitioning(schema, partition_by, table.directory)
        snapshot = table.look()
        if snapshot is None:
            snapshot = delta_schema.create(table, wanted, partition_by)
        delta_schema.check_partition_columns(snapshot, schema, partition_by, table.directory)
        allowed = self._tables is not None and self._tables.add_columns
        delta_schema.fit(table, wanted, allowed=allowed)
        self._columns[table] = wanted

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        rows, rejected = self._rows.look(), self._rejected.look() if self._keeps_rejected else None
        names = {where: application(group_id, *where) for where in partitions}
        found = {
            where: Standing(_progress(rows, name), _progress(rejected, name)) for where, name in names.items()
        }
        for where, standing in found.items():
            self._label(self._rows, where, standing.rows)
            self._label(self._rejected, where, standing.rejected)
        return found

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        snapshot = self._rows.look()
        found = {} if snapshot is None else snapshot.groups()
        return {topic: frozenset(found.get(topic, ())) - {group_id} for topic in topics}

    def partitioned_by(self) -> tuple[str, ...]:
        snapshot = self._rows.look()
        return () if snapshot is None else delta_schema.partitioned_by(snapshot)

    def _label(self, table: Table, where: TopicPartition, progress: Progress | None) -> None:
        if progress is not None and progress.label is not None:
            self._labels[table][where] = progress.label
        else:
            self._labels[table].pop(where, None)

    @property
    def _keeps_rejected(self) -> bool:
        """Whether there are rejected rows; a sink that was not prepared reads the table if it exists."""
        return self._tables is None or self._tables.rejected is not None

    def writer(self, cycle_id: str) -> TaskWriter:
        tables = self._prepared()
        rows = self._files(self._rows, tables.rows, tables.partition_by)
        rejected = None if tables.rejected is None else self._files(self._rejected, tables.rejected, ())
        return DeltaWriter(rows, rejected, cycle_id)

    def _files(self, table: Table, schema: pa.Schema, partition_by: tuple[str, ...]) -> Shape:
        """How files of a table are written: partitioned as the table is now."""
        snapshot = table.look()
        if snapshot is not None:
            partition_by = tuple(snapshot.handle.metadata().partition_columns)
            delta_schema.check_partition_columns(snapshot, schema, (), table.directory)
        labels = dict(self._labels[table])
        return Shape(table.directory, schema, partition_by, self._target, self._compression, labels)

    def _prepared(self) -> Tables:
        if self._tables is None:
            raise MisuseError("call prepare() first")
        return self._tables

    # -- commits

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        tables = self._prepared()
        rows, rejected = unpack(cycle.written)
        self._compare(cycle)
        for table, files in ((self._rows, rows), (self._rejected, rejected)):
            if files and (snapshot := table.look()) is not None:  # before the first of two commits
                self._check_fit(table, snapshot, files)
        self._lost.add(cycle, [one for one in cycle.lost if one.reason is not Loss.LOADED])
        if tables.rejected is not None:
            steps = [Step.rejected(advance) for advance in cycle.advances]
            self._advance(self._rejected, cycle, steps, rejected)
            at("between tables")
        self._advance(self._rows, cycle, [Step.rows(advance) for advance in cycle.advances], rows)
        self._lost.add(cycle, [one for one in cycle.lost if one.reason is Loss.LOADED])

    def _compare(self, cycle: Cycle) -> None:
        """Find most conflicts before anything is written."""
        found = self.standing(cycle.group_id, [advance.where for advance in cycle.advances])
        for advance in cycle.advances:
            standing = found[advance.where]
            if standing != advance.expected:
                raise conflict(self.name, advance, advance.expected, standing)
            moves = standing.rows is not None and not advance.continues(standing.rows)
            assert not moves or advance.start == advance.end, "rows are labelled as the progress was"

    def _check_fit(self, table: Table, snapshot: DeltaSnapshot, files: Sequence[DataFile]) -> None:
        """Raise where the table was changed after ``prepare`` and the files no longer fit."""
        if files:
            delta_schema.check_files(snapshot, self._columns[table], files, table.directory)

    def _advance(self, table: Table, cycle: Cycle, steps: Sequence[Step], files: Sequence[DataFile]) -> None:
        gone = missing_files(table.directory, files)
        if gone:
            raise SinkError(
                f"files that tasks wrote for {table.directory} are missing or have another size "
                f"({', '.join(gone)}): was the directory cleaned up, or do tasks see another one than the "
                "driver?"
            )
        if not table.exists:
            self.prepare(cycle.group_id, self._prepared())
        if any(step.after.label is not None for step in steps):
            tables = self._prepared()
            delta_schema.add_labels(table, tables.rows if table is self._rows else tables.rejected)
        replaced_rows = {step.advance.where: step.replaced_rows for step in steps if step.replaces}
        remover = Remover(table.directory, replaced_rows, cycle.cycle_id, self._compression)

        def decide(snapshot: DeltaSnapshot) -> CommitPlan:
            if table is self._rows:
                cycle.require_alone(snapshot.groups(), self.name)
            for step in steps:
                found = snapshot.progress(step.name(cycle.group_id))
                if found != step.before:
                    raise conflict(f"delta:{table.directory}", step.advance, step.before, found)
            self._check_fit(table, snapshot, files)
            replaced = remover.plan(snapshot, frozenset())
            transactions = [
                transaction
                for step in steps
                for transaction in encode(
                    step.name(cycle.group_id), step.after, snapshot.version + 1, snapshot.transactions
                )
            ]
            moved = {step.name(cycle.group_id) for step in steps}
            for name, progress in snapshot.restored().items():
                if name not in moved:
                    transactions += pinned(name, progress, snapshot.version + 1, snapshot.transactions)
            return CommitPlan([*files, *replaced.add], replaced.remove, transactions, described(cycle))

        _transact(table, decide, remover)

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        try:
            for table, files in zip((self._rows, self._rejected), unpack(written), strict=True):
                if files and not is_named(table.directory, files):
                    for file in files:
                        if file.path not in table.unsettled:
                            remove(table.directory, file.path)
        except (SinkError, *TROUBLE, ValueError) as error:
            log.warning("files of cycle %s are left to vacuum: %s", cycle_id, error)

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest offset of a row of this partition that is not past ``offset``; None without any."""
        snapshot = self._rows.look()
        if snapshot is None:
            return None
        where = TopicPartition(topic, partition)
        label = self._labels[self._rows].get(where)
        with explained(f"the Delta table {self._directory} cannot be read"):
            return last_position(snapshot, self._directory, where, offset, label)

    def lost(self, group_id: str) -> list[LostRange]:
        return self._lost.read(group_id)

    # -- rejected rows

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        snapshot = self._rejected.look()
        if snapshot is None:
            schema = None if self._tables is None else self._tables.rejected
            return pa.table({}) if schema is None else schema.empty_table()
        order = ("rejected_at", *positions_of(snapshot))
        return read_ordered(snapshot, self._rejected.directory, order, limit)

    def rejected_batches(self) -> Iterator[pa.RecordBatch]:
        snapshot = self._rejected.look()
        return iter(()) if snapshot is None else read_batches(snapshot, self._rejected.directory)

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        rows, _ = unpack(written)
        if (snapshot := self._rejected.look()) is not None:  # check before rows are added to the other table
            refuse_append_only(snapshot, self._rejected.directory)
        repaired = self._add_repaired(positions, rows)
        at("between tables")
        if repaired:
            self._put(self._rejected, repaired, [])

    def _add_repaired(self, positions: Sequence[Position], files: Sequence[DataFile]) -> Deletions:
        """Add repaired rows; return the rejected rows to delete for them: those that exist while the snapshot
        of the rows is the one that the commit applies to.
        """
        replaced_rows = rows_to_delete(positions, self._labels[self._rows])
        found: list[tuple[int, Deletions]] = []

        def settle(rows: DeltaSnapshot) -> None:
            rejected = self._rejected.look()
            if rejected is None:
                found.append((rows.version, {}))
                return
            refuse_half_replaced(self.name, rows, rejected, positions)
            labels = self._labels[self._rejected]
            found.append((rows.version, repaired_rows(rejected, self._rejected.directory, positions, labels)))

        while not self._put(self._rows, replaced_rows, files, settle):  # done already, unless it has moved
            if newest_version(self._directory) == found[-1][0]:
                break
        return found[-1][1]

    def _put(
        self,
        table: Table,
        deletions: Deletions,
        files: Sequence[DataFile],
        settle: Callable[[DeltaSnapshot], None] = lambda _: None,
    ) -> bool:
        """Commit files in place of rows, without progress; False where that has already been done."""
        remover = Remover(table.directory, deletions, "readmit", self._compression)

        def decide(snapshot: DeltaSnapshot) -> CommitPlan | None:
            settle(snapshot)
            active = {file.path for file in snapshot.files()}
            new = [file for file in files if file.path not in active]
            self._check_fit(table, snapshot, new)
            replaced = remover.plan(snapshot, frozenset(f.path for f in files))
            if not new and not replaced.remove:
                return None
            return CommitPlan([*new, *replaced.add], replaced.remove)

        return _transact(table, decide, remover)

    # -- upkeep

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Join files smaller than ``target_bytes``, in the rows and in the rejected rows."""
        from millstream.spark.sinks.delta.upkeep import compact

        joined = 0
        for table in (self._rows, self._rejected):
            with explained(f"files of the Delta table {table.directory} could not be joined"):
                joined += compact(table, target_bytes, self._compression, at)
        return joined

    def vacuum(self, older_than: timedelta = timedelta(days=1)) -> int:
        """Delete files that tasks left behind and no commit names; returns how many.

        Only millstream's files that are older than any running cycle: what a cycle has written and not yet
        committed looks the same.
        """
        from millstream.spark.sinks.delta.upkeep import vacuum

        deleted = 0
        for table in (self._rows, self._rejected):
            with explained(f"the Delta table {table.directory} could not be cleaned up"):
                deleted += vacuum(table.directory, older_than)
        return deleted


def _transact(table: Table, decide: Callable[[DeltaSnapshot], CommitPlan | None], remover: Remover) -> bool:
    """Commit to a table; delete the rewritten files where the commit certainly was not made."""
    with explained(f"rows of the Delta table {table.directory} could not be replaced"):
        return table.transact(decide, remover.discard)


def _progress(snapshot: DeltaSnapshot | None, name: str) -> Progress | None:
    return None if snapshot is None else snapshot.progress(name)
