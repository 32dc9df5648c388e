"""Waits until the group has assigned partitions to the load's member, or none.

A group may take a while, as until the session of a dead member ends. Unavailable brokers look the same from
here, so after a few seconds the coordinator is queried: if it answers, the load goes on waiting; if not, that
is a failure like any other, and ``RetryBudget`` says how long it may last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from millstream.spark.load.engine.members import LoadMember
from millstream.spark.load.engine.retries import RetryBudget
from millstream.spark.load.engine.stopping import StoppedError, StopRequest

log = logging.getLogger("millstream.spark.load")

JOINING: Final = "joining"
FOR_BROKERS: Final = "waiting for the brokers"
FOR_GROUP: Final = "waiting for the group"
_LOOK_SECONDS: Final = 5.0
"""How long the group may take before its coordinator is queried, and between two queries that it answered."""
_AGAIN_SECONDS: Final = 1.0
_SAY_SECONDS: Final = 60.0
"""How often the log says that brokers are still unavailable."""
_IDLE_SECONDS: Final = 0.1


class GroupJoin:
    """One wait for the group."""

    def __init__(
        self,
        group_id: str,
        member: LoadMember,
        reach: Callable[[], None],
        retries: RetryBudget,
        stop: StopRequest,
    ) -> None:
        """``reach`` queries the group's coordinator; raises why that does not answer, or StoppedError."""
        self._group_id = group_id
        self._member = member
        self._reach = reach
        self._retries = retries
        self._stop = stop
        self._said_waiting = False
        self._said_away_at: float | None = None
        self.state = JOINING
        """What it waits for, for ``snapshot``."""

    def wait(self) -> None:
        """Return when the member has its first assignment, or when a stop is requested.

        Raises StoppedError if that comes during a query, LoadFailedError, and what has ended the membership.
        """
        look_at = time.monotonic() + _LOOK_SECONDS
        while not self._stop.is_requested and not self._member.wait_assigned(_IDLE_SECONDS):
            if time.monotonic() >= look_at:
                pause = _LOOK_SECONDS if self._answers() else _AGAIN_SECONDS
                look_at = time.monotonic() + pause

    def _answers(self) -> bool:
        """Whether the group's coordinator answers."""
        try:
            self._reach()
        except StoppedError:
            raise
        except Exception as error:
            why = f"group {self._group_id} could not be joined"
            if not self._retries.may_go_on(error):
                raise self._retries.failed(error, why=why) from error
            self._say_away(error)
            return False
        self._say_there()
        return True

    def _say_away(self, error: Exception) -> None:
        self.state = FOR_BROKERS
        now = time.monotonic()
        if self._said_away_at is None or now - self._said_away_at >= _SAY_SECONDS:
            self._said_away_at = now
            log.warning(
                "group %s cannot be joined yet, and the load goes on trying: %s", self._group_id, error
            )

    def _say_there(self) -> None:
        self.state = FOR_GROUP
        self._retries.renew()
        if self._said_away_at is not None:
            log.warning("brokers answer again for group %s", self._group_id)
            self._said_away_at = None
        if not self._said_waiting:
            self._said_waiting = True
            log.warning(
                "still waiting for group %s to assign partitions: a dead member leaves only when its session "
                "ends",
                self._group_id,
            )
