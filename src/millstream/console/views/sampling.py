"""Rates of topics and groups, and when a group will have caught up, from a series of samples.

Rates are taken over a window rather than from one sample to the next, as commits come in bursts. A pause
between samples starts a new window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from millstream.model import TopicPartition

WINDOW_MS: Final = 30_000
_CLOSE_S: Final = 10.0
"""A lag of at most this many seconds of records is keeping up: consumers commit every five by default."""
_LEVEL: Final = 0.02
"""Rates within this share of each other count as equal."""
POINTS_KEPT: Final = 300
"""Points of each group's lag: ten minutes at the default refresh."""

Offsets = Mapping[TopicPartition, int]

_NOTHING: Final[Offsets] = {}
_MOST: Final = 1 << 63
"""More than any offset."""


@dataclass(frozen=True, slots=True)
class Sample:
    """End offsets, committed offsets and lags at one moment."""

    at_ms: int
    ends: Offsets
    committed: Mapping[str, Offsets]
    lags: Mapping[str, int]


def rounded(value: float | None) -> float | None:
    """A rate or duration as JSON has it: with one digit."""
    return None if value is None else round(value, 1)


class LagPoint(NamedTuple):
    """A group's lag at one moment."""

    at_ms: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Records per second produced, and committed by a group; None without an earlier sample."""

    produced_per_s: float | None = None
    committed_per_s: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        return {
            "produced_per_s": rounded(self.produced_per_s),
            "committed_per_s": rounded(self.committed_per_s),
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second of partitions, topics and groups."""

    produced: Mapping[TopicPartition, float] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, float]] = field(default_factory=dict)
    topics: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, GroupRates] = field(default_factory=dict)

    def partition(self, group: str, partition: TopicPartition) -> GroupRates:
        """The rates of one partition and of a group in it."""
        committed = self.committed.get(group, {}).get(partition)
        return GroupRates(self.produced.get(partition), committed)


class History:
    """The newest samples for rates, and a longer series of each group's lag for charts."""

    def __init__(self, *, gap_ms: int, window_ms: int = WINDOW_MS, points_kept: int = POINTS_KEPT) -> None:
        """``gap_ms``: samples further apart than this have a pause between them."""
        self.gap_ms = gap_ms
        self._window_ms = window_ms
        self._points_kept = points_kept
        self._samples: deque[Sample] = deque()
        self._points: dict[str, deque[LagPoint]] = {}
        self.rates = Rates()

    def add(self, sample: Sample) -> None:
        """Add the newest sample."""
        if self._samples and sample.at_ms - self._samples[-1].at_ms > self.gap_ms:
            self._samples.clear()
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at_ms <= sample.at_ms - self._window_ms:
            self._samples.popleft()
        self.rates = rates_of(self._samples)
        self._keep_points(sample)

    def points(self, group: str) -> tuple[LagPoint, ...]:
        """A group's lag over time, oldest first."""
        return tuple(self._points.get(group, ()))

    def _keep_points(self, sample: Sample) -> None:
        for gone in self._points.keys() - sample.lags.keys():
            del self._points[gone]
        for group, lag in sample.lags.items():
            points = self._points.setdefault(group, deque(maxlen=self._points_kept))
            points.append(LagPoint(sample.at_ms, lag))


def rates_of(samples: Sequence[Sample]) -> Rates:
    """Records per second up to the newest sample, for each partition from the oldest sample that has it.

    There is no rate for a partition that is only in the newest sample, or whose offset went back since all
    others: the topic was recreated, or the group was reset.
    """
    newest = samples[-1]
    produced = _rates(newest.ends, newest.at_ms, [(one.at_ms, one.ends) for one in samples])
    committed = {
        group: _rates(
            offsets, newest.at_ms, [(one.at_ms, one.committed.get(group, _NOTHING)) for one in samples]
        )
        for group, offsets in newest.committed.items()
    }
    topics: dict[str, float] = {}
    for partition, rate in produced.items():
        topics[partition.topic] = topics.get(partition.topic, 0.0) + rate
    groups = {
        group: _group_rates(newest.committed[group], produced, rates) for group, rates in committed.items()
    }
    return Rates(produced, committed, topics, groups)


def _rates(now: Offsets, now_ms: int, then: Sequence[tuple[int, Offsets]]) -> dict[TopicPartition, float]:
    found: dict[TopicPartition, float] = {}
    for partition, offset in now.items():
        for at_ms, offsets in then:
            if at_ms < now_ms and offsets.get(partition, _MOST) <= offset:
                found[partition] = (offset - offsets[partition]) * 1000 / (now_ms - at_ms)
                break
    return found


def _group_rates(
    partitions: Offsets, produced: Mapping[TopicPartition, float], committed: Mapping[TopicPartition, float]
) -> GroupRates:
    come = [produced[one] for one in partitions if one in produced]
    return GroupRates(sum(come) if come else None, sum(committed.values()) if committed else None)


class Trend(StrEnum):
    """How a group's lag develops."""

    UNKNOWN = "unknown"
    CAUGHT_UP = "caught up"
    KEEPING_UP = "keeping up"
    """The lag is what was produced in the last seconds: groups commit only now and then."""
    CATCHING_UP = "catching up"
    HOLDING_LEVEL = "holding level"
    """Records are committed about as fast as they are produced, but with a lag."""
    FALLING_BEHIND = "falling behind"
    STANDING_STILL = "standing still"
    """There is a lag, and nothing is committed."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A group's trend, and the seconds until it has caught up, if it is catching up."""

    trend: Trend
    seconds_left: float | None = None

    def as_dict(self) -> dict[str, str | float | None]:
        return {"trend": str(self.trend), "seconds_left": rounded(self.seconds_left)}


def catch_up(lag: int | None, rates: GroupRates) -> CatchUp:
    """When a group will have caught up, if the rates stay as they are."""
    if lag == 0:
        return CatchUp(Trend.CAUGHT_UP)
    produced, committed = rates.produced_per_s, rates.committed_per_s
    if lag is None or produced is None or committed is None:
        return CatchUp(Trend.UNKNOWN)
    trend = _trend(lag, produced, committed)
    return CatchUp(trend, lag / (committed - produced) if trend is Trend.CATCHING_UP else None)


def _trend(lag: int, produced: float, committed: float) -> Trend:
    if committed == 0:
        return Trend.STANDING_STILL
    if lag <= produced * _CLOSE_S:
        return Trend.KEEPING_UP
    if abs(committed - produced) <= _LEVEL * produced:
        return Trend.HOLDING_LEVEL
    return Trend.FALLING_BEHIND if committed < produced else Trend.CATCHING_UP
