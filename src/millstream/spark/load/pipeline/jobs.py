"""Spark jobs that another thread can interrupt, and what is to be read from their failures."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from millstream.errors import MillstreamError
from millstream.spark.planning.ranges import OffsetRange


class TaskFailedError(MillstreamError):
    """A task of a load failed. ``range`` is what it read, ``kind`` the name of the error's class."""

    def __init__(self, detail: str, part: OffsetRange | None = None, kind: str = "") -> None:
        super().__init__(detail)
        self.range = part
        self.kind = kind
        self.args = (detail, part, kind)

    @classmethod
    def of(cls, part: OffsetRange | None, error: BaseException) -> TaskFailedError:
        """What a task raises, so that the driver finds the range and the reason in Spark's message.

        ``part`` is None for a task that writes what a query made, of any ranges.
        """
        kind = type(error).__name__
        reason = _sendable(str(error)) or "it does not say why"
        return cls(f"{_QUERY if part is None else part}: {kind}: {reason}", part, kind)

    @classmethod
    def fail(cls, part: OffsetRange | None, error: Exception) -> NoReturn:
        """Raise ``of`` these in a task, with the cause where Spark can send its words to the driver.

        What is no UTF-8, such as the name of a file, would end Spark's worker in a way that Spark waits for.
        """
        words = "".join(traceback.format_exception(error))
        raise cls.of(part, error) from (error if words == _sendable(words) else None)


class JobInterruptedError(MillstreamError):
    """The Spark job was interrupted on purpose: nothing of it counts."""


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


_QUERY: Final = "rows of the query"
_FAILED: Final = re.compile(
    rf"{TaskFailedError.__name__}: ((?:(\S+)-(\d+) \[(\d+), (\d+)\)|{_QUERY}): (\w+): .*?)"
    r"(?=\n\s*\n|\n\s*at |\n\s*SQLSTATE: |\nDriver stack|\Z)",  # where Spark's own words go on
    re.DOTALL,
)
_LOST: Final = re.compile(
    r"ExecutorLostFailure[^\n]*|Python worker exited unexpectedly[^\n]*|FetchFailed[^\n]*"
    r"|Spark cannot rollback the ResultStage[^\n]*|java\.net\.SocketException[^\n]*|Connection reset[^\n]*"
    r"|java\.io\.IOException: Broken pipe[^\n]*|No port number in [^\n]*"
)
"""How Spark tells that processes of its own died, once too often for it to run their tasks again."""
_INTERRUPTED: Final = re.compile(r"cancelled job tags?|OPERATION_CANCELED|cancelled part of", re.IGNORECASE)


_CONNECT_CORES: Final = 8
"""How many tasks run at a time is not told through Spark Connect: enough for small clusters."""


def cores_of(spark: Any) -> int:
    """How many tasks run at a time."""
    return _CONNECT_CORES if is_connect(spark) else max(1, spark.sparkContext.defaultParallelism)


def is_connect(spark: Any) -> bool:
    """Whether the session speaks to Spark through Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def tagged(spark: Any, tag: str) -> Iterator[None]:
    """Jobs that this thread starts inside can be ended by ``interrupt`` with the same tag.

    Failures come out as TaskFailedError, where a task of ours says what happened, or JobInterruptedError.
    """
    add, remove = _tags(spark)
    add(tag)
    try:
        yield
    except Exception as error:
        raise _translated(error) from error
    finally:
        remove(tag)


def interrupt(spark: Any, tag: str) -> None:
    """End the jobs of this tag, from any thread; nothing happens where there are none."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        # SparkSession.interruptTag knows only tags of the calling thread.
        spark.sparkContext.cancelJobsWithTag(tag)


def _tags(spark: Any) -> tuple[Any, Any]:
    if is_connect(spark):
        return spark.addTag, spark.removeTag
    return spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag


def _translated(error: Exception) -> Exception:
    if isinstance(error, MillstreamError):
        return error
    text = str(error)
    found = _FAILED.search(text)  # first, as a task may say anything
    if found is None and _INTERRUPTED.search(text):
        return JobInterruptedError()
    if found is None:
        lost = _LOST.search(text)
        return error if lost is None else TaskFailedError(f"Spark's workers died: {lost[0].strip()}")
    part = None if found[2] is None else OffsetRange(found[2], *(int(found[each]) for each in (3, 4, 5)))
    return TaskFailedError(found[1].strip(), part, found[6])
