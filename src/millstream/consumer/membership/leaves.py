"""Leaves: LeaveGroup requests for member ids that are no longer used, sent in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from millstream.consumer.membership.values import Event, Left
from millstream.consumer.sends import RetryDelay


@dataclass(frozen=True, slots=True)
class Leave:
    """A member id to give up. After ``deadline_ms`` its session has ended anyway."""

    member_id: str
    reason: str
    deadline_ms: int


class Leaves:
    """Member ids to give up, one LeaveGroup at a time, repeated until the coordinator answers.

    Repeating is safe: an id is never used again, and leaving twice only says that the member is unknown.
    """

    def __init__(self, delay_ms: RetryDelay, emit: Callable[[Event], None]) -> None:
        self._delay_ms = delay_ms
        self._emit = emit
        self._queue: deque[Leave] = deque()
        self._failures = 0
        self.in_flight = False
        self.retry_at_ms = 0

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    def add(self, member_id: str, reason: str, deadline_ms: int) -> None:
        self._queue.append(Leave(member_id, reason, deadline_ms))

    def due(self, now_ms: int) -> Leave | None:
        """The next one to send. Those past their deadline are dropped."""
        while self._queue and not self.in_flight and now_ms >= self._queue[0].deadline_ms:
            self._queue.popleft()
        if not self._queue or self.in_flight or now_ms < self.retry_at_ms:
            return None
        return self._queue[0]

    def left(self) -> None:
        self.in_flight = False
        self._failures = self.retry_at_ms = 0
        self._emit(Left(self._queue.popleft().reason))

    def failed(self, now_ms: int) -> None:
        self.in_flight = False
        self._failures += 1
        self.retry_at_ms = now_ms + self._delay_ms(self._failures)

    def next_wake_ms(self, *, has_coordinator: bool) -> int | None:
        if not self._queue or self.in_flight:
            return None
        deadline_ms = self._queue[0].deadline_ms
        return min(self.retry_at_ms, deadline_ms) if has_coordinator else deadline_ms
