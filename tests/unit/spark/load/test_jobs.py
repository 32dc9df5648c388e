"""What is read from Spark's failures: a task's own words, an interruption, or workers that died."""

from __future__ import annotations

import traceback

import pytest

from millstream.spark.load.pipeline.jobs import JobInterruptedError, TaskFailedError, _translated
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import SinkError

OF_RDD = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 3.0 (TID 5) (127.0.0.1 executor driver): "
)
STACK = "\n\tat org.apache.spark.api.python.X.read(X.scala:1)\n\nDriver stacktrace:\n\tat x"

DEAD = {
    "python worker": (
        "org.apache.spark.SparkException: "
        "Python worker exited unexpectedly (crashed). Consider setting "
        "'spark.sql.execution.pyspark.udf.faulthandler.enabled' "
        "or'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better "
        "Python traceback."
    ),
    "executor": (
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited "
        "with code 137"
    ),
    "shuffle": "FetchFailed(BlockManagerId(1, 127.0.0.1, 4040, None), shuffleId=0, mapIndex=0, mapId=1)",
    "rollback": (
        "Spark cannot rollback the ResultStage 4 to re-process the input data, and has to fail this job. "
        "Please eliminate the indeterminacy by checkpointing the RDD before repartition and try again."
    ),
}


@pytest.mark.parametrize("said", DEAD.values(), ids=DEAD)
@pytest.mark.parametrize("before", ["", OF_RDD], ids=["query", "RDD"])
def test_workers_that_died(said: str, before: str) -> None:
    error = _translated(RuntimeError(f"{before}{ABORTED}{said}{STACK}"))
    assert isinstance(error, TaskFailedError)
    words = said.removeprefix("org.apache.spark.SparkException: ")
    assert str(error) == f"Spark's workers died: {words}"
    assert (error.range, error.kind) == (None, "")


def test_a_task_of_ours_says_what_happened() -> None:
    """Also where workers died in other attempts: what it says is worth more."""
    part = OffsetRange("a-b-c", 3, 10, 20)
    raised = TaskFailedError.of(part, SinkError("the disk is full"))
    said = f"Traceback (most recent call last):\n  x\n{type(raised).__name__}: {raised}\n"
    text = f"{ABORTED}{said}{STACK}\n{DEAD['executor']}"
    error = _translated(RuntimeError(text))
    assert isinstance(error, TaskFailedError)
    assert (error.range, error.kind) == (part, "SinkError") and str(error).endswith("the disk is full")


@pytest.mark.parametrize(
    "said",
    [
        "Job 3 cancelled part of cancelled job tags millstream-load-1",
        "[OPERATION_CANCELED] Operation has been canceled.",
    ],
)
def test_what_was_interrupted(said: str) -> None:
    assert isinstance(_translated(RuntimeError(f"{OF_RDD}{said}")), JobInterruptedError)


def test_anything_else_is_left_as_it_is() -> None:
    error = RuntimeError("java.lang.OutOfMemoryError: Java heap space")
    assert _translated(error) is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(), "no reason given"),
        (OSError("no such file: a\udcffb"), "no such file: a\\udcffb"),
        (SinkError("cancelled part of cancelled job tags"), "cancelled part of cancelled job tags"),
    ],
    ids=["nothing", "no UTF-8", "the words of an interruption"],
)
def test_a_task_may_say_anything(error: Exception, said: str) -> None:
    part = OffsetRange("orders", 0, 1, 2)
    with pytest.raises(TaskFailedError) as raised:
        TaskFailedError.fail(part, error)
    words = "".join(traceback.format_exception(raised.value))
    assert words.encode().decode() == words, "Spark's worker can send it"
    found = _translated(RuntimeError(f"{ABORTED}{words.rstrip()}{STACK}"))
    assert isinstance(found, TaskFailedError)
    assert (found.range, found.kind) == (part, type(error).__name__)
    assert str(found).endswith(said)
