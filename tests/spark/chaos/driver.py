"""A driver in a process of its own that comes to grief at a point: ``python -m tests.spark.chaos.driver``.

The order comes as JSON in the only argument. The last line of its output is the report, if it gets that far.
To start a JVM costs more than the rest of a test: where Spark is idle at the point, the driver runs the very
functions that Spark's tasks would run in its own process instead.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from millstream.spark.load import Detail, Load, Point
from millstream.spark.load import load as load_module
from millstream.spark.load.pipeline import fused
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.runtime.session import session
from millstream.spark.sinks.base import TaskWriter
from millstream.spark.sinks.kinds import sink_for

SPARK = {
    "spark.python.authenticate.socketTimeout": "200s",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Few records: the compiled decoder that the other daemon loads is not worth its time.
    "spark.python.daemon.module": "pyspark.daemon",
}


class Idle:
    """In Spark's place where it has nothing to do: two cores, and no stage at work."""

    defaultParallelism = 2  # noqa: N815 - Spark's name
    master = "local[2]"

    @property
    def sparkContext(self) -> Idle:  # noqa: N802
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}

    def getLocalProperty(self, name: str) -> None:  # noqa: N802
        return None

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        """Nobody looks at it."""

    def statusTracker(self) -> Idle:  # noqa: N802
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return []


class HerePipeline(Pipeline):
    """Runs the tasks one after the other, here."""

    def run(
        self,
        spark: Any,
        settings: Mapping[str, object],
        pieces: Sequence[OffsetRange],
        writer: TaskWriter,
        tag: str,
    ) -> list[PieceResult]:
        task = fused.FusedTask(dict(settings), tuple(pieces), writer, self.shaping)
        return [task.run([index]) for index in range(len(pieces))]


class Grief:
    """An observer that ends or stops its own process the n-th time it gets to a point."""

    def __init__(self, point: str, nth: int, signal_name: str) -> None:
        self._point = point
        self._left = nth
        self._signal = signal.Signals[signal_name]

    def __call__(self, point: Point, detail: Detail) -> None:
        if point != self._point or (point is Point.SINK_COMMITTED and not detail.ranges):
            return
        self._left -= 1
        if self._left == 0:
            sys.stdout.write("grief\n")
            sys.stdout.flush()
            os.kill(os.getpid(), self._signal)


def main(order: dict[str, Any]) -> None:
    if not order["with_spark"]:
        vars(load_module)["Pipeline"] = HerePipeline
    grief = Grief(order["point"], order["nth"], order["signal"])
    load = Load(
        (lambda: session("local[2]", **SPARK)) if order["with_spark"] else cast("Any", Idle()),
        topics=[order["topic"]],
        group_id=order["group"],
        bootstrap_servers=order["servers"],
        sink=sink_for(order["to"], [order["topic"]], {}),
        observer=grief,
        **order["settings"],
    )
    report = load.run_once() if order["once"] else load.run(every=0)
    sys.stdout.write(json.dumps(report.as_dict()) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
