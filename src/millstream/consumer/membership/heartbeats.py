"""HeartbeatTimer: when to send heartbeats, and how long the lease of an answered one lasts."""

from __future__ import annotations

from millstream.config import ConsumerConfig
from millstream.consumer.sends import RetryDelay


class HeartbeatTimer:
    """One heartbeat at a time, every interval; and the leases that answered ones extend.

    The coordinator counts a session from the moment that it receives a heartbeat, and a rebalance from the
    moment that it begins, which is after any heartbeat that it still answered with success. The leases count
    from the moment that such a heartbeat was sent, which is earlier. So a member that gives its partitions up
    when a lease ends never overlaps with their next owner, whatever became of its last heartbeats.
    """

    def __init__(self, config: ConsumerConfig, delay_ms: RetryDelay) -> None:
        # A rebalance waits for max_poll_interval_ms: beat often enough to hear of it in time.
        self._interval_ms = min(config.heartbeat_interval_ms, max(1, config.max_poll_interval_ms // 3))
        self._session_timeout_ms = config.session_timeout_ms
        self._rebalance_timeout_ms = config.max_poll_interval_ms
        self._delay_ms = delay_ms
        self._failures = 0
        self._sent_ms = 0
        self.in_flight: int | None = None
        self.next_ms = 0
        self.session_until_ms = 0
        """Until when the coordinator keeps the member's session even if it hears nothing more."""
        self.generation_until_ms = 0
        """Until when no rebalance can end without this member, even if one has begun."""

    def start(self, sent_ms: int, now_ms: int) -> None:
        """The coordinator has just answered a JoinGroup or SyncGroup of ``sent_ms``, perhaps after a wait.

        When it did is not known; that the answer took less than half a lease to get here is safe to assume.
        """
        self.stop()
        self._failures = 0
        self.next_ms = now_ms + min(self._interval_ms, self._session_timeout_ms // 3)
        session_ms, rebalance_ms = self._session_timeout_ms, self._rebalance_timeout_ms
        self.session_until_ms = max(sent_ms + session_ms, now_ms + session_ms // 2)
        self.generation_until_ms = max(sent_ms + rebalance_ms, now_ms + rebalance_ms // 2)

    def stop(self) -> None:
        """Forget the heartbeat in flight: its response is outdated."""
        self.in_flight = None

    def due(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.next_ms

    def sent(self, token: int, now_ms: int) -> None:
        self.in_flight = token
        self._sent_ms = now_ms
        self.next_ms = now_ms + self._interval_ms

    def confirmed(self, *, settled: bool) -> None:
        """The coordinator knows the member, and says whether its generation is current."""
        self.in_flight = None
        self._failures = 0
        self.session_until_ms = max(self.session_until_ms, self._sent_ms + self._session_timeout_ms)
        if settled:
            until_ms = self._sent_ms + self._rebalance_timeout_ms
            self.generation_until_ms = max(self.generation_until_ms, until_ms)

    def failed(self, now_ms: int) -> None:
        self.in_flight = None
        self._failures += 1
        self.next_ms = now_ms + self._delay_ms(self._failures)
