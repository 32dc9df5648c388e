"""Python workers of Spark that die: the load is told so, whichever way its tasks are run."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import TaskOutput
from tests.spark.pipeline.conftest import Bench


@dataclass(frozen=True)
class Deadly:
    """A writer that kills the process that opens it."""

    def open(self) -> TaskOutput:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("this process is dead")


@pytest.mark.parametrize(
    "shaping",
    [Shaping(), Shaping(schema="id LONG", checks=["abs(id) = id"])],
    ids=["RDD", "query"],
)
def test_workers_that_are_killed(bench: Bench, shaping: Shaping) -> None:
    bench.send([b'{"id":1}'])
    pieces = [part for part in bench.ranges() if part.offsets]
    # Spark reads the end of a stream, or cannot write to it: who is faster decides.
    ends = "Python worker exited|SocketException|Connection reset|Broken pipe"
    with pytest.raises(TaskFailedError, match=rf"Spark's workers died: .*({ends})") as raised:
        Pipeline(shaping).run(bench.spark, bench.settings, pieces, Deadly(), "tag")
    assert raised.value.range is None and "\n" not in str(raised.value)
