"""Virtual time, and everything random: one heap of events, one generator, one trace."""

from __future__ import annotations

import heapq
import random
import zlib
from collections.abc import Callable
from typing import Any, Final

_BUSY: Final = 20_000
"""So many events at one moment are too many."""


class Violation(BaseException):
    """An invariant does not hold. No ``except Exception`` may hide that."""


class World:
    """What happens, in order. The same seed gives the same events and the same trace, down to the digest."""

    __slots__ = ("_count", "_heap", "_lines", "_since", "digest", "events", "now_ms", "rng")

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.digest = 0
        self.events = self._since = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._lines: list[str] | None = [] if tracing else None

    def later(self, delay_ms: int, action: Callable[..., object], *args: Any) -> None:
        """Call ``action`` after a delay; actions of the same moment run in the order of these calls."""
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action, args))

    def run(self, until_ms: int) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            if heap[0][0] > self.now_ms:
                self._since = self.events
            elif self.events - self._since > _BUSY:
                raise Violation(f"time stands still at {self.now_ms} ms: something is busy for ever")
            self.now_ms, _, action, args = heapq.heappop(heap)
            self.events += 1
            action(*args)
        self.now_ms = until_ms

    def note(self, text: str) -> None:
        """Put a line into the trace."""
        self.digest = zlib.crc32(text.encode(), self.digest ^ self.now_ms)
        if self._lines is not None:
            self._lines.append(f"{self.now_ms:>8} {text}")

    @property
    def trace(self) -> list[str]:
        return self._lines or []

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability
