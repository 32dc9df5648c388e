"""How far a load is, for whoever watches: read by other threads while it works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from millstream.spark.load import jobs

_LOOK_SECONDS: Final = 0.05
_LATER_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a load is at a moment."""

    state: str = "starting"
    loaded: int = 0
    rejected: int = 0
    offsets_done: int = 0
    """Offsets that this run has committed, and about how many its tasks have read since."""
    offsets_left: int = 0
    """What lies between that and the ends of the logs, of the partitions that are ours."""
    partitions: int = 0
    cycles: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.offsets_done / self.seconds if self.seconds > 0 else 0.0


class TaskWatch:
    """Looks at Spark's tasks while a job runs: says when they have begun, and what part is done.

    Spark Connect does not tell; there they are taken to run as soon as they were asked for.
    """

    def __init__(self, spark: Any, tasks: int, running: Callable[[], None]) -> None:
        self._spark = spark
        self._tasks = tasks
        self._running = running
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="millstream-load-watch", daemon=True)
        self.done = 0.0
        """The part of the tasks that have ended."""

    def __enter__(self) -> TaskWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        if jobs.is_connect(self._spark):
            self._running()
            return
        told = False
        tracker = self._spark.sparkContext.statusTracker()
        pause = _LOOK_SECONDS
        while not self._over.wait(pause):
            active, completed = _tasks_of(tracker)
            self.done = min(1.0, completed / self._tasks)
            if not told and active + completed > 0:
                told, pause = True, _LATER_SECONDS
                self._running()


def _tasks_of(tracker: Any) -> tuple[int, int]:
    """How many tasks run, and how many of the same stages have ended."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(one.numActiveTasks for one in known), sum(one.numCompletedTasks for one in known)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since
