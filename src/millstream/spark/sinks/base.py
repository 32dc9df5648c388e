"""The sink protocol: what a load asks of a sink, and the five rules that make a load exactly-once.

A sink holds two tables, the rows and the rejected rows. For each partition of each group it stores how far
each table has come: its progress. The guarantee of a load depends on five rules:

1. ``TaskOutput`` may be opened twice for the same range (a retry, a speculative twin) and may die half-way.
   What it wrote is invisible until ``commit`` names it; files that no commit names are litter, not data.
2. ``commit`` makes rows and progress visible together. Per table it is one transaction: all or nothing.
3. ``commit`` compares before it sets: where the progress of any partition is not ``Advance.expected``,
   nothing of that table changes and ``ProgressConflictError`` is raised. So a zombie driver cannot write.
4. Where ``Advance.replaces`` is true, the rows of ``[start, end)`` that the table already holds are deleted
   in the same transaction: a rewind replaces rows, it never duplicates them. This holds for both tables, so a
   row that was loaded and is now rejected changes tables, and the reverse. Only rows of the same topic are
   deleted: those of a deleted topic of the same name have the same offsets and another ``Progress.label``.
5. ``commit`` returns only after it has read the new progress back. When the outcome is unknown (a timeout, a
   lost connection) it reads the tables to find out before it returns or raises.

A sink with one transaction over both tables (PostgreSQL) moves them together. One without (Delta) commits
rejected rows first, then rows. Each table then has its own progress, ``Standing`` shows both, and the load
continues from the slower one. What the faster one already holds is replaced as in a rewind, because the load
that continues may have another schema or other checks than the one that stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millstream.errors import MillstreamError
from millstream.model import TopicPartition

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


class ProgressConflictError(MillstreamError):
    """The table's progress is not what this cycle started from: another driver has moved it."""


class SinkError(MillstreamError):
    """The sink failed; the message names the sink, the table and the remedy. It may or may not pass."""


class SinkUnavailableError(SinkError):
    """The sink cannot be reached at the moment, or was interrupted, as by a restart: a load retries."""

    @property
    def retriable(self) -> bool:
        return True


class SinkRefusedError(SinkError):
    """The sink denies access or permission: a load gives up at once."""


class SchemaConflictError(SinkError):
    """The table's columns do not fit the load's, and the load may not add them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one table has come in one partition."""

    next_offset: int
    """Every record below this offset was loaded or rejected."""
    high_offset: int
    """The greatest ``next_offset`` ever. While ``next_offset`` is below it, a rewind is replacing rows."""
    topic_id: str
    """The topic's id when it was loaded (hexadecimal); a recreated topic of the same name has another."""
    remade: int = 0
    """How many topics of this name the table held before this one: their rows have the same offsets."""
    low_offset: int = 0
    """The least offset that was ever to be loaded. Records below it were never loaded, though they may have
    been in the log: a load may start at the log's end, or where a reset said."""
    gap_end: int = 0
    """After a rewind to below ``low_offset``: offsets from ``next_offset`` to this one were never loaded
    either. Not past ``next_offset`` where there is no such gap."""

    @property
    def has_gap(self) -> bool:
        return self.next_offset < self.gap_end

    def never_loaded(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``[start, end)`` that were never in the table, nor recorded as lost.

        After rewinds from within a gap the result may include offsets that were loaded.
        """
        gap = (max(self.next_offset, self.low_offset), self.gap_end)
        ranges = ((0, self.low_offset), gap, (self.high_offset, end))
        found = [(max(start, first), min(end, last)) for first, last in ranges]
        return [(first, last) for first, last in found if first < last]

    @property
    def label(self) -> str | None:
        """Tells rows of this topic from those of earlier topics of the same name: rows of the first topic
        have no label, those of a recreated one have its id.
        """
        return self.topic_id if self.remade else None


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition's progress in both tables; None where a table has none."""

    rows: Progress | None
    rejected: Progress | None

    @property
    def half_replaced(self) -> range:
        """Offsets that a rewind has passed in the rejected rows but not yet in the rows: its next commit
        deletes the rows there.
        """
        rows, rejected = self.rows, self.rejected
        if rows is None or rejected is None or rows.topic_id != rejected.topic_id:
            return range(0)
        return range(rows.next_offset, min(rejected.next_offset, rows.high_offset))


@dataclass(frozen=True, slots=True)
class Advance:
    """One partition's step in one commit: from the expected progress to ``end``.

    Before the first rows of a recreated topic comes an empty step, from ``start`` to ``start``, which moves
    the progress to the new topic: so the sink knows the label of the rows when ``writer`` is called.
    """

    topic: str
    partition: int
    topic_id: str
    start: int
    end: int
    expected: Standing
    """What ``Sink.standing`` returned when the cycle was planned."""
    lost_from: int | None = None
    """The start of the first range that this commit records as lost."""
    alone: bool = False
    """No other group may have progress of this topic in the table, or every record would be there twice: see
    ``Cycle.require_alone``, for sinks with ``other_groups``."""

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def after(self, before: Progress | None) -> Progress:
        """A table's progress after this step."""
        low = self.start if self.lost_from is None else min(self.start, self.lost_from)
        if before is None:
            return Progress(self.end, self.end, self.topic_id, low_offset=low)
        if not self.continues(before):
            return Progress(self.end, self.end, self.topic_id, before.remade + 1, low)
        high = max(before.high_offset, self.end)
        gap_end = before.gap_end if before.has_gap else before.low_offset if low < before.low_offset else 0
        return Progress(
            self.end,
            high,
            self.topic_id or before.topic_id,
            before.remade,
            min(low, before.low_offset),
            gap_end if self.end < gap_end else 0,
        )

    def replaces(self, before: Progress | None) -> bool:
        """Whether the table may already hold rows of ``[start, end)`` of this topic (of earlier topics of
        the same name they stay, see ``Progress.label``).
        """
        return before is not None and self.continues(before) and self.start < before.high_offset

    def continues(self, before: Progress) -> bool:
        """Whether this is the same topic; assumed where a broker is too old to give topic ids."""
        return before.topic_id == self.topic_id or not (before.topic_id and self.topic_id)


class Position(NamedTuple):
    """The record that a row came from."""

    topic: str
    partition: int
    offset: int


class Loss(StrEnum):
    """Why a range of offsets was not loaded, or that it was loaded after all."""

    RETENTION = "retention"
    """The broker deleted it before it was loaded."""
    SKIPPED = "skipped"
    """The group's offset was moved forward past it."""
    LOADED = "loaded"
    """It was recorded as lost, and was loaded later: see ``load.decisions.losses``."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets ``[start, end)`` that were never loaded; stored beside the table."""

    topic: str
    partition: int
    start: int
    end: int
    reason: Loss
    noticed_at: datetime
    topic_id: str = ""
    """The topic's id (hexadecimal); empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote, as it is sent back to the driver. Only the sink reads ``payload``."""

    rows: int
    rejected: int
    size: int
    """Bytes on disk or on the wire."""
    files: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cycle:
    """The arguments of one commit."""

    group_id: str
    cycle_id: str
    advances: tuple[Advance, ...]
    written: tuple[Written, ...]
    lost: tuple[LostRange, ...] = ()

    def require_alone(self, groups: Mapping[str, Iterable[str]], table: str) -> None:
        """Raise ProgressConflictError where one of the ``groups`` by topic, as the commit's transaction reads
        them, has loaded a topic that an advance wants alone: it began in the same moment.
        """
        for topic in sorted({advance.topic for advance in self.advances if advance.alone}):
            others = sorted(set(groups.get(topic, ())) - {self.group_id})
            if others:
                raise ProgressConflictError(
                    f"group {' and '.join(others)} has just begun to load {topic} into {table}: nothing of "
                    f"group {self.group_id} was committed there"
                )


@dataclass(frozen=True, slots=True)
class Tables:
    """The schemas of what a load writes."""

    rows: pa.Schema
    """Columns of the rows. Positions are in ``topic``, ``partition`` and ``offset`` (raw), or in the same
    names with an underscore before them (with a schema): see ``positions``."""
    rejected: pa.Schema | None
    """Columns of the rejected rows; None where nothing can be rejected (a raw load)."""
    partition_by: tuple[str, ...] = ()
    """Partition columns of the rows. The field of a derived one says how in its metadata: see
    ``sinks.partitioning``."""
    add_columns: bool = False
    """Whether columns that an existing table lacks are added (nullable); otherwise SchemaConflictError."""

    @property
    def positions(self) -> tuple[str, str, str]:
        """The names of the columns that hold a row's topic, partition and offset."""
        return positions_among(self.rows.names)


def positions_among(names: Container[str]) -> tuple[str, str, str]:
    """Which of a table's columns hold a row's topic, partition and offset."""
    if "_offset" in names:
        return "_topic", "_partition", "_offset"
    return "topic", "partition", "offset"


def label_column(positions: tuple[str, str, str]) -> str:
    """The column for ``Progress.label`` in a table with these positions. It is added when a table is to hold
    a second topic of the same name.
    """
    return f"{positions[0]}_id"


class TaskOutput(Protocol):
    """One attempt of one task; used by one thread, in the task's process."""

    def write_rows(self, batch: pa.RecordBatch) -> None: ...

    def write_rejected(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> Written:
        """Make what was written durable, still invisible; raise if any of it is not."""

    def abort(self) -> None:
        """Clean up after a failure, as far as possible; never raises."""


class TaskWriter(Protocol):
    """Pickled into each task; knows the tables, holds no connection."""

    def open(self) -> TaskOutput: ...


class Sink(Protocol):
    """Lives in the driver and keeps the five rules above. ``capabilities`` has its optional methods."""

    @property
    def name(self) -> str:
        """The address as a user would type it: ``delta:lake/orders``."""

    def prepare(self, group_id: str, tables: Tables) -> None:
        """Create missing tables and check existing ones; raises SchemaConflictError or SinkError."""

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        """Each partition's progress, always read from the tables."""

    def writer(self, cycle_id: str) -> TaskWriter: ...

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        """Commit rows, rejected rows, lost ranges and progress, by the five rules.

        Call ``at("between tables")`` between the two transactions, if there are two.
        """

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        """Delete what tasks wrote for a cycle that is not committed, as far as possible; never raises."""

    def lost(self, group_id: str) -> list[LostRange]:
        """All that commits have recorded of this group, in the order in which it was noticed."""

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        """Move repaired rows from the rejected rows to the rows: ``written`` replaces any rows at the same
        positions, then ``positions`` are deleted from the rejected rows. No progress moves. It is idempotent,
        also after a crash half-way. Positions are of the topics that ``standing`` last returned. If a load
        rewinds over them at the same time, each record still ends up in exactly one table.
        """

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        """The rejected rows, newest last."""

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Join small files, if there are any, safely while loads run; returns how many files were removed."""

    def close(self) -> None: ...
