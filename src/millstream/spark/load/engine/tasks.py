"""Runs the tasks of a load's cycles on Spark: measured for each cycle, named in its UI, watched meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from millstream.spark.load.decisions.cycles import pieces_of
from millstream.spark.load.engine.context import RunContext
from millstream.spark.load.engine.watching import TaskWatch
from millstream.spark.load.pipeline.cluster import Cluster
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.points import Detail, Point
from millstream.spark.planning.ranges import OffsetRange


class CycleTasks:
    """The Spark of a run. Used by one thread; ``read`` and ``state`` by any."""

    def __init__(self, context: RunContext, session: Callable[[], Any]) -> None:
        """``session`` waits for Spark, which may still be starting."""
        self._context = context
        self._session = session
        self._cluster: Cluster | None = None
        self._watch: TaskWatch | None = None
        self._under_way = 0
        self._notes: list[str] = []
        self.cores = 1
        """How many tasks ran at a time when ``prepare`` was called last."""

    @property
    def has_spark(self) -> bool:
        return self._cluster is not None

    def prepare(self) -> float:
        """Wait for Spark, at the first call, and count its cores: executors come and go.

        Returns the seconds that it took Spark to start.
        """
        began = time.monotonic()
        seconds = 0.0
        if self._cluster is None:
            self._cluster = Cluster(self._session())
            seconds = time.monotonic() - began
        self.cores = self._cluster.cores
        return seconds

    def interrupt(self, tag: str) -> None:
        """End the tasks of this tag. From any thread."""
        self._context.pipeline.interrupt(self._started.spark, tag)

    @property
    def _started(self) -> Cluster:
        assert self._cluster is not None, "prepare() comes first"
        return self._cluster

    def run(self, detail: Detail, tag: str) -> list[PieceResult]:
        """Load the ranges of a cycle, and wait for its tasks."""
        context, cluster = self._context, self._started
        pieces = pieces_of(detail.ranges, cluster.slots)
        context.observer(Point.TASKS_STARTED, detail)
        writer = context.sink.writer(detail.cycle_id)
        run = partial(context.pipeline.run, cluster.spark, context.task_settings, pieces, writer, tag)
        with cluster.described(f"millstream load {context.group_id}", _description(detail)):
            if not context.watched and cluster.is_local:
                return run()
            running = partial(context.observer, Point.TASKS_RUNNING, detail)
            try:
                with TaskWatch(cluster, running, self._notes.append) as self._watch:
                    self._under_way = sum(one.offsets for one in detail.ranges)
                    return run()
            finally:
                self._watch, self._under_way = None, 0

    @property
    def read(self) -> int:
        """An estimate of the offsets that the tasks which run now have read."""
        watch = self._watch
        return 0 if watch is None else int(watch.done * self._under_way)

    @property
    def state(self) -> str:
        """What its tasks wait for; empty if they run."""
        watch = self._watch
        return "" if watch is None else watch.waits_for

    def take_notes(self) -> list[str]:
        """What was unusual since the last call, as sentences."""
        taken, self._notes[:] = self._notes[:], []
        return taken


def _description(detail: Detail) -> str:
    """``cycle 1f…: orders-0 [0, 500), orders-1 [0, 480) and 62 more``."""
    named = detail.ranges[:_NAMED]
    more = len(detail.ranges) - len(named)
    return f"cycle {detail.cycle_id}: {_listed(named)}" + (f" and {more} more" if more else "")


_NAMED = 3
"""How many ranges a job's description names."""


def _listed(ranges: Sequence[OffsetRange]) -> str:
    return ", ".join(map(str, ranges))
