"""The points of a cycle at which an observer is called: for logs, metrics, and tests that crash there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from millstream.spark.planning.ranges import OffsetRange


class Point(StrEnum):
    """Where a load is, in the order of a cycle; the last two may come at any time."""

    PLANNING = "planning"
    """About to read what there is to load."""
    TASKS_STARTED = "tasks started"
    """About to start the Spark job."""
    TASKS_RUNNING = "tasks running"
    """Spark's tasks are running (called by another thread)."""
    TASKS_DONE = "tasks done"
    """Everything is written, and nothing of it is visible yet."""
    BETWEEN_TABLES = "between tables"
    """Rejected rows are committed, rows are not; only for sinks without a transaction over both tables."""
    SINK_COMMITTED = "sink committed"
    """Rows and progress are in the sink; the group's offsets are not committed yet."""
    GROUP_COMMITTED = "group committed"
    """The group's offsets are committed: the cycle is over."""
    REBALANCING = "rebalancing"
    """Partitions are assigned or revoked (called by the member's thread)."""
    COMPACTING = "compacting"
    """About to join small files."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What an observer gets along with a point."""

    cycle_id: str = ""
    ranges: tuple[OffsetRange, ...] = ()
    rows: int = 0
    rejected: int = 0


Observer = Callable[[Point, Detail], None]
"""Called on the thread that is at the point, which waits for it; what it raises ends the load."""


def ignore(point: Point, detail: Detail) -> None:
    """The observer of a load that was given none."""
