"""A driver in a process of its own that comes to grief at a point: ``python -m tests.spark.chaos.driver``.

The order comes as JSON in the only argument. The last line of its output is the report, if it gets that far.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from millstream.spark.java import session
from millstream.spark.load import Detail, Load, Point
from millstream.spark.sinks.addresses import sink_for

SPARK = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Few records: the compiled decoder that the other daemon loads is not worth its time.
    "spark.python.daemon.module": "pyspark.daemon",
}


class Grief:
    """An observer that ends or stops its own process the n-th time it gets to a point."""

    def __init__(self, point: str, nth: int, signal_name: str, delay_s: float) -> None:
        self._point = point
        self._left = nth
        self._signal = signal.Signals[signal_name]
        self._delay_s = delay_s

    def __call__(self, point: Point, detail: Detail) -> None:
        if point != self._point or (point is Point.SINK_COMMITTED and not detail.ranges):
            return
        self._left -= 1
        if self._left == 0:
            sys.stdout.write("grief\n")
            sys.stdout.flush()
            if self._delay_s:
                threading.Timer(self._delay_s, self._strike).start()
            else:
                self._strike()

    def _strike(self) -> None:
        os.kill(os.getpid(), self._signal)


def main(order: dict[str, Any]) -> None:
    grief = Grief(order["point"], order["nth"], order["signal"], order["delay_s"])
    load = Load(
        lambda: session("local[2]", **SPARK),
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
