"""Spark jobs that another thread can interrupt, and the errors of their tasks."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from millstream.errors import MillstreamError
from millstream.spark.load.pipeline.cluster import is_connect
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
        """The error for a task to raise: the driver finds its range and reason in Spark's message.

        ``part`` is None for a task that writes a query's result, of any ranges.
        """
        kind = type(error).__name__
        reason = _sendable(str(error)) or "no reason given"
        return cls(f"{_QUERY if part is None else part}: {kind}: {reason}", part, kind)

    @classmethod
    def fail(cls, part: OffsetRange | None, error: Exception) -> NoReturn:
        """Raise ``of`` these in a task, with the cause if Spark can send its traceback to the driver.

        Text that is not UTF-8, such as a file name, would crash Spark's worker and make Spark hang.
        """
        words = "".join(traceback.format_exception(error))
        raise cls.of(part, error) from (error if words == _sendable(words) else None)


class JobInterruptedError(MillstreamError):
    """The Spark job was interrupted on purpose; its result is dropped."""


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


_QUERY: Final = "rows of the query"
_FAILED: Final = re.compile(
    rf"{TaskFailedError.__name__}: ((?:(\S+)-(\d+) \[(\d+), (\d+)\)|{_QUERY}): (\w+): .*?)"
    r"(?=\n\s*\n|\n\s*at |\n\s*SQLSTATE: |\nDriver stack|\Z)",  # where Spark's own text continues
    re.DOTALL,
)
_LOST: Final = re.compile(
    r"ExecutorLostFailure[^\n]*|Python worker exited unexpectedly[^\n]*|FetchFailed[^\n]*"
    r"|Spark cannot rollback the ResultStage[^\n]*|java\.net\.SocketException[^\n]*|Connection reset[^\n]*"
    r"|java\.io\.IOException: Broken pipe[^\n]*|No port number in [^\n]*"
)
"""How Spark says that its processes died, more often than it retries tasks."""
_INTERRUPTED: Final = re.compile(r"cancelled job tags?|OPERATION_CANCELED|cancelled part of", re.IGNORECASE)


@contextmanager
def tagged(spark: Any, tag: str) -> Iterator[None]:
    """Jobs that this thread starts inside can be cancelled by ``interrupt`` with the same tag.

    Failures are raised as TaskFailedError, if a task of ours says what happened, or JobInterruptedError.
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
    """Cancel the jobs of this tag, from any thread; does nothing if there are none."""
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
    found = _FAILED.search(text)  # first, as a task's error may contain any text
    if found is None and _INTERRUPTED.search(text):
        return JobInterruptedError()
    if found is None:
        lost = _LOST.search(text)
        return error if lost is None else TaskFailedError(f"Spark's workers died: {lost[0].strip()}")
    part = None if found[2] is None else OffsetRange(found[2], *(int(found[each]) for each in (3, 4, 5)))
    return TaskFailedError(found[1].strip(), part, found[6])
