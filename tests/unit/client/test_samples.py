"""Samples: what is ever since, and what is of late."""

from __future__ import annotations

import pytest

from millstream.client.metrics import Samples


def test_averages_and_maxima_forget_after_two_windows() -> None:
    samples = Samples()
    assert (samples.average(0), samples.highest(0), samples.per_second(0), samples.last_ms) == (0, 0, 0, None)
    samples.add(10, 1_000)
    samples.add(30, 2_000)
    assert (samples.average(2_000), samples.highest(2_000)) == (20, 30)
    samples.add(2, 31_000)
    assert (samples.average(59_999), samples.highest(59_999)) == (14, 30)
    assert (samples.average(60_000), samples.highest(60_000)) == (2, 2)
    assert (samples.average(90_000), samples.highest(90_000), samples.per_second(90_000)) == (0, 0, 0)
    assert (samples.count, samples.total, samples.maximum, samples.last_ms) == (3, 42, 30, 31_000)


def test_the_rate_is_of_one_to_two_windows() -> None:
    samples = Samples()
    for second in range(60):
        samples.add(1, second * 1000)
    assert samples.per_second(59_999) == pytest.approx(1.0, rel=0.01)
    assert samples.per_second(60_000) == pytest.approx(1.0)
