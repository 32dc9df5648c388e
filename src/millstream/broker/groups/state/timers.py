"""Deadlines by key, for many keys that are postponed all the time (every heartbeat moves one).

A heap holds one live entry for each key. Postponing a deadline only changes a dictionary: the heap's entry
stays, and is moved when it comes to the top. So a heartbeat costs O(1), and O(log n) once in a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_TOLERATED_GARBAGE = 64
"""Dead entries that the heap may hold, beyond one per key, before it is rebuilt."""


@dataclass(slots=True)
class _Deadline:
    """A key's deadline, and its entry in the heap (at the deadline or before)."""

    deadline_ms: int
    entry: int
    entry_ms: int


class Timers(Generic[Key]):
    """At most one deadline for each key. The order of keys that are due together is deterministic."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, _Deadline] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._entries = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set or move the key's deadline."""
        known = self._deadlines.get(key)
        if known is not None and known.entry_ms <= deadline_ms:
            known.deadline_ms = deadline_ms
            return
        self._entries += 1
        self._deadlines[key] = _Deadline(deadline_ms, self._entries, deadline_ms)
        heapq.heappush(self._heap, (deadline_ms, self._entries, key))
        if len(self._heap) > 2 * len(self._deadlines) + _TOLERATED_GARBAGE:
            self._sweep()

    def cancel(self, key: Key) -> None:
        """Remove the key's deadline, if it has one."""
        self._deadlines.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            entry_ms, entry, key = self._heap[0]
            known = self._deadlines.get(key)
            if known is None or known.entry != entry:
                heapq.heappop(self._heap)
            elif known.deadline_ms > entry_ms:
                known.entry_ms = known.deadline_ms
                heapq.heapreplace(self._heap, (known.entry_ms, entry, key))
            else:
                return entry_ms
        return None

    def pop_due(self, now_ms: int) -> Iterator[Key]:
        """Remove and yield the keys whose deadline has come, including those that are set meanwhile."""
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            key = heapq.heappop(self._heap)[2]
            del self._deadlines[key]
            yield key

    def _sweep(self) -> None:
        self._heap = [(known.entry_ms, known.entry, key) for key, known in self._deadlines.items()]
        heapq.heapify(self._heap)
