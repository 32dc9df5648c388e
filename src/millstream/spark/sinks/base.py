"""What a load asks of a sink, and what it promises in return.

A sink holds two tables, the rows and the rejected rows, and remembers for each partition of each group how
far each table has come. The whole guarantee of a load stands on five rules:

1. ``TaskOutput`` may be opened twice for the same range (a retry, a speculative twin) and may die half-way.
   Whatever it wrote stays invisible until ``commit`` names it; what no commit names is litter, not data.
2. ``commit`` makes rows and progress visible together. Per table it is one transaction: all or nothing.
3. ``commit`` compares before it sets: where the progress of any partition is not ``Advance.expected``,
   nothing of that table changes and ``ProgressConflictError`` is raised. So a driver that was left for dead
   cannot write.
4. Where ``Advance.replaces`` is true the rows of ``[start, end)`` that the table holds already leave it in
   the same transaction: a rewind replaces, it never doubles. This holds for both tables, so that a row which
   was loaded and is now rejected changes tables, and the reverse. Only rows of the same topic leave: those of
   an earlier one of its name, deleted since, have the same positions and another ``Progress.label``.
5. ``commit`` returns only when it has read the new progress back. When the outcome is unknown (a time-out, a
   cut connection) it finds out, by reading, before it returns or raises.

A sink with one transaction over both tables (PostgreSQL) moves them together. One without (Delta) commits
rejected rows first, then rows; each table then has a progress of its own, and ``Standing`` shows both. The
load goes on from the slower one. What the faster one holds already is replaced as in a rewind, for the load
that goes on may have another schema or other checks than the one that stopped.
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
    """The table's progress is not what this cycle started from: someone else has moved it."""


class SinkError(MillstreamError):
    """The sink could not do it; the message names the sink, the table and the remedy."""


class SinkUnavailableError(SinkError):
    """The sink cannot be reached for the moment, or was interrupted, as by its restart: a load tries for a
    while. Of a plain SinkError nobody knows whether it passes.
    """

    @property
    def retriable(self) -> bool:
        return True


class SinkRefusedError(SinkError):
    """The sink does not let this user in, or do that: a load gives up at once, until somebody changes it."""


class SchemaConflictError(SinkError):
    """The table's columns do not fit the load's, and it was not allowed to add them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one table has come in one partition."""

    next_offset: int
    """All that lies below and was not rejected is in the table."""
    high_offset: int
    """The furthest that the table has ever come. Below it a rewind is under way: rows are replaced."""
    topic_id: str
    """The topic's id when it was loaded (hexadecimal); a topic made anew under the same name has another."""
    remade: int = 0
    """How many topics of this name the table has held before this one: their rows have the same positions."""
    low_offset: int = 0
    """The least that the table was ever to hold. What lies below was never loaded, though it may have been in
    the log: a load may begin at the log's end, or where a reset said."""
    gap_end: int = 0
    """A rewind to below what was the least has yet to come here: past ``next_offset``, all that lies before
    this was never loaded either. Not past ``next_offset`` where there is no such gap."""

    @property
    def has_gap(self) -> bool:
        return self.next_offset < self.gap_end

    def never_loaded(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of ``[start, end)`` was never in the table, nor recorded as lost. In doubt it was not: after
        rewinds from within a gap, some of what is told may be there.
        """
        gap = (max(self.next_offset, self.low_offset), self.gap_end)
        ranges = ((0, self.low_offset), gap, (self.high_offset, end))
        found = [(max(start, first), min(end, last)) for first, last in ranges]
        return [(first, last) for first, last in found if first < last]

    @property
    def label(self) -> str | None:
        """What tells the rows of this topic from those of earlier ones of its name: rows of the first have
        no label, those of a topic made anew have its id.
        """
        return self.topic_id if self.remade else None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a partition stands in both tables; None where a table has never seen it."""

    rows: Progress | None
    rejected: Progress | None

    @property
    def half_replaced(self) -> range:
        """Offsets that a rewind has passed in the rejected rows and not yet in the rows: what the rows hold
        there leaves them with its next commit.
        """
        rows, rejected = self.rows, self.rejected
        if rows is None or rejected is None or rows.topic_id != rejected.topic_id:
            return range(0)
        return range(rows.next_offset, min(rejected.next_offset, rows.high_offset))


@dataclass(frozen=True, slots=True)
class Advance:
    """One partition's step in one commit: from what is expected to ``end``.

    Before rows of a topic that was made anew there is a step without any, from ``start`` to ``start``, which
    moves the progress to the new topic: as ``writer`` is asked for, the sink knows whose rows will come.
    """

    topic: str
    partition: int
    topic_id: str
    start: int
    end: int
    expected: Standing
    """What ``Sink.standing`` said when the cycle was planned."""
    lost_from: int | None = None
    """Where the first of the ranges begins that this commit records as lost."""

    def after(self, before: Progress | None) -> Progress:
        """A table's progress once this step is done."""
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
        """Whether the table may already hold rows of ``[start, end)`` of this topic. Rows of earlier topics
        of its name (``Progress.label``) are not meant, and stay.
        """
        return before is not None and self.continues(before) and self.start < before.high_offset

    def continues(self, before: Progress) -> bool:
        """Whether this is the same topic. A broker that is too old for ids tells none, and proves nothing."""
        return before.topic_id == self.topic_id or not (before.topic_id and self.topic_id)


class Position(NamedTuple):
    """Which record a row came from."""

    topic: str
    partition: int
    offset: int


class Loss(StrEnum):
    """Why a range of offsets will never be in the table."""

    RETENTION = "retention"
    """The broker deleted it before it was loaded."""
    SKIPPED = "skipped"
    """The group's offset was moved forward past it."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets ``[start, end)`` that were never loaded; kept beside the table for whoever asks later."""

    topic: str
    partition: int
    start: int
    end: int
    reason: Loss
    noticed_at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """What one task wrote, as it travels back to the driver. Only the sink understands ``payload``."""

    rows: int
    rejected: int
    size: int
    """Bytes on the disk or the wire."""
    files: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cycle:
    """Everything one commit needs."""

    group_id: str
    cycle_id: str
    advances: tuple[Advance, ...]
    written: tuple[Written, ...]
    lost: tuple[LostRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """The shape of what a load writes."""

    rows: pa.Schema
    """Columns of the rows. Their positions are in ``topic``/``partition``/``offset`` (raw) or the same with
    an underscore (with a schema): see ``positions``."""
    rejected: pa.Schema | None
    """Columns of the rejected rows; None when nothing can be rejected (raw landing)."""
    partition_by: tuple[str, ...] = ()
    add_columns: bool = False
    """Whether columns that an existing table lacks are added (nullable); otherwise SchemaConflictError."""

    @property
    def positions(self) -> tuple[str, str, str]:
        """The names of the columns that say which record a row came from."""
        return positions_among(self.rows.names)


def positions_among(names: Container[str]) -> tuple[str, str, str]:
    """Which of a table's columns say which record a row came from."""
    if "_offset" in names:
        return "_topic", "_partition", "_offset"
    return "topic", "partition", "offset"


def label_column(positions: tuple[str, str, str]) -> str:
    """The column for ``Progress.label`` in a table with these positions. A table is given it when it is to
    hold a second topic of one name, and has no use for it before.
    """
    return f"{positions[0]}_id"


class TaskOutput(Protocol):
    """One attempt of one task; used by one thread, in the task's process."""

    def write_rows(self, batch: pa.RecordBatch) -> None: ...

    def write_rejected(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> Written:
        """Make it durable, still invisible; raise rather than return half of it."""

    def abort(self) -> None:
        """Clean up after a failure, as far as that goes; never raises."""


class TaskWriter(Protocol):
    """Pickled into each task: knows the tables, holds no connection."""

    def open(self) -> TaskOutput: ...


class Sink(Protocol):
    """Lives in the driver; keeps the module's five rules. ``capabilities`` has what a sink may offer beyond."""

    @property
    def name(self) -> str:
        """What a user would type: ``delta:lake/orders``."""

    def prepare(self, group_id: str, tables: Tables) -> None:
        """Make what is missing and check what is there, before any work: SchemaConflictError, SinkError."""

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        """Each partition's progress, read anew from the tables."""

    def writer(self, cycle_id: str) -> TaskWriter: ...

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        """Rows, rejected rows, lost ranges and progress, as the rules say.

        ``at("between tables")`` is called between two transactions, if there are two.
        """

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        """Drop what tasks wrote for a cycle that will not be committed, as far as possible; never raises."""

    def lost(self, group_id: str) -> list[LostRange]: ...

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        """Move rejected rows that were repaired: ``written`` enters the rows in place of any row from the
        same positions, then ``positions`` leave the rejected rows. No progress moves; doing it twice, or
        again after a crash half-way, changes nothing more. Positions are those of topics as ``standing`` has
        last shown them. Where a load rewinds over them meanwhile, each record is in one table still.
        """

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        """The rejected rows, newest last."""

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Join small files, where that means something, safely while loads go on; how many went away."""

    def close(self) -> None: ...
