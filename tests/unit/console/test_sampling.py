"""Rates, trends and charts from samples: pure, so time is what the test says."""

from __future__ import annotations

import pytest

from millstream.console.views.charts import lag_chart
from millstream.console.views.sampling import (
    CatchUp,
    GroupRates,
    History,
    LagPoint,
    Sample,
    Trend,
    catch_up,
    rates_of,
)
from millstream.model import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def sample(at_ms: int, ends: dict[TopicPartition, int], **committed: dict[TopicPartition, int]) -> Sample:
    lags = {
        group: sum(ends[one] - offset for one, offset in offsets.items() if one in ends)
        for group, offsets in committed.items()
    }
    return Sample(at_ms, ends, committed, lags)


def test_rates_are_records_a_second_by_partition_topic_and_group() -> None:
    before = sample(1_000, {A0: 100, A1: 0, B0: 7}, g={A0: 90, A1: 0})
    after = sample(3_000, {A0: 120, A1: 10, B0: 7}, g={A0: 110, A1: 4})
    rates = rates_of([before, after])
    assert rates.produced == {A0: 10.0, A1: 5.0, B0: 0.0}
    assert rates.topics == {"a": 15.0, "b": 0.0}
    assert rates.groups == {"g": GroupRates(15.0, 12.0)}
    assert rates.partition("g", A1) == GroupRates(5.0, 2.0)
    assert rates.partition("nobody", A1) == GroupRates(5.0, None)


def test_what_went_back_or_is_new_has_no_rate() -> None:
    before = sample(0, {A0: 100, B0: 50}, g={A0: 90}, h={B0: 1})
    after = sample(1_000, {A0: 110, B0: 3, A1: 5}, g={A0: 20}, fresh={A0: 1})
    rates = rates_of([before, after])
    assert rates.produced == {A0: 10.0}
    assert rates.groups == {"g": GroupRates(10.0, None), "fresh": GroupRates(10.0, None)}
    assert rates_of([after]).topics == {}


def test_what_came_late_has_a_rate_since_then() -> None:
    samples = [
        sample(0, {A0: 0}, g={A0: 100}),
        sample(10_000, {A0: 0, B0: 50}, g={A0: 20}),
        sample(20_000, {A0: 100, B0: 70}, g={A0: 40}),
    ]
    rates = rates_of(samples)
    assert rates.topics == {"a": 5.0, "b": 2.0}
    assert rates.groups == {"g": GroupRates(5.0, 2.0)}, "a group that was reset moves on from there"


def test_rates_span_the_window_and_no_more() -> None:
    history = History(gap_ms=60_000, window_ms=10_000)
    history.add(sample(0, {A0: 0}))
    assert history.rates.topics == {}
    history.add(sample(5_000, {A0: 500}))
    assert history.rates.topics == {"a": 100.0}
    history.add(sample(10_000, {A0: 500}))
    assert history.rates.topics == {"a": 50.0}
    history.add(sample(15_000, {A0: 500}))
    assert history.rates.topics == {"a": 0.0}, "what came five seconds after the start has left the window"


def test_a_slow_pace_still_has_two_samples_to_compare() -> None:
    history = History(gap_ms=1_000_000, window_ms=10_000)
    for minute in range(4):
        history.add(sample(60_000 * minute, {A0: 600 * minute}))
    assert history.rates.topics == {"a": 10.0}


def test_a_pause_starts_a_new_window() -> None:
    history = History(gap_ms=5_000)
    history.add(sample(0, {A0: 0}))
    history.add(sample(1_000_000, {A0: 5_000_000}))
    assert history.rates.topics == {}
    history.add(sample(1_001_000, {A0: 5_000_001}))
    assert history.rates.topics == {"a": 1.0}


def test_points_are_bounded_and_leave_with_their_group() -> None:
    history = History(gap_ms=5_000, points_kept=3)
    for second in range(5):
        history.add(sample(second * 1000, {A0: 10}, g={A0: second}))
    assert history.points("g") == (LagPoint(2000, 8), LagPoint(3000, 7), LagPoint(4000, 6))
    history.add(sample(5_000, {A0: 10}))
    assert history.points("g") == ()


@pytest.mark.parametrize(
    ("lag", "produced", "committed", "expected"),
    [
        (0, None, None, CatchUp(Trend.CAUGHT_UP)),
        (None, 1.0, 1.0, CatchUp(Trend.UNKNOWN)),
        (10, None, 1.0, CatchUp(Trend.UNKNOWN)),
        (10, 1.0, None, CatchUp(Trend.UNKNOWN)),
        (10, 0.0, 0.0, CatchUp(Trend.STANDING_STILL)),
        (50, 5.0, 4.0, CatchUp(Trend.KEEPING_UP)),
        (500, 5.0, 5.0, CatchUp(Trend.HOLDING_LEVEL)),
        (500, 5.0, 4.0, CatchUp(Trend.FALLING_BEHIND)),
        (100, 5.0, 15.0, CatchUp(Trend.CATCHING_UP, 10.0)),
        (100, 0.0, 10.0, CatchUp(Trend.CATCHING_UP, 10.0)),
    ],
)
def test_when_a_group_will_have_caught_up(
    lag: int | None, produced: float | None, committed: float | None, expected: CatchUp
) -> None:
    assert catch_up(lag, GroupRates(produced, committed)) == expected


def test_a_chart_runs_from_the_first_point_to_the_last() -> None:
    points = [LagPoint(10_000, 0), LagPoint(15_000, 100), LagPoint(20_000, 50)]
    chart = lag_chart(points, gap_ms=60_000, width=100, height=24)
    assert chart is not None
    assert chart.line == "M0.0 22.0L50.0 2.0L100.0 12.0"
    assert chart.area == "M0.0 22.0L50.0 2.0L100.0 12.0L100.0 24L0.0 24Z"
    assert (chart.highest, chart.seconds) == (100, 10.0)


def test_a_chart_is_broken_where_nobody_looked() -> None:
    points = [LagPoint(0, 1), LagPoint(1_000, 1), LagPoint(9_000, 1), LagPoint(10_000, 1)]
    chart = lag_chart(points, gap_ms=5_000, width=10, height=10)
    assert chart is not None
    assert chart.line == "M0.0 2.0L1.0 2.0 M9.0 2.0L10.0 2.0"


def test_a_chart_needs_two_points_and_may_be_flat() -> None:
    assert lag_chart([], gap_ms=1) is None
    assert lag_chart([LagPoint(0, 5)], gap_ms=1) is None
    flat = lag_chart([LagPoint(0, 0), LagPoint(1_000, 0)], gap_ms=5_000, width=10, height=10)
    assert flat is not None and flat.line == "M0.0 8.0L10.0 8.0"
