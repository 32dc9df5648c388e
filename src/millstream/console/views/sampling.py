"""What a run of snapshots tells: how fast topics and groups move, and when a group will have caught up.

Pure: each sample brings its time along. Rates are taken over a window rather than from one sample to the
next, as commits come in bursts. Who looks after a pause starts a new window: an average over the pause is no
rate.
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
"""A lag of so many seconds' records is none to speak of: consumers commit every five by default."""
_LEVEL: Final = 0.02
"""Rates this close to each other are the same: they were taken at moments, not over the same records."""
POINTS_KEPT: Final = 300
"""Of each group's lag: ten minutes of them, at the usual pace."""

Offsets = Mapping[TopicPartition, int]

_NOTHING: Final[Offsets] = {}
_MOST: Final = 1 << 63
"""More than any offset."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Where logs ended and groups stood at one moment."""

    at_ms: int
    ends: Offsets
    committed: Mapping[str, Offsets]
    lags: Mapping[str, int]


class Point(NamedTuple):
    """A group's lag at one moment."""

    at_ms: int
    lag: int


@dataclass(frozen=True, slots=True)
class Pace:
    """Records a second that came, and that a group committed; None where there is nothing to compare with."""

    produced_per_s: float | None = None
    committed_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast everything moves, between two samples."""

    produced: Mapping[TopicPartition, float] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, float]] = field(default_factory=dict)
    topics: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, Pace] = field(default_factory=dict)

    def partition(self, group: str, partition: TopicPartition) -> Pace:
        """How fast one partition moves, and a group in it."""
        committed = self.committed.get(group, {}).get(partition)
        return Pace(self.produced.get(partition), committed)


class History:
    """The newest samples for rates, and a longer row of each group's lag for charts. Both are bounded."""

    def __init__(self, *, gap_ms: int, window_ms: int = WINDOW_MS, points_kept: int = POINTS_KEPT) -> None:
        """``gap_ms``: samples that are further apart than this have a pause between them."""
        self.gap_ms = gap_ms
        self._window_ms = window_ms
        self._points_kept = points_kept
        self._samples: deque[Sample] = deque()
        self._points: dict[str, deque[Point]] = {}
        self.rates = Rates()

    def add(self, sample: Sample) -> None:
        """Take the newest sample in; samples come in the order of their times."""
        if self._samples and sample.at_ms - self._samples[-1].at_ms > self.gap_ms:
            self._samples.clear()
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at_ms <= sample.at_ms - self._window_ms:
            self._samples.popleft()
        self.rates = rates_of(self._samples)
        self._keep_points(sample)

    def points(self, group: str) -> tuple[Point, ...]:
        """A group's lag over time, oldest first."""
        return tuple(self._points.get(group, ()))

    def _keep_points(self, sample: Sample) -> None:
        for gone in self._points.keys() - sample.lags.keys():
            del self._points[gone]
        for group, lag in sample.lags.items():
            points = self._points.setdefault(group, deque(maxlen=self._points_kept))
            points.append(Point(sample.at_ms, lag))


def rates_of(samples: Sequence[Sample]) -> Rates:
    """Records a second up to the newest sample, for each partition from the oldest that has it.

    What is only in the newest has no rate, nor has what went back since all others: a topic was made anew,
    or a group was reset.
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
    groups = {group: _pace(newest.committed[group], produced, rates) for group, rates in committed.items()}
    return Rates(produced, committed, topics, groups)


def _rates(now: Offsets, now_ms: int, then: Sequence[tuple[int, Offsets]]) -> dict[TopicPartition, float]:
    found: dict[TopicPartition, float] = {}
    for partition, offset in now.items():
        for at_ms, offsets in then:  # nearly always the first will do
            if at_ms < now_ms and offsets.get(partition, _MOST) <= offset:
                found[partition] = (offset - offsets[partition]) * 1000 / (now_ms - at_ms)
                break
    return found


def _pace(
    partitions: Offsets, produced: Mapping[TopicPartition, float], committed: Mapping[TopicPartition, float]
) -> Pace:
    come = [produced[one] for one in partitions if one in produced]
    return Pace(sum(come) if come else None, sum(committed.values()) if committed else None)


class Trend(StrEnum):
    """Where a group's lag is going."""

    UNKNOWN = "unknown"
    CAUGHT_UP = "caught up"
    KEEPING_UP = "keeping up"
    """What waits is what came in the last seconds: as close as a group comes that commits now and then."""
    CATCHING_UP = "catching up"
    HOLDING_LEVEL = "holding level"
    """Records go about as fast as they come, some way behind."""
    FALLING_BEHIND = "falling behind"
    STANDING_STILL = "standing still"
    """Records wait, and nothing is committed."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """A group's trend; ``seconds_left`` until it has caught up, while it is catching up."""

    trend: Trend
    seconds_left: float | None = None


def outlook(lag: int | None, pace: Pace) -> Outlook:
    """When a group will have caught up, if records keep coming and going as they do now."""
    if lag == 0:
        return Outlook(Trend.CAUGHT_UP)
    produced, committed = pace.produced_per_s, pace.committed_per_s
    if lag is None or produced is None or committed is None:
        return Outlook(Trend.UNKNOWN)
    trend = _trend(lag, produced, committed)
    return Outlook(trend, lag / (committed - produced) if trend is Trend.CATCHING_UP else None)


def _trend(lag: int, produced: float, committed: float) -> Trend:
    if committed == 0:
        return Trend.STANDING_STILL
    if lag <= produced * _CLOSE_S:
        return Trend.KEEPING_UP
    if abs(committed - produced) <= _LEVEL * produced:
        return Trend.HOLDING_LEVEL
    return Trend.FALLING_BEHIND if committed < produced else Trend.CATCHING_UP
