"""What a load does about failures: retry from a new plan, or raise what failed and what is safe.

| what failed | a load that runs once | one that runs continuously |
|-|-|-|
| transient: a broker, coordinator or database is unavailable or restarts | for ``seconds`` | five minutes |
| unknown: another error of a sink, Spark workers that died | tries twice in a row | 16 times |
| permanent: settings, columns, permissions, defects, a replaced member | fails at once | the same |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, TypeVar

from millstream import errors
from millstream.errors import (
    Action,
    AuthenticationError,
    BrokerError,
    ClusterAuthorizationFailedError,
    DataLostError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    LoadFailedError,
    MillstreamError,
    MillstreamTimeoutError,
    MissingExtraError,
    MisuseError,
    RetriableCommitFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from millstream.spark.load.engine.stopping import StoppedError, StopRequest
from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.report import Tally
from millstream.spark.planning.ranges import OffsetRange, listed
from millstream.spark.sinks import base
from millstream.spark.sinks.base import (
    ProgressConflictError,
    SchemaConflictError,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
)

log = logging.getLogger("millstream.spark.load")

T = TypeVar("T")

TRIES_ONCE: Final = 2
TRIES_CONTINUOUS: Final = 16
SECONDS_ONCE: Final = 60.0
"""The default of default.api.timeout.ms, which sets it."""
SECONDS_CONTINUOUS: Final = 300.0
_MOST_CONFLICTS: Final = 10
_BACKOFF_SECONDS: Final = 0.5
_MOST_BACKOFF_ONCE: Final = 10.0
_MOST_BACKOFF_CONTINUOUS: Final = 30.0
_CONFLICT_SECONDS: Final = 0.1
_TRANSIENT: Final = (MillstreamTimeoutError, RetriableCommitFailedError, SinkUnavailableError)
"""Errors that may be over in a minute, besides retriable ones of a broker."""
_PERMANENT: Final = (
    MisuseError,
    MissingExtraError,
    SchemaConflictError,
    SinkRefusedError,
    AuthenticationError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
"""Errors that a retry would not change."""
_OF_PYTHON: Final = {each.__name__: each for each in (ImportError, ModuleNotFoundError, PermissionError)}
"""Errors of tasks whose machine lacks something."""


class FailureKind(Enum):
    """Whether a retry may help."""

    TRANSIENT = auto()
    UNKNOWN = auto()
    PERMANENT = auto()


def failure_kind(error: BaseException) -> FailureKind:
    """Which kind of failure an error is: see the module."""
    if isinstance(error, TaskFailedError):
        # Only the name of its class has come through Spark.
        known = getattr(errors, error.kind, None) or getattr(base, error.kind, _OF_PYTHON.get(error.kind))
        return _kind_of(known) if isinstance(known, type) else FailureKind.UNKNOWN
    if type(error) is SinkError:  # its cause may say more
        cause = error.__cause__
        if isinstance(cause, MillstreamError | PermissionError):
            return _kind_of(type(cause))
        return FailureKind.UNKNOWN
    return _kind_of(type(error))


def _kind_of(kind: type[BaseException]) -> FailureKind:
    if issubclass(kind, _PERMANENT) or not issubclass(kind, MillstreamError):
        return FailureKind.PERMANENT  # not an error of ours: a defect
    if issubclass(kind, UnknownTopicOrPartitionError):
        return FailureKind.UNKNOWN  # it was already waited for
    if issubclass(kind, BrokerError) and kind.action is Action.FATAL:
        return FailureKind.PERMANENT
    transient = kind.action.retriable if issubclass(kind, BrokerError) else issubclass(kind, _TRANSIENT)
    return FailureKind.TRANSIENT if transient else FailureKind.UNKNOWN


class RetryBudget:
    """Counts failures since the last success, and says whether another attempt is allowed."""

    def __init__(
        self,
        tally: Tally,
        stop: StopRequest,
        seconds: float = SECONDS_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seconds``: how long transient failures may last, from the first one."""
        self._tally = tally
        self._stop = stop
        self._clock = clock
        self._seconds = seconds
        self._tries = TRIES_ONCE
        self._most_backoff = _MOST_BACKOFF_ONCE
        self._conflicts = self._failures = self._unknown = self._passing = 0
        self._since = self._passing_since = 0.0
        self._loading: Sequence[OffsetRange] = ()

    def run_continuously(self) -> None:
        """Allow more and longer retries: the load has no end that a user waits for."""
        self._seconds = max(self._seconds, SECONDS_CONTINUOUS)
        self._tries = TRIES_CONTINUOUS
        self._most_backoff = _MOST_BACKOFF_CONTINUOUS

    def renew(self) -> None:
        """Reset after a success: a cycle was committed, or there was nothing to do."""
        self._conflicts = self._failures = self._unknown = self._passing = 0
        self._loading = ()

    def attempt(self, step: Callable[[], T], ranges: Sequence[OffsetRange] = ()) -> T | None:
        """Run a step that loads ``ranges``; None if it failed and must be retried from a new plan.

        Raises LoadFailedError for a permanent failure, or when the budget is used up. It names the ranges
        that were last being loaded, also if it was the next plan that failed.
        """
        self._loading = ranges = ranges or self._loading
        cycles = self._tally.so_far.cycles
        try:
            return step()
        except (DataLostError, LoadFailedError, StoppedError):
            raise
        except ProgressConflictError as error:
            self._conflicts += 1
            if self._conflicts >= _MOST_CONFLICTS:
                why = "another load with this group keeps moving the progress"
                raise self.failed(error, ranges, why=why) from error
            log.info("another load has moved the progress, planning again: %s", error)
            self._stop.wait(_CONFLICT_SECONDS)
        except Exception as error:
            if isinstance(error, MisuseError | SchemaConflictError) and not ranges:
                raise  # nothing was being loaded: the error says it all
            if not self.may_go_on(error):
                raise self.failed(error, ranges, done=self._tally.so_far.cycles > cycles) from error
            pause = self._pause()
            log.warning("the load retries in %.1f s, as this may be temporary: %s", pause, error)
            self._stop.wait(pause)
        return None

    def may_go_on(self, error: Exception) -> bool:
        """Count a failure; False if there must be no retry."""
        expected = failure_kind(error)
        if not self._failures:
            self._since = self._clock()
        self._failures += 1
        if expected is FailureKind.UNKNOWN:
            self._unknown += 1
            return self._unknown < self._tries
        if expected is FailureKind.PERMANENT:
            return False
        if not self._passing:
            self._passing_since = self._clock()
        self._passing += 1
        return (
            self._passing == 1 or self._left() > 0
        )  # at least one retry, however long the first attempt took

    def _pause(self) -> float:
        """Exponential backoff, with a last attempt when the time is over."""
        pause: float = min(_BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10), self._most_backoff)
        return min(pause, max(self._left(), _BACKOFF_SECONDS)) if self._passing else pause

    def _left(self) -> float:
        return self._passing_since + self._seconds - self._clock()

    def failed(
        self, error: Exception, ranges: Sequence[OffsetRange] = (), *, done: bool = False, why: str = ""
    ) -> LoadFailedError:
        """The error to raise. ``done``: the ranges were committed before something else failed.

        A sink of several tables notes with its error which of them it had committed.
        """
        if isinstance(error, TaskFailedError) and error.range is not None:
            ranges = (error.range,)
        sink, committed = self._tally.so_far.sink, self._tally.so_far.loaded
        what = f"loading {listed(ranges)} into {sink}" if ranges else f"the load into {sink}"
        text = str(error) if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
        text = f"{why + ': ' if why else ''}{text.rstrip('. ')}{self._tried()}"
        noted = "; ".join(getattr(error, "__notes__", ()))
        outcome = (
            f"By then these ranges were committed; {committed:,} rows of this run are there"
            if done
            else f"This run had committed {committed:,} rows before, and {noted or 'nothing of what failed'}"
        )
        return LoadFailedError(
            f"{what} failed: {text}. {outcome}: running it again is safe and continues there",
            sink,
            [(one.topic, one.partition, one.start, one.end) for one in ranges],
            committed,
        )

    def _tried(self) -> str:
        if self._failures < 2:
            return ""
        return f" (tried {self._failures} times in {self._clock() - self._since:.0f} s)"
