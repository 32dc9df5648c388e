"""Ownership: which partitions a member owns, and the user's callbacks that must run before that changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from millstream.consumer.membership.values import Assigned, CallbackEvent, Event, Lost, Partitions, Revoke
from millstream.model import TopicPartition


class Ownership:
    """Partitions, and the pending callbacks: one for each event, ended by ``done`` in the same order.

    A partition is owned from the end of on_assigned until on_revoked has ended or it is lost, which takes
    effect at once; the user hears of a loss after the callback that may be running.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._pending: deque[CallbackEvent] = deque()
        self.owned: frozenset[TopicPartition] = frozenset()
        self.gave_up = 0
        """How often partitions were given up or lost. Unchanged: all that was owned still is."""

    @property
    def idle(self) -> bool:
        """Whether no callback is pending."""
        return not self._pending

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        self._begin(Revoke(_in_order(partitions)))

    def assign(self, partitions: Iterable[TopicPartition], generation_id: int) -> None:
        complete = frozenset(partitions)
        self._begin(Assigned(_in_order(complete - self.owned), _in_order(complete), generation_id))

    def lose(self, reason: str) -> None:
        """Own nothing any more. The user loses what it will hold once the pending callbacks have run."""
        held = self.owned
        for event in self._pending:
            if isinstance(event, Assigned):
                held = frozenset(event.partitions)
            elif isinstance(event, Revoke):
                held -= frozenset(event.partitions)
            else:
                held = frozenset()
        dropped = self.owned | held
        if self.owned:
            self.gave_up += 1
            self.owned = frozenset()
        if dropped:
            self._begin(Lost(_in_order(held), reason, _in_order(dropped)))

    def done(self) -> None:
        """The oldest callback has ended."""
        assert self._pending, "no callback is pending"
        event = self._pending.popleft()
        if any(isinstance(later, Lost) for later in self._pending):
            return
        if isinstance(event, Revoke):
            self.owned -= frozenset(event.partitions)
            self.gave_up += 1
        elif isinstance(event, Assigned):
            self.owned = frozenset(event.partitions)

    def _begin(self, event: CallbackEvent) -> None:
        self._pending.append(event)
        self._emit(event)


def _in_order(partitions: Iterable[TopicPartition]) -> Partitions:
    return tuple(sorted(partitions))
