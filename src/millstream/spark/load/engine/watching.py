"""The progress of a running load, read by other threads while it works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from millstream.spark.load.pipeline.cluster import Cluster, is_connect

log = logging.getLogger("millstream.spark.load")

_LOOK_SECONDS: Final = 0.05
_LATER_SECONDS: Final = 0.25
_BY_DRIVER: Final = "killed by driver"
"""How Spark says that dynamic allocation gave an idle executor back."""
_NO_EXECUTOR_SECONDS: Final = 10.0
"""How long a cluster may be without executors before that is said."""


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The progress of a load at one moment."""

    state: str = "starting"
    loaded: int = 0
    rejected: int = 0
    offsets_done: int = 0
    """Offsets that this run has committed, plus an estimate of what its tasks have read since."""
    offsets_left: int = 0
    """Offsets between that and the ends of the logs, of the partitions that it owns."""
    partitions: int = 0
    cycles: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.offsets_done / self.seconds if self.seconds > 0 else 0.0


class TaskWatch:
    """Watches Spark's tasks while a job runs: calls ``running`` when they have started, and keeps ``done``.

    ``note`` is told of executors that are lost with their tasks, and of none being there. Spark Connect does
    not report tasks; there they count as running at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        running: Callable[[], None],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = cluster.spark
        self._running = running
        self._executors = None if cluster.is_local else _Executors(cluster, note, clock)
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name="millstream-load-watch", daemon=True)
        self.done = 0.0
        """The part of the tasks that have ended, 0 to 1."""

    @property
    def waits_for(self) -> str:
        """What the tasks wait for; empty if they run."""
        return "" if self._executors is None else self._executors.waits_for

    def __enter__(self) -> TaskWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raise what ``running`` has raised, unless the block has raised something itself."""
        self._over.set()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _watch(self) -> None:
        try:
            self._look_until_over()
        except BaseException as error:  # noqa: BLE001 - raised where the tasks are waited for
            self._error = error

    def _look_until_over(self) -> None:
        if is_connect(self._spark):
            self._running()
            return
        reported = False
        tracker = self._spark.sparkContext.statusTracker()
        pause = _LOOK_SECONDS
        while not self._over.wait(pause):
            try:
                completed, every = _tasks_of(tracker)
                if self._executors is not None:
                    self._executors.look()
            except Exception as error:  # noqa: BLE001 - Spark may be ending; the job itself says so
                log.debug("Spark does not report its tasks: %s", error)
                continue
            self.done = completed / max(1, every)
            # Spark reports the tasks of a running stage with a delay, and those of a short one never.
            if not reported and every > 0:
                reported, pause = True, _LATER_SECONDS
                self._running()


class _Executors:
    """Notices that executors are lost, and that there are none."""

    def __init__(self, cluster: Cluster, note: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._note = note
        self._clock = clock
        self._lost = cluster.lost_executors(0)
        self._none_since: float | None = None
        self.waits_for = ""

    def look(self) -> None:
        if lost := self._cluster.lost_executors(len(self._lost)):
            for one in lost:
                if one not in self._lost and _BY_DRIVER not in one:
                    log.warning("Spark lost executor %s, and runs its tasks again", one)
                    self._note(f"Spark lost executor {one}, and ran its tasks again")
            self._lost = lost
        if self._cluster.executors() > 0:
            self._none_since, self.waits_for = None, ""
            return
        now = self._clock()
        self._none_since = now if self._none_since is None else self._none_since
        if now - self._none_since >= _NO_EXECUTOR_SECONDS and not self.waits_for:
            self.waits_for = "waiting for executors"
            log.warning(
                "Spark has had no executor for %d s (%s): see the cluster's own page whether it has free "
                "memory and cores, and whether its workers reach this machine",
                now - self._none_since,
                self._cluster.asked_for,
            )


def _tasks_of(tracker: Any) -> tuple[int, int]:
    """How many tasks of the active stages have completed, and how many there are."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
