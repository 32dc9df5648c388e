"""Limits guesses of passwords and tokens. It is told the time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 60.0
_FORGOTTEN_S: Final = 900.0
_MOST: Final = 10_000


class Attempts:
    """Counts failures by key. After ``free`` of them each needs a pause, twice as long as the one before."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._failures: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def wait_s(self, key: Hashable, now_s: float) -> float:
        """How long the next attempt must wait; 0 if it may be made."""
        count, last_s = self._failures.get(key, (0, 0.0))
        if count < self._free or now_s - last_s >= _FORGOTTEN_S:
            return 0.0
        pause_s = min(_LONGEST_S, _FIRST_S * 2.0 ** min(count - self._free, 10))
        return max(0.0, last_s + pause_s - now_s)

    def count(self, key: Hashable, now_s: float) -> None:
        """Count an attempt as a failure. Do it before its outcome is known: attempts may run in parallel."""
        count, last_s = self._failures.pop(key, (0, 0.0))
        if now_s - last_s >= _FORGOTTEN_S:
            count = 0
        self._failures[key] = (count + 1, now_s)
        while len(self._failures) > _MOST:
            self._failures.popitem(last=False)

    def forget(self, key: Hashable) -> None:
        """Forget the failures of a key, after a success."""
        self._failures.pop(key, None)
