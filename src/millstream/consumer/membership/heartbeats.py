"""When to send heartbeats, and for how long an answered one is good."""

from __future__ import annotations

from millstream.consumer.membership.values import Backoff


class Heartbeats:
    """One heartbeat at a time, every interval; and the lease that answered ones extend.

    The coordinator counts a session from the moment that it receives a heartbeat. The lease is counted from
    the moment that an answered one was sent, which is earlier: when it ends, the session has not ended yet,
    so a member that gives its partitions up with its lease never overlaps with the next owner.
    """

    __slots__ = (
        "_attempts",
        "_backoff",
        "_interval_ms",
        "_lease_ms",
        "_sent_ms",
        "in_flight",
        "next_ms",
        "until_ms",
    )

    def __init__(self, interval_ms: int, session_timeout_ms: int, backoff: Backoff) -> None:
        self._interval_ms = interval_ms
        self._lease_ms = session_timeout_ms
        self._backoff = backoff
        self._attempts = 0
        self._sent_ms = 0
        self.in_flight: int | None = None
        self.next_ms = 0
        self.until_ms = 0
        """When the lease ends."""

    def start(self, now_ms: int) -> None:
        """The coordinator has just confirmed the member in another way: a new lease."""
        self.stop()
        self._attempts = 0
        self.next_ms = now_ms + self._interval_ms
        self.until_ms = now_ms + self._lease_ms

    def stop(self) -> None:
        """Forget the heartbeat in flight: its answer is about the past."""
        self.in_flight = None

    def due(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.next_ms

    def sent(self, token: int, now_ms: int) -> None:
        self.in_flight = token
        self._sent_ms = now_ms
        self.next_ms = now_ms + self._interval_ms

    def confirmed(self) -> None:
        self.in_flight = None
        self._attempts = 0
        self.until_ms = max(self.until_ms, self._sent_ms + self._lease_ms)

    def failed(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = now_ms + self._backoff.delay_ms(self._attempts)
        self._attempts += 1
