"""The commit of one source partition into a topic: rejected records, then records, then progress.

There is no transaction, so each step can be repeated, and finds out how far the one before it came: what a
dead cycle wrote is after the output position in the journal's last entry, and is skipped by its source
offsets. ``log`` explains how concurrent drivers are fenced.

These records are also counted, as the next ones need their sequence numbers. That fails when retention or
compaction has cleaned the output since: then the next records start from zero, in a new epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.errors import MillstreamError
from millstream.model import TopicPartition
from millstream.spark.sinks.base import Advance, Cycle, LostRange, Progress, ProgressConflictError, SinkError
from millstream.spark.sinks.topic.journal import Entry, Journal, OutputPosition
from millstream.spark.sinks.topic.log import FENCED, OutputRecord, TopicLog
from millstream.spark.sinks.topic.rows import LOAD, SOURCE, Row, source_of

_BATCH_BYTES: Final = 768 << 10
"""Brokers accept batches of up to 1 MB by default."""


@dataclass(frozen=True, slots=True)
class OutputTopics:
    """The topics of a sink."""

    rows: str
    rejected: str


@dataclass(frozen=True, slots=True)
class EarlierRecords:
    """Records of a cycle's range that a dead cycle has already written after an output position."""

    end: int
    """The output offset after the last one."""
    count: int = 0
    offset: int = -1
    """The last one's source offset; ``same`` records have it."""
    same: int = 0
    beyond: int = 0
    """How many are past the range: the dead cycle's range was longer. The next commit will find them."""
    whole: bool = True
    """Whether these are all the records after the position that the current epoch wrote, and no others."""

    @property
    def total(self) -> int:
        return self.count + self.beyond

    def and_then(self, source_offset: int, end: int) -> EarlierRecords:
        """Count one more record of the range."""
        same = self.same + 1 if source_offset == self.offset else 1
        return replace(self, end=end, count=self.count + 1, offset=source_offset, same=same)


class PartitionCommit:
    """One source partition's part of a cycle. ``trusted``: no one has written since our last commit."""

    def __init__(
        self,
        log: TopicLog,
        journal: Journal,
        output: OutputTopics,
        cycle: Cycle,
        step: Advance,
        *,
        trusted: bool,
    ) -> None:
        self._log = log
        self._journal = journal
        self._output = output
        self._cycle = cycle
        self._step = step
        self._where = step.where
        self._trusted = trusted
        self.is_sure = True
        """After ``run``: whether the next commit may trust that it follows this one."""

    def run(self, entry: Entry, rejected: Sequence[Row], rows: Sequence[Row], lost: list[LostRange]) -> Entry:
        """Write everything; returns the new entry of the journal."""
        if self._moves(entry.progress):
            # Records cannot be replaced: a new epoch tells those that are loaded again from the earlier ones.
            new = entry.in_new_epoch()
            if rejected or rows:
                entry = self._enter(new, replace(new, progress=self._anchored(entry.progress)), [])
            else:
                entry = new
        parts = ((self._output.rejected, entry.rejected, rejected), (self._output.rows, entry.rows, rows))
        found = [self._behind(entry, topic, position, each) for topic, position, each in parts]
        if not all(each.whole for each in found):
            new = entry.in_new_epoch(goes_on=True)
            entry = self._enter(new, new, [])
            found = [replace(each, whole=False) for each in found]
            self.is_sure = not any(each.beyond for each in found)
        positions = [
            self._write(entry, self._output.rejected, entry.rejected, rejected, found[0]),
            self._write(entry, self._output.rows, entry.rows, rows, found[1]),
        ]
        after = replace(
            entry, rejected=positions[0], rows=positions[1], progress=self._step.after(entry.progress)
        )
        return self._enter(entry, after, lost)

    def _moves(self, progress: Progress | None) -> bool:
        """Whether this is a rewind, a skip, or a recreated topic, rather than the next range."""
        if progress is None:
            return False
        return progress.next_offset != self._step.start or not self._step.continues(progress)

    def _anchored(self, before: Progress | None) -> Progress:
        """The progress at the start of the range."""
        return replace(self._step, end=self._step.start).after(before)

    # -- records

    def _behind(
        self, entry: Entry, topic: str, position: OutputPosition, rows: Sequence[Row]
    ) -> EarlierRecords:
        """Which of these rows are in the output already."""
        if not rows or self._trusted:
            return EarlierRecords(position.end)
        return self._find(entry, TopicPartition(topic, entry.partition), position)

    def _write(
        self, entry: Entry, topic: str, position: OutputPosition, rows: Sequence[Row], found: EarlierRecords
    ) -> OutputPosition:
        """Append the rows that are not in the output yet; returns the position after them."""
        if not rows:
            return position
        where = TopicPartition(topic, entry.partition)
        while True:
            try:
                return self._append(entry, where, position, found, rows)
            except MillstreamError as error:
                again = self._find(entry, where, position)
                if again.whole and again.total > found.total:
                    found = again  # it was written, by us or by another driver: continue after it
                elif isinstance(error, FENCED):
                    raise self._conflict() from error
                else:
                    raise SinkError(f"topic:{self._output.rows}: writing to {where}: {error}") from error

    def _append(
        self,
        entry: Entry,
        where: TopicPartition,
        position: OutputPosition,
        found: EarlierRecords,
        rows: Sequence[Row],
    ) -> OutputPosition:
        counted, total = (found.count, found.total) if found.whole else (0, 0)
        left = _left(rows, found)
        if not left:
            return OutputPosition(found.end, position.sequence + counted)
        sequence, end = position.sequence + total, found.end
        for chunk in _chunks(left):
            records = [self._record(entry, row) for row in chunk]
            end = self._log.append(where, records, entry.identity, sequence) + len(records)
            sequence += len(records)
        return OutputPosition(end, sequence)

    def _record(self, entry: Entry, row: Row) -> OutputRecord:
        source = f"{self._step.topic}/{self._step.partition}/{row.offset}"
        added = ((SOURCE, source.encode()), (LOAD, self._load(entry).encode()))
        return OutputRecord(row.key, row.value, row.timestamp_ms, (*row.headers, *added))

    def _load(self, entry: Entry) -> str:
        return f"{entry.epoch}:{self._cycle.group_id}"

    def _epoch(self, load: str) -> int | None:
        """The epoch in a record's load header; None for another group's."""
        epoch, _, group_id = load.partition(":")
        return int(epoch) if group_id == self._cycle.group_id else None

    def _find(self, entry: Entry, where: TopicPartition, position: OutputPosition) -> EarlierRecords:
        found = EarlierRecords(position.end)
        next_offset, end = position.end, self._log.bound(where, "latest")
        whole = True
        for record in self._log.read(where, position.end, ("offset", "headers")):
            whole = whole and record["offset"] == next_offset
            next_offset = record["offset"] + 1
            source = source_of(record["headers"])
            if source is None or source[0] != self._where:
                continue
            epoch = self._epoch(source[2])
            if epoch is None or not entry.first_epoch <= epoch <= entry.epoch:
                continue
            whole = whole and epoch == entry.epoch
            if source[1] < self._step.end:
                found = found.and_then(source[1], record["offset"] + 1)
            else:
                found = replace(found, beyond=found.beyond + 1)
        return replace(found, whole=whole and next_offset >= end)

    # -- progress

    def _enter(self, before: Entry, after: Entry, lost: list[LostRange]) -> Entry:
        """Write an entry and read it back; raises if another one has been written instead."""
        sequence = before.sequence + len(lost) + 1
        after = replace(after, sequence=sequence, cycle_id=self._cycle.cycle_id, word=uuid.uuid4().hex)
        failure: MillstreamError | None = None
        try:
            self._journal.write(self._where, before, after, lost)
        except MillstreamError as error:
            failure = error
        self._journal.refresh()
        if self._journal.has(after):
            return after
        if self._journal.progress(self._where) != before.progress or isinstance(failure, FENCED):
            raise self._conflict() from failure
        reason = failure or "the broker acknowledged it, but it cannot be read"
        raise SinkError(
            f"topic:{self._output.rows}: the progress of {self._where} was not written: {reason}; rerunning "
            "is safe"
        ) from failure

    def _conflict(self) -> ProgressConflictError:
        return conflict(self._journal, self._output, self._step)


def conflict(journal: Journal, output: OutputTopics, step: Advance) -> ProgressConflictError:
    """The error for a partition that another driver has moved."""
    entry = journal.entries.get(step.where)
    now = "nothing" if entry is None or entry.progress is None else str(entry.progress.next_offset)
    by = f" (cycle {entry.cycle_id})" if entry is not None else ""
    expected = "nothing" if step.expected.rows is None else str(step.expected.rows.next_offset)
    return ProgressConflictError(
        f"topic:{output.rows}: {step.where} was at {expected} and is at {now}{by}: another driver loads it"
    )


def _left(rows: Sequence[Row], found: EarlierRecords) -> list[Row]:
    """The rows that are not in the output yet."""
    if found.beyond and not found.whole:
        return []  # records are written in order, so all of these are there
    if not found.count:
        return list(rows)
    same = [row for row in rows if row.offset == found.offset]
    return same[found.same :] + [row for row in rows if row.offset > found.offset]


def _chunks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        if chunk and size + row.size > _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row.size
    if chunk:
        yield chunk
