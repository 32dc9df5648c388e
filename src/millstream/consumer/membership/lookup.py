"""CoordinatorLookup: finds the group's coordinator, and repeats that while it is needed."""

from __future__ import annotations

from collections.abc import Callable

from millstream.consumer.membership.values import (
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNode,
    Event,
)
from millstream.consumer.sends import RetryDelay


class CoordinatorLookup:
    """The coordinator when it is known; otherwise, when to ask for it."""

    def __init__(self, delay_ms: RetryDelay, emit: Callable[[Event], None]) -> None:
        self._delay_ms = delay_ms
        self._emit = emit
        self._failures = 0
        self.node: CoordinatorNode | None = None
        self.wanted = False
        """A commit needs the coordinator: look for it until it is found."""
        self.in_flight = False
        """FindCoordinator is in flight."""
        self.retry_at_ms = 0
        self.since_ms: int | None = None
        """Since when the coordinator has been missing; None before the first lookup failed."""
        self.reason = ""

    @property
    def is_failing(self) -> bool:
        """Whether it was lost, and could not be found since."""
        return self.node is None and self._failures > 1

    def due(self, now_ms: int) -> bool:
        return self.node is None and not self.in_flight and now_ms >= self.retry_at_ms

    def found(self, node: CoordinatorNode) -> None:
        self.node = node
        self.in_flight = self.wanted = False
        self._failures = 0
        self._emit(CoordinatorFound(node))

    def failed(self, reason: str, now_ms: int) -> None:
        """The lookup failed; ask again after a back-off."""
        self.in_flight, self.reason = False, reason
        self.since_ms = now_ms if self.since_ms is None else self.since_ms
        self._failures += 1
        self.retry_at_ms = now_ms + self._delay_ms(self._failures)

    def lost(self, reason: str, now_ms: int) -> None:
        """It does not answer, or is not the coordinator any more."""
        if self.node is None:
            return
        self.node = None
        self.reason, self.since_ms = reason, now_ms
        self._failures = 1
        self.retry_at_ms = now_ms + self._delay_ms(self._failures)
        self._emit(CoordinatorLost(reason))
