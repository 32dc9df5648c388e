"""Steps: a cycle's advances applied to one of the two tables of a Delta sink."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.spark.sinks.base import Advance, Cycle, Progress, ProgressConflictError
from millstream.spark.sinks.delta.progress import application
from millstream.spark.sinks.delta.replace import RowsToDelete


@dataclass(frozen=True, slots=True)
class Step:
    """One advance, for one of the two tables."""

    advance: Advance
    before: Progress | None

    @classmethod
    def rows(cls, advance: Advance) -> Step:
        return cls(advance, advance.expected.rows)

    @classmethod
    def rejected(cls, advance: Advance) -> Step:
        return cls(advance, advance.expected.rejected)

    def name(self, group_id: str) -> str:
        return application(group_id, *self.advance.where)

    @property
    def after(self) -> Progress:
        return self.advance.after(self.before)

    @property
    def replaces(self) -> bool:
        return self.advance.replaces(self.before) and self.advance.start < self.advance.end

    @property
    def replaced_rows(self) -> RowsToDelete:
        return RowsToDelete(self.advance.start, self.advance.end, label=self.after.label)


def described(cycle: Cycle) -> dict[str, str]:
    """What the table's history shows about a commit."""
    ranges = ", ".join(
        f"{advance.topic}-{advance.partition} [{advance.start}, {advance.end}) of {advance.topic_id}"
        for advance in cycle.advances
    )
    return {
        "millstream.group": cycle.group_id,
        "millstream.cycle": cycle.cycle_id,
        "millstream.ranges": ranges,
    }


def conflict(name: str, advance: Advance, expected: object, found: object) -> ProgressConflictError:
    """The error for a table whose progress another driver has moved."""
    return ProgressConflictError(
        f"{name} has other progress in {advance.where} than this cycle started from: expected "
        f"{expected}, found {found}. Another driver has moved it; nothing of this cycle was committed there"
    )
