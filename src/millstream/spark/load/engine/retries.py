"""What a load does about what goes wrong: try anew from a new plan, or say what failed and what is safe.

| what failed | a load that runs once | one that runs on |
|-|-|-|
| it passes: a broker, coordinator, database is away or restarts | tries for ``seconds`` | five minutes |
| nobody knows: another error of a sink, workers of Spark that died | tries twice in a row | 16 times |
| it lasts: settings, columns, permissions, defects, a replaced member | gives up at once | the same |
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
"""Unless default.api.timeout.ms, which has this default, says otherwise."""
SECONDS_CONTINUOUS: Final = 300.0
_MOST_CONFLICTS: Final = 10
_BACKOFF_SECONDS: Final = 0.5
_MOST_BACKOFF_ONCE: Final = 10.0
_MOST_BACKOFF_CONTINUOUS: Final = 30.0
_CONFLICT_SECONDS: Final = 0.1
_TRANSIENT: Final = (MillstreamTimeoutError, RetriableCommitFailedError, SinkUnavailableError)
"""What may be over in a minute, besides what a broker calls so."""
_PERMANENT: Final = (
    MisuseError,
    MissingExtraError,
    SchemaConflictError,
    SinkRefusedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
"""What another try would not change."""
_OF_PYTHON: Final = {each.__name__: each for each in (ImportError, ModuleNotFoundError, PermissionError)}
"""What tasks meet where their machine lacks something."""


class FailureKind(Enum):
    """Whether another try makes sense."""

    TRANSIENT = auto()
    UNKNOWN = auto()
    PERMANENT = auto()


def failure_kind(error: BaseException) -> FailureKind:
    """What is to be expected of an error; see the module."""
    if isinstance(error, TaskFailedError):
        # Only the name has come through Spark. Of what it does not tell, another attempt may make more.
        known = getattr(errors, error.kind, None) or getattr(base, error.kind, _OF_PYTHON.get(error.kind))
        return _kind_of(known) if isinstance(known, type) else FailureKind.UNKNOWN
    if type(error) is SinkError:  # which may have been told more
        cause = error.__cause__
        if isinstance(cause, MillstreamError | PermissionError):
            return _kind_of(type(cause))
        return FailureKind.UNKNOWN
    return _kind_of(type(error))


def _kind_of(kind: type[BaseException]) -> FailureKind:
    if issubclass(kind, _PERMANENT) or not issubclass(kind, MillstreamError):
        return FailureKind.PERMANENT  # what is none of ours is a defect
    if issubclass(kind, UnknownTopicOrPartitionError):
        return FailureKind.UNKNOWN  # it was looked for long enough
    if issubclass(kind, BrokerError) and kind.action is Action.FATAL:
        return FailureKind.PERMANENT
    passing = kind.action.retriable if issubclass(kind, BrokerError) else issubclass(kind, _TRANSIENT)
    return FailureKind.TRANSIENT if passing else FailureKind.UNKNOWN


class RetryBudget:
    """Counts what failed since something last succeeded."""

    def __init__(
        self,
        tally: Tally,
        stop: StopRequest,
        seconds: float = SECONDS_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seconds``: how long what passes may take, counted from the first failure."""
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
        """Be more patient: nobody waits for this load to end."""
        self._seconds = max(self._seconds, SECONDS_CONTINUOUS)
        self._tries = TRIES_CONTINUOUS
        self._most_backoff = _MOST_BACKOFF_CONTINUOUS

    def renew(self) -> None:
        """A cycle was committed, or there was nothing to do: whatever was wrong is over."""
        self._conflicts = self._failures = self._unknown = self._passing = 0
        self._loading = ()

    def attempt(self, step: Callable[[], T], ranges: Sequence[OffsetRange] = ()) -> T | None:
        """Do a step; None when it failed and shall be tried anew, from a new plan. ``ranges``: what it loads.

        Raises LoadFailedError when patience is at its end, and at once for what another try would not change.
        It names what was last being loaded, also when it was the next plan that failed.
        """
        self._loading = ranges = ranges or self._loading
        cycles = self._tally.cycles
        try:
            return step()
        except (DataLostError, LoadFailedError, StoppedError):
            raise
        except ProgressConflictError as error:
            self._conflicts += 1
            if self._conflicts >= _MOST_CONFLICTS:
                why = "another load with this group keeps moving the progress"
                raise self.failed(error, ranges, why=why) from error
            log.info("somebody else has moved the progress, planning anew: %s", error)
            self._stop.wait(_CONFLICT_SECONDS)
        except Exception as error:
            if isinstance(error, MisuseError | SchemaConflictError) and not ranges:
                raise  # nothing was under way: it says all there is to say
            if not self.may_go_on(error):
                raise self.failed(error, ranges, done=self._tally.cycles > cycles) from error
            pause = self._pause()
            log.warning("the load tries again in %.1f s, as this may pass: %s", pause, error)
            self._stop.wait(pause)
        return None

    def may_go_on(self, error: Exception) -> bool:
        """Count a failure; False when it was one too many."""
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
        return self._passing == 1 or self._left() > 0  # however long a try takes, there is a second one

    def _pause(self) -> float:
        """Longer and longer, with a last try when the time is over."""
        pause: float = min(_BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10), self._most_backoff)
        return min(pause, max(self._left(), _BACKOFF_SECONDS)) if self._passing else pause

    def _left(self) -> float:
        return self._passing_since + self._seconds - self._clock()

    def failed(
        self, error: Exception, ranges: Sequence[OffsetRange] = (), *, done: bool = False, why: str = ""
    ) -> LoadFailedError:
        """What to raise for an error. ``done``: the ranges were committed before something else failed."""
        if isinstance(error, TaskFailedError) and error.range is not None:
            ranges = (error.range,)
        sink, committed = self._tally.sink, self._tally.loaded
        what = f"loading {listed(ranges)} into {sink}" if ranges else f"the load into {sink}"
        text = str(error) if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
        text = f"{why + ': ' if why else ''}{text.rstrip('. ')}{self._tried()}"
        outcome = (
            f"By then these ranges were committed; {committed:,} rows of this run are there"
            if done
            else f"This run had committed {committed:,} rows before, and nothing of what failed"
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
