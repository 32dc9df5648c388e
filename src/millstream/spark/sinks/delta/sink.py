"""Loads into Delta Lake: a directory, no server. See ``millstream.spark.sinks.base`` for the rules kept here.

Three tables: the rows at DIR, the rejected rows at DIR_rejected, and at DIR_lost the ranges that nobody could
load. Tasks write Parquet files; the driver's commits name them and carry the progress as transactions of the
same commits (``delta_progress``), each made strictly on top of what was read (``delta_table``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema

from millstream.errors import ConfigError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Cycle,
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
from millstream.spark.sinks.delta.errors import TROUBLE, explained, failed
from millstream.spark.sinks.delta.log import newest_version
from millstream.spark.sinks.delta.lost import LostRanges
from millstream.spark.sinks.delta.output import DeltaWriter
from millstream.spark.sinks.delta.parquet.files import DataFile, Shape, remove, sync, unpack
from millstream.spark.sinks.delta.parquet.reading import read_batches, read_ordered
from millstream.spark.sinks.delta.parquet.search import Wanted, last_position, positions_of
from millstream.spark.sinks.delta.progress import application, encode, pinned
from millstream.spark.sinks.delta.readmit import Leaving, leaving, refuse_half_replaced
from millstream.spark.sinks.delta.replace import Remover, doomed_positions, refuse_append_only
from millstream.spark.sinks.delta.steps import Step, conflict, described
from millstream.spark.sinks.delta.table import Change, Snapshot, Table, is_named, missing_files

log = logging.getLogger("millstream.spark")

TARGET_FILE_SIZE: Final = 128 << 20
COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "none")


class DeltaSink:
    """Rows into the Delta table at ``path``, which is made when it is missing.

    ``path`` is a directory that the driver and all tasks see under the same name: on one machine any, on a
    cluster a shared one. ``target_file_size`` is in bytes; a cycle with less writes less.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target_file_size: int = TARGET_FILE_SIZE,
        compression: str = "snappy",
    ) -> None:
        typed = os.fspath(path)
        if "://" in typed and not typed.startswith("file://"):
            raise ConfigError(
                f"a Delta table is kept in a directory, not at {typed}: object stores are not supported yet. "
                "Mount it, or load into a directory and copy the table"
            )
        if target_file_size < 1:
            raise ConfigError(f"target_file_size must be positive, not {target_file_size}")
        if compression not in COMPRESSIONS:
            raise ConfigError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
        self._typed = typed
        self._directory = Path(typed.removeprefix("file://")).absolute()
        self._target = target_file_size
        self._compression = compression
        self._tables: Tables | None = None
        self._rows = Table(self._directory)
        self._rejected = Table(_beside(self._directory, "_rejected"))
        self._lost = LostRanges(Table(_beside(self._directory, "_lost")))
        self._labels: dict[Table, dict[TopicPartition, str]] = {self._rows: {}, self._rejected: {}}
        """Of both tables, as they were when their standing was last looked at."""
        self._columns: dict[Table, Schema] = {}
        """Those of the load in each table, as it was prepared."""

    def __repr__(self) -> str:
        return f"DeltaSink({self._typed!r})"

    @property
    def name(self) -> str:
        return f"delta:{self._typed}"

    def close(self) -> None:
        """Nothing is held open."""

    # -- before a load

    def check(self, tables: Tables) -> None:
        """Raise SchemaConflictError for columns, or partitions of them, that Delta does not have."""
        delta_schema.delta_schema(tables.rows, self._directory)
        delta_schema.check_partitioning(tables.rows, tables.partition_by, self._directory)

    def prepare(self, group_id: str, tables: Tables) -> None:
        self._tables = tables
        self._shape(self._rows, tables.rows, tables.partition_by)
        if tables.rejected is not None:
            self._shape(self._rejected, tables.rejected, ())

    def _shape(self, table: Table, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        """Make a table, or see that it fits."""
        wanted = delta_schema.delta_schema(schema, table.directory)
        delta_schema.check_partitioning(schema, partition_by, table.directory)
        snapshot = table.look()
        if snapshot is None:
            snapshot = _create(table, wanted, partition_by)
        found = tuple(snapshot.handle.metadata().partition_columns)
        if partition_by and found != partition_by:
            raise SinkError(
                f"the Delta table {table.directory} is partitioned by ({', '.join(found)}), not by "
                f"({', '.join(partition_by)}): leave that out, or load into another table"
            )
        delta_schema.check_partition_columns(schema, found, table.directory)
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

    def _label(self, table: Table, where: TopicPartition, progress: Progress | None) -> None:
        if progress is not None and progress.label is not None:
            self._labels[table][where] = progress.label
        else:
            self._labels[table].pop(where, None)

    @property
    def _keeps_rejected(self) -> bool:
        """Whether there are rejected rows; a sink that was not prepared looks for what is there."""
        return self._tables is None or self._tables.rejected is not None

    def writer(self, cycle_id: str) -> TaskWriter:
        tables = self._prepared()
        rows = self._files(self._rows, tables.rows, tables.partition_by)
        rejected = None if tables.rejected is None else self._files(self._rejected, tables.rejected, ())
        return DeltaWriter(rows, rejected, cycle_id)

    def _files(self, table: Table, schema: pa.Schema, partition_by: tuple[str, ...]) -> Shape:
        """How files of a table are written: divided as it is now, whoever made it."""
        snapshot = table.look()
        if snapshot is not None:
            partition_by = tuple(snapshot.handle.metadata().partition_columns)
            delta_schema.check_partition_columns(schema, partition_by, table.directory)
        return Shape(
            str(table.directory),
            schema,
            partition_by,
            self._target,
            self._compression,
            dict(self._labels[table]),
        )

    def _prepared(self) -> Tables:
        if self._tables is None:
            raise MisuseError("prepare the sink first")
        return self._tables

    # -- commits

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        tables = self._prepared()
        rows, rejected = unpack(cycle.written)
        self._compare(cycle)
        for table, files in ((self._rows, rows), (self._rejected, rejected)):
            if files and (snapshot := table.look()) is not None:  # before the first of two commits
                self._check_fit(table, snapshot, files)
        self._lost.add(cycle.group_id, cycle.cycle_id, cycle.lost)
        if tables.rejected is not None:
            steps = [Step.rejected(advance) for advance in cycle.advances]
            self._advance(self._rejected, cycle, steps, rejected)
            at("between tables")
        self._advance(self._rows, cycle, [Step.rows(advance) for advance in cycle.advances], rows)

    def _compare(self, cycle: Cycle) -> None:
        """Refuse what is out of date before anything is done: most conflicts end here."""
        found = self.standing(
            cycle.group_id, [TopicPartition(advance.topic, advance.partition) for advance in cycle.advances]
        )
        for advance in cycle.advances:
            standing = found[TopicPartition(advance.topic, advance.partition)]
            if standing != advance.expected:
                raise conflict(self.name, advance, advance.expected, standing)
            moves = standing.rows is not None and not advance.continues(standing.rows)
            assert not moves or advance.start == advance.end, "rows are labelled as the progress was"

    def _check_fit(self, table: Table, snapshot: Snapshot, files: Sequence[DataFile]) -> None:
        """Raise where somebody has changed the table since it was prepared, so that files do not fit it."""
        if files:
            delta_schema.check_files(snapshot, self._columns[table], files, table.directory)

    def _advance(self, table: Table, cycle: Cycle, steps: Sequence[Step], files: Sequence[DataFile]) -> None:
        gone = missing_files(table.directory, files)
        if gone:
            raise SinkError(
                f"files that tasks wrote for {table.directory} are not there, or not as written "
                f"({', '.join(gone)}): was it cleaned up, or do tasks see another directory than the driver?"
            )
        if not table.exists:
            self.prepare(cycle.group_id, self._prepared())
        if any(step.after.label is not None for step in steps):
            tables = self._prepared()
            delta_schema.add_labels(table, tables.rows if table is self._rows else tables.rejected)
        doomed = {TopicPartition(s.advance.topic, s.advance.partition): s.doomed for s in steps if s.replaces}
        remover = Remover(table.directory, doomed, cycle.cycle_id, self._compression)

        def decide(snapshot: Snapshot) -> Change:
            for step in steps:
                found = snapshot.progress(step.name(cycle.group_id))
                if found != step.before:
                    raise conflict(f"delta:{table.directory}", step.advance, step.before, found)
            self._check_fit(table, snapshot, files)
            replaced = remover.outcome(snapshot, positions_of(snapshot), frozenset())
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
            return Change([*files, *replaced.add], replaced.remove, transactions, described(cycle))

        _transact(table, decide, remover)

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        try:
            for table, files in zip((self._rows, self._rejected), unpack(written), strict=True):
                if files and not is_named(table.directory, files):
                    for file in files:
                        remove(table.directory, file.path)
        except (SinkError, *TROUBLE, ValueError) as error:
            log.warning("files of cycle %s are left to vacuum: %s", cycle_id, error)

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest position of a row of this partition that is not past ``offset``; None without any."""
        snapshot = self._rows.look()
        if snapshot is None:
            return None
        where = TopicPartition(topic, partition)
        wanted = Wanted(where, offset, self._labels[self._rows].get(where))
        with explained(f"the Delta table {self._directory} cannot be read"):
            return last_position(snapshot, self._directory, wanted)

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
        if (snapshot := self._rejected.look()) is not None:  # what cannot leave here must not enter there
            refuse_append_only(snapshot, self._rejected.directory)
        gone = self._enter(positions, rows)
        at("between tables")
        if gone:
            self._put(self._rejected, gone, [])

    def _enter(self, positions: Sequence[Position], files: Sequence[DataFile]) -> Leaving:
        """Repaired rows into the table; which rejected rows leave for them. Those that are there while the
        rows are what the commit is made on top of: nothing comes in between.
        """
        entering = doomed_positions(positions, self._labels[self._rows])
        found: list[tuple[int, Leaving]] = []

        def settle(rows: Snapshot) -> None:
            rejected = self._rejected.look()
            if rejected is None:
                found.append((rows.version, {}))
                return
            refuse_half_replaced(self.name, rows, rejected, positions)
            labels = self._labels[self._rejected]
            found.append((rows.version, leaving(rejected, self._rejected.directory, positions, labels)))

        while not self._put(self._rows, entering, files, settle):  # nothing to do there, if it stays so
            if newest_version(self._directory) == found[-1][0]:
                break
        return found[-1][1]

    def _put(
        self,
        table: Table,
        doomed: Leaving,
        files: Sequence[DataFile],
        settle: Callable[[Snapshot], None] = lambda _: None,
    ) -> bool:
        """Files into a table in place of rows, without any progress; False where that has been done."""
        remover = Remover(table.directory, doomed, "readmit", self._compression)

        def decide(snapshot: Snapshot) -> Change | None:
            settle(snapshot)
            active = {file.path for file in snapshot.files()}
            new = [file for file in files if file.path not in active]
            self._check_fit(table, snapshot, new)
            replaced = remover.outcome(snapshot, positions_of(snapshot), frozenset(f.path for f in files))
            if not new and not replaced.remove:
                return None
            return Change([*new, *replaced.add], replaced.remove)

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
        """Delete files that tasks left behind and no commit names; how many.

        Only files of millstream, and only such as are older than any cycle could be: what a cycle has written
        and not yet committed looks the same.
        """
        from millstream.spark.sinks.delta.upkeep import vacuum

        deleted = 0
        for table in (self._rows, self._rejected):
            with explained(f"the Delta table {table.directory} could not be cleaned up"):
                deleted += vacuum(table.directory, older_than)
        return deleted


def _transact(table: Table, decide: Callable[[Snapshot], Change | None], remover: Remover) -> bool:
    """Change a table; what was written anew is deleted again where the change certainly did not happen."""
    with explained(f"rows of the Delta table {table.directory} could not be replaced"):
        return table.transact(decide, remover.discard)


def _create(table: Table, schema: Schema, partition_by: tuple[str, ...]) -> Snapshot:
    try:
        DeltaTable.create(str(table.directory), schema=schema, partition_by=list(partition_by), mode="ignore")
    except TROUBLE as error:
        if (snapshot := table.look()) is not None:  # another driver was faster
            return snapshot
        raise failed(f"the Delta table {table.directory} could not be made", error) from error
    snapshot = table.look()
    if snapshot is None:
        raise SinkError(f"the Delta table {table.directory} is gone as soon as it was made")
    for directory in (table.directory, table.directory.parent):
        sync(directory)
    return snapshot


def _progress(snapshot: Snapshot | None, name: str) -> Progress | None:
    return None if snapshot is None else snapshot.progress(name)


def _beside(directory: Path, suffix: str) -> Path:
    return directory.with_name(directory.name + suffix)
