"""What a load does about what goes wrong: try anew from a new plan, or say what failed and what is safe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from millstream.errors import (
    Action,
    BrokerError,
    DataLostError,
    LoadFailedError,
    MillstreamError,
    MisuseError,
)
from millstream.spark.load.jobs import TaskFailedError
from millstream.spark.load.report import Tally
from millstream.spark.load.stopping import Stop
from millstream.spark.ranges import OffsetRange, listed
from millstream.spark.sinks.base import ProgressConflictError, SchemaConflictError

log = logging.getLogger("millstream.spark.load")

T = TypeVar("T")

TRIES_ONCE: Final = 2
TRIES_CONTINUOUS: Final = 16
"""With the waits between them, about five minutes."""
_MOST_CONFLICTS: Final = 10
_BACKOFF_SECONDS: Final = 0.5
_MOST_BACKOFF_SECONDS: Final = 30.0
_CONFLICT_SECONDS: Final = 0.1
_FINAL: Final = (MisuseError, SchemaConflictError, DataLostError, LoadFailedError)
"""What another try would not change."""


class Patience:
    """Counts what failed since something last succeeded."""

    def __init__(self, tally: Tally, stop: Stop) -> None:
        self._tally = tally
        self._stop = stop
        self._conflicts = 0
        self._failures = 0
        self._loading: Sequence[OffsetRange] = ()
        self.tries = TRIES_ONCE

    def renew(self) -> None:
        """A cycle was committed, or there was nothing to do: whatever was wrong is over."""
        self._conflicts = self._failures = 0
        self._loading = ()

    def attempt(self, step: Callable[[], T], ranges: Sequence[OffsetRange] = ()) -> T | None:
        """Do a step; None when it failed and shall be tried anew, from a new plan. ``ranges``: what it loads.

        Raises LoadFailedError when patience is at its end, and at once what another try would not change. It
        names what was last being loaded, also when it was the next plan that failed.
        """
        self._loading = ranges = ranges or self._loading
        cycles = self._tally.cycles
        try:
            return step()
        except _FINAL:
            raise
        except ProgressConflictError as error:
            self._conflicts += 1
            if self._conflicts >= _MOST_CONFLICTS:
                why = "another load with this group keeps moving the progress"
                raise self._failed(error, ranges, why=why) from error
            log.info("somebody else has moved the progress, planning anew: %s", error)
            self._stop.wait(_CONFLICT_SECONDS)
        except Exception as error:
            self._failures += 1
            if self._failures >= self.tries or not _may_pass(error):
                raise self._failed(error, ranges, done=self._tally.cycles > cycles) from error
            log.warning("the load tries again after: %s", error)
            self._stop.wait(min(_BACKOFF_SECONDS * 2 ** (self._failures - 1), _MOST_BACKOFF_SECONDS))
        return None

    def _failed(
        self, error: Exception, ranges: Sequence[OffsetRange], *, done: bool = False, why: str = ""
    ) -> LoadFailedError:
        """``done``: the ranges were committed to the sink before something else failed."""
        if isinstance(error, TaskFailedError) and error.range is not None:
            ranges = (error.range,)
        sink, committed = self._tally.sink, self._tally.loaded
        what = f"loading {listed(ranges)} into {sink}" if ranges else f"the load into {sink}"
        text = str(error) if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
        outcome = (
            f"By then these ranges were committed; {committed:,} rows of this run are there"
            if done
            else f"This run had committed {committed:,} rows before, and nothing of what failed"
        )
        return LoadFailedError(
            f"{what} failed: {why + ': ' if why else ''}{text.rstrip('. ')}. {outcome}: running it again is "
            "safe and continues there",
            sink,
            [(one.topic, one.partition, one.start, one.end) for one in ranges],
            committed,
        )


def _may_pass(error: Exception) -> bool:
    """Whether another try makes sense: not for defects, nor where another member has taken its place."""
    is_fatal = isinstance(error, BrokerError) and error.action is Action.FATAL
    return isinstance(error, MillstreamError) and not is_fatal
