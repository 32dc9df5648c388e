"""ConsumerMetrics: polls, lag, commits, heartbeats and rebalances of one consumer, with Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.client.metrics import ClientMetrics, Samples
from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.fetcher import Fetcher

_REQUESTS: Final = {
    "commit": "OffsetCommit",
    "heartbeat": "Heartbeat",
    "join": "JoinGroup",
    "sync": "SyncGroup",
}
"""The requests of a group, by the name that Kafka's metrics have for them."""


class ConsumerMetrics:
    """The numbers of one consumer, used under the driver's lock. Times are in milliseconds."""

    def __init__(self, client: ClientMetrics, now_ms: Callable[[], int], fetcher: Fetcher) -> None:
        self._client = client
        self._now_ms = now_ms
        self._fetcher = fetcher
        self._between_polls = Samples()
        self._idle_ratio = Samples()
        self._rebalances = Samples()
        self._failed_rebalances = 0
        self._records = 0
        self._poll_began_ms: int | None = None
        self._poll_ended_ms: int | None = None
        self._rebalance_began_ms: int | None = None

    # --- what happens

    def poll_began(self, now_ms: int) -> None:
        """The user called poll()."""
        if self._poll_began_ms is not None:
            self._between_polls.add(now_ms - self._poll_began_ms, now_ms)
        self._poll_began_ms = now_ms

    def poll_ended(self, now_ms: int) -> None:
        """poll() returns: its part of the time since the one before was idle."""
        began_ms, before_ms = self._poll_began_ms, self._poll_ended_ms
        if began_ms is not None and before_ms is not None and now_ms > before_ms:
            self._idle_ratio.add((now_ms - began_ms) / (now_ms - before_ms), now_ms)
        self._poll_ended_ms = now_ms

    def counted(self, records: Records) -> Records:
        """Count what poll() returns."""
        self._records += len(records)
        return records

    def rebalance_began(self) -> None:
        """A join starts; one that replaces a rebalance which has not ended counts as its failure."""
        if self._rebalance_began_ms is not None:
            self._failed_rebalances += 1
        self._rebalance_began_ms = self._now_ms()

    def rebalance_ended(self) -> None:
        """The member has its assignment."""
        if self._rebalance_began_ms is not None:
            now_ms = self._now_ms()
            self._rebalances.add(now_ms - self._rebalance_began_ms, now_ms)
            self._rebalance_began_ms = None

    # --- what is shown

    def snapshot(self) -> dict[str, int | float]:
        """All numbers by name; docs/consumer.md says what they are."""
        now_ms = self._now_ms()
        values = self._client.snapshot()
        values["records_consumed_total"] = self._records
        values["buffered_bytes"] = self._fetcher.buffered_bytes
        values |= self._lags()
        values["poll_idle_ratio_avg"] = self._idle_ratio.average(now_ms)
        values["time_between_poll_avg"] = self._between_polls.average(now_ms)
        values["time_between_poll_max"] = self._between_polls.highest(now_ms)
        values["last_poll_seconds_ago"] = _seconds_ago(self._poll_began_ms, now_ms)
        for name, api in _REQUESTS.items():
            values |= _latency(name, self._client.latency(api), now_ms)
        values["last_heartbeat_seconds_ago"] = _seconds_ago(self._client.latency("Heartbeat").last_ms, now_ms)
        values |= _latency("rebalance", self._rebalances, now_ms)
        values["rebalance_latency_total"] = self._rebalances.total
        values["failed_rebalance_total"] = self._failed_rebalances
        values["last_rebalance_seconds_ago"] = _seconds_ago(self._rebalances.last_ms, now_ms)
        return values

    def _lags(self) -> dict[str, int | float]:
        """How many partitions are read, and the lag of those where it is known."""
        positions = self._fetcher.positions
        assigned = sorted(positions.assignment())
        found = {partition: positions.lag(partition) for partition in assigned}
        lags = {f"records_lag.{partition}": lag for partition, lag in found.items() if lag is not None}
        return {
            "assigned_partitions": len(assigned),
            "records_lag_max": max(lags.values(), default=0),
            **lags,
        }


def _latency(name: str, samples: Samples, now_ms: int) -> dict[str, int | float]:
    return {
        f"{name}_latency_avg": samples.average(now_ms),
        f"{name}_latency_max": samples.highest(now_ms),
        f"{name}_rate": samples.per_second(now_ms),
        f"{name}_total": samples.count,
    }


def _seconds_ago(moment_ms: int | None, now_ms: int) -> float:
    """How long ago that was; -1 if it has not happened, as in Kafka."""
    return -1 if moment_ms is None else (now_ms - moment_ms) / 1000
