"""Loads into Delta Lake: a directory, no server. See ``millstream.spark.sinks.base`` for the rules kept here.

Three tables: the rows at DIR, the rejected rows at DIR_rejected, and at DIR_lost the ranges that nobody could
load. Tasks write Parquet files; the driver's commits name them and carry the progress as transactions of the
same commits (``delta_progress``), each made strictly on top of what was read (``delta_table``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from millstream.errors import ConfigError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.sinks import delta_schema
from millstream.spark.sinks.base import (
    Advance,
    Cycle,
    LostRange,
    Position,
    Progress,
    ProgressConflictError,
    SinkError,
    Standing,
    Tables,
    TaskWriter,
    Written,
)
from millstream.spark.sinks.delta_files import DataFile, Shape, remove, sync, unpack
from millstream.spark.sinks.delta_lost import LostRanges
from millstream.spark.sinks.delta_output import DeltaWriter
from millstream.spark.sinks.delta_progress import application, encode
from millstream.spark.sinks.delta_reading import read_batches, read_ordered
from millstream.spark.sinks.delta_replace import Doomed, Remover, doomed_positions
from millstream.spark.sinks.delta_search import Wanted, last_position, positions_of
from millstream.spark.sinks.delta_table import Change, Snapshot, Table, missing_files

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
        self._lost.add(cycle.group_id, cycle.cycle_id, cycle.lost)
        if tables.rejected is not None:
            steps = [_Step.rejected(advance) for advance in cycle.advances]
            self._advance(self._rejected, cycle, steps, rejected)
            at("between tables")
        self._advance(self._rows, cycle, [_Step.rows(advance) for advance in cycle.advances], rows)

    def _compare(self, cycle: Cycle) -> None:
        """Refuse what is out of date before anything is done: most conflicts end here."""
        found = self.standing(
            cycle.group_id, [TopicPartition(advance.topic, advance.partition) for advance in cycle.advances]
        )
        for advance in cycle.advances:
            standing = found[TopicPartition(advance.topic, advance.partition)]
            if standing != advance.expected:
                raise _conflict(self.name, advance, advance.expected, standing)
            moves = standing.rows is not None and not advance.continues(standing.rows)
            assert not moves or advance.start == advance.end, "rows are labelled as the progress was"

    def _advance(self, table: Table, cycle: Cycle, steps: Sequence[_Step], files: Sequence[DataFile]) -> None:
        gone = missing_files(table.directory, files)
        if gone:
            raise SinkError(
                f"files that tasks wrote for {table.directory} are not there, or not as written "
                f"({', '.join(gone)}): was it cleaned up, or do tasks see another directory than the driver?"
            )
        if not table.exists:
            self.prepare(cycle.group_id, self._prepared())
        if any(step.after.label is not None for step in steps):
            delta_schema.add_labels(table, self._columns(table))
        doomed = {TopicPartition(s.advance.topic, s.advance.partition): s.doomed for s in steps if s.replaces}
        remover = Remover(table.directory, doomed, cycle.cycle_id, self._compression)

        def decide(snapshot: Snapshot) -> Change:
            for step in steps:
                found = snapshot.progress(step.name(cycle.group_id))
                if found != step.before:
                    raise _conflict(f"delta:{table.directory}", step.advance, step.before, found)
            replaced = remover.outcome(snapshot, positions_of(snapshot), frozenset())
            transactions = [
                transaction
                for step in steps
                for transaction in encode(
                    step.name(cycle.group_id), step.after, snapshot.version + 1, snapshot.transactions
                )
            ]
            return Change([*files, *replaced.add], replaced.remove, transactions, _described(cycle))

        _transact(table, decide, remover)

    def _columns(self, table: Table) -> pa.Schema:
        tables = self._prepared()
        return tables.rows if table is self._rows else tables.rejected

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        try:
            for table, files in zip((self._rows, self._rejected), unpack(written), strict=True):
                snapshot = table.look() if files else None
                active = set() if snapshot is None else {file.path for file in snapshot.files()}
                if not any(file.path in active for file in files):
                    for file in files:
                        remove(table.directory, file.path)
        except (SinkError, DeltaError, OSError, ValueError) as error:
            log.warning("files of cycle %s are left to vacuum: %s", cycle_id, error)

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest position of a row of this partition that is not past ``offset``; None without any."""
        snapshot = self._rows.look()
        if snapshot is None:
            return None
        where = TopicPartition(topic, partition)
        return last_position(
            snapshot, self._directory, Wanted(where, offset, self._labels[self._rows].get(where))
        )

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
        self._put(self._rows, positions, rows)
        at("between tables")
        self._put(self._rejected, positions, [])

    def _put(self, table: Table, positions: Sequence[Position], files: Sequence[DataFile]) -> None:
        """Files into a table in place of rows, without any progress; nothing where that has been done."""
        doomed = doomed_positions(positions, self._labels[table])
        remover = Remover(table.directory, doomed, "readmit", self._compression)

        def decide(snapshot: Snapshot) -> Change | None:
            active = {file.path for file in snapshot.files()}
            new = [file for file in files if file.path not in active]
            replaced = remover.outcome(snapshot, positions_of(snapshot), frozenset(f.path for f in files))
            if not new and not replaced.remove:
                return None
            return Change([*new, *replaced.add], replaced.remove)

        _transact(table, decide, remover)

    # -- upkeep

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Join files smaller than ``target_bytes``, in the rows and in the rejected rows."""
        from millstream.spark.sinks.delta_upkeep import compact

        tables = (self._rows, self._rejected)
        return sum(compact(table, target_bytes, self._compression, at) for table in tables)

    def vacuum(self, older_than: timedelta = timedelta(days=1)) -> int:
        """Delete files that tasks left behind and no commit names; how many.

        Only files of millstream, and only such as are older than any cycle could be: what a cycle has written
        and not yet committed looks the same.
        """
        from millstream.spark.sinks.delta_upkeep import vacuum

        return sum(vacuum(table.directory, older_than) for table in (self._rows, self._rejected))


@dataclass(frozen=True, slots=True)
class _Step:
    """What an advance means for one of the two tables."""

    advance: Advance
    before: Progress | None

    @classmethod
    def rows(cls, advance: Advance) -> _Step:
        return cls(advance, advance.expected.rows)

    @classmethod
    def rejected(cls, advance: Advance) -> _Step:
        return cls(advance, advance.expected.rejected)

    def name(self, group_id: str) -> str:
        return application(group_id, self.advance.topic, self.advance.partition)

    @property
    def after(self) -> Progress:
        return self.advance.after(self.before)

    @property
    def replaces(self) -> bool:
        return self.advance.replaces(self.before) and self.advance.start < self.advance.end

    @property
    def doomed(self) -> Doomed:
        return Doomed(self.advance.start, self.advance.end, label=self.after.label)


def _transact(table: Table, decide: Callable[[Snapshot], Change | None], remover: Remover) -> None:
    """Change a table; what was written anew is deleted again where the change certainly did not happen."""
    try:
        table.transact(decide, remover.discard)
    except (OSError, pa.ArrowException) as error:
        raise SinkError(
            f"rows of the Delta table {table.directory} could not be replaced: {error}"
        ) from error


def _create(table: Table, schema: Schema, partition_by: tuple[str, ...]) -> Snapshot:
    try:
        DeltaTable.create(str(table.directory), schema=schema, partition_by=list(partition_by), mode="ignore")
    except (DeltaError, OSError) as error:
        if (snapshot := table.look()) is not None:  # another driver was faster
            return snapshot
        raise SinkError(f"the Delta table {table.directory} could not be made: {error}") from error
    snapshot = table.look()
    if snapshot is None:
        raise SinkError(f"the Delta table {table.directory} is gone as soon as it was made")
    for directory in (table.directory, table.directory.parent):
        sync(directory)
    return snapshot


def _progress(snapshot: Snapshot | None, name: str) -> Progress | None:
    return None if snapshot is None else snapshot.progress(name)


def _described(cycle: Cycle) -> dict[str, str]:
    """For whoever reads the table's history."""
    ranges = ", ".join(
        f"{advance.topic}-{advance.partition} [{advance.start}, {advance.end}) of {advance.topic_id}"
        for advance in cycle.advances
    )
    return {
        "millstream.group": cycle.group_id,
        "millstream.cycle": cycle.cycle_id,
        "millstream.ranges": ranges,
    }


def _conflict(name: str, advance: Advance, expected: object, found: object) -> ProgressConflictError:
    return ProgressConflictError(
        f"{name} is not where this cycle started from in {advance.topic}-{advance.partition}: expected "
        f"{expected}, found {found}. Another driver has moved it; nothing of this cycle was written there"
    )


def _beside(directory: Path, suffix: str) -> Path:
    return directory.with_name(directory.name + suffix)
