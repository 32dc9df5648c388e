"""The Spark that a load runs on: how many tasks it runs at a time, who runs them, what its UI shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_CONNECT_CORES: Final = 8
"""Assumed parallelism where Spark Connect does not report it: enough for small clusters."""
_MOST_SLOTS: Final = 1_000
"""How many tasks at a time are assumed at most where dynamic allocation has no bound."""
_ASKED: Final = (
    "spark.executor.memory",
    "spark.executor.cores",
    "spark.cores.max",
    "spark.executor.instances",
)
_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


def is_connect(spark: Any) -> bool:
    """Whether the session uses Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def cores_of(spark: Any) -> int:
    """How many tasks run at a time, at this moment."""
    return _CONNECT_CORES if is_connect(spark) else max(1, spark.sparkContext.defaultParallelism)


def slots_of(spark: Any) -> int:
    """How many tasks may run at a time: with dynamic allocation Spark adds executors for tasks that wait."""
    now = cores_of(spark)
    if is_connect(spark):
        return now
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() != "true":
        return now
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(_MOST_SLOTS)))
    each = int(conf.get("spark.executor.cores", "1")) // int(conf.get("spark.task.cpus", "1"))
    return max(now, min(_MOST_SLOTS, executors * max(1, each)))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A session, and what it says of its cluster. Spark Connect says nothing of that."""

    spark: Any

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, without executors that can be lost."""
        return is_connect(self.spark) or str(self.spark.sparkContext.master).startswith("local")

    @property
    def cores(self) -> int:
        return cores_of(self.spark)

    @property
    def slots(self) -> int:
        return slots_of(self.spark)

    @property
    def asked_for(self) -> str:
        """What Spark was asked for, in the words of its settings."""
        context = self.spark.sparkContext
        conf = context.getConf()
        given = [f"{name}={conf.get(name)}" for name in _ASKED if conf.contains(name)]
        return " with ".join([f"master {context.master}", *([", ".join(given)] if given else [])])

    def executors(self) -> int:
        """How many executors there are."""
        return int(self._store.executorList(True).size()) - 1  # without the driver

    def lost_executors(self, known: int) -> list[str]:
        """Each executor that was lost so far, as a phrase; none if there are no more than ``known``."""
        found = self._store.executorList(False)
        if found.size() - 1 - self.executors() <= known:
            return []  # one by one they are asked only if there is news
        every = [found.apply(place) for place in range(found.size())]
        return [
            f"{one.id()} on {str(one.hostPort()).partition(':')[0]} ({one.removeReason().get()})"
            for one in every
            if one.removeReason().isDefined()
        ]

    @property
    def _store(self) -> Any:
        return self.spark.sparkContext._jsc.sc().statusStore()

    @contextmanager
    def described(self, group: str, description: str) -> Iterator[None]:
        """Jobs that this thread starts inside are shown with this group and description in Spark's UI.

        A group of the user's stays: it may be what cancels the job.
        """
        if is_connect(self.spark):
            yield
            return
        context = self.spark.sparkContext
        before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION)}
        context.setLocalProperty(_GROUP, before[_GROUP] or group)
        context.setLocalProperty(_DESCRIPTION, description)
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)
