"""What a cycle's advances mean for one table of a Delta sink."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.spark.sinks.base import Advance, Cycle, Progress, ProgressConflictError
from millstream.spark.sinks.delta.progress import application
from millstream.spark.sinks.delta.replace import Doomed


@dataclass(frozen=True, slots=True)
class Step:
    """What an advance means for one of the two tables."""

    advance: Advance
    before: Progress | None

    @classmethod
    def rows(cls, advance: Advance) -> Step:
        return cls(advance, advance.expected.rows)

    @classmethod
    def rejected(cls, advance: Advance) -> Step:
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


def described(cycle: Cycle) -> dict[str, str]:
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


def conflict(name: str, advance: Advance, expected: object, found: object) -> ProgressConflictError:
    """Somebody else has moved the progress of a table."""
    return ProgressConflictError(
        f"{name} is not where this cycle started from in {advance.topic}-{advance.partition}: expected "
        f"{expected}, found {found}. Another driver has moved it; nothing of this cycle was written there"
    )
