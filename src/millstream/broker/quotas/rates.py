"""The rate of one client over a sliding time, and how long it must pause if that is too high. Pure.

As in Kafka, a rate is the sum of some windows of time, divided by the time since the oldest of them began,
but by no less than all windows but one: so a client may send that much at once after it was idle.
"""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """Amounts by the window in which they were recorded."""

    __slots__ = ("_count", "_window_ms", "_windows")

    def __init__(self, count: int, window_ms: int) -> None:
        """``count``: the windows that are kept, the current one included."""
        self._count = count
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()
        """Begin and sum of each, the oldest first."""

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative one takes back what was recorded."""
        self._purge(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0.0])
        self._windows[-1][1] += amount

    def total(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(amount for _, amount in self._windows)

    def per_second(self, now_ms: int) -> float:
        return self.total(now_ms) * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to record nothing, until the rate is down to ``limit`` per second; 0 if it is."""
        excess = self.per_second(now_ms) - limit
        return round(excess / limit * self._span_ms(now_ms)) if excess > 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing was recorded for so long that a new rate would be the same."""
        self._purge(now_ms)
        return not self._windows

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - int(self._windows[0][0]) if self._windows else 0
        missing = self._count - 1 - elapsed_ms // self._window_ms
        return max(1, elapsed_ms + max(0, missing) * self._window_ms)

    def _purge(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= self._count * self._window_ms:
            self._windows.popleft()


class TokenBucket:
    """Tokens that come back with time (KIP-599): what was taken too much must come back before the next."""

    __slots__ = ("_span_s", "_tokens", "_updated_ms")

    def __init__(self, span_s: float) -> None:
        """``span_s``: a full bucket holds the tokens of this time."""
        self._span_s = span_s
        self._tokens: float | None = None
        """None for a full one."""
        self._updated_ms = 0

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until there are no tokens too few; 0 if there are not."""
        return max(0, round(-self._refill(limit, now_ms) / limit * 1000))

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, also more than there are. ``limit``: how many come back per second."""
        self._tokens = self._refill(limit, now_ms) - count

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing was taken for so long that the bucket must be full, unless too much was taken."""
        return now_ms - self._updated_ms >= self._span_s * 1000 and (self._tokens or 0.0) >= 0

    def _refill(self, limit: float, now_ms: int) -> float:
        full = self._span_s * limit
        if self._tokens is not None:
            full = min(full, self._tokens + (now_ms - self._updated_ms) / 1000 * limit)
        self._tokens, self._updated_ms = full, now_ms
        return full
