"""The moments of a cycle that an observer is told of: for logs, for metrics, for tests that end it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from millstream.spark.planning.ranges import OffsetRange


class Point(StrEnum):
    """Where a load is. The order is that of a cycle; the last two come whenever they come."""

    PLANNING = "planning"
    """About to find out what there is to load."""
    TASKS_STARTED = "tasks started"
    """About to hand the pieces to Spark."""
    TASKS_RUNNING = "tasks running"
    """Spark's tasks are at work (told by another thread)."""
    TASKS_DONE = "tasks done"
    """All is written, and nothing of it visible yet."""
    BETWEEN_TABLES = "between tables"
    """The rejected rows are committed, the rows are not; only where a sink has no transaction over both."""
    SINK_COMMITTED = "sink committed"
    """Rows and progress are in the sink; the group does not know yet."""
    GROUP_COMMITTED = "group committed"
    """The cycle is over."""
    REBALANCING = "rebalancing"
    """Partitions come or go (told by the member's thread)."""
    COMPACTING = "compacting"
    """About to join small files."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What an observer is told along with a point."""

    cycle_id: str = ""
    ranges: tuple[OffsetRange, ...] = ()
    rows: int = 0
    rejected: int = 0


Observer = Callable[[Point, Detail], None]
"""Called on the thread that is at the point, which waits for it. What it raises ends the load."""


def ignore(point: Point, detail: Detail) -> None:
    """The observer that a load has without one."""
