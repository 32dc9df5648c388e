"""Numbers and times as people read them."""

from __future__ import annotations

import pytest

from millstream.console.views.numbers import duration, number, partitions, rate
from millstream.terminal.output import count


def test_numbers() -> None:
    assert [number(value) for value in (None, 0, 1234567)] == ["–", "0", "1,234,567"]
    assert [rate(value) for value in (None, 0, 0.01, 12.34, 1234.5)] == ["–", "0", "0.1", "12.3", "1,234"]
    assert [count(1, "topic"), count(1200, "topic")] == ["1 topic", "1,200 topics"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "–"),
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (754, "12 min"),
        (12_000, "3 h 20 min"),
        (90_000, "1 d 1 h"),
        (3_000_000, "34 d"),
    ],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert duration(seconds) == expected


def test_partitions_in_runs() -> None:
    assert partitions([3, 0, 1, 2, 7]) == "0–3, 7"
    assert partitions([5]) == "5"
    assert partitions([]) == ""
