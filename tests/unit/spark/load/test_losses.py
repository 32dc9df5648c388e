"""Ranges recorded as lost, less what was loaded later."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from millstream.spark.load.decisions.losses import goes_back, loaded_again, still_lost
from millstream.spark.sinks.base import Advance, Loss, LostRange, Progress, Standing

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SKIPPED = LostRange("orders", 0, 10, 20, Loss.SKIPPED, NOW, "id1")


def loaded(start: int, end: int, **other: object) -> LostRange:
    return replace(SKIPPED, start=start, end=end, reason=Loss.LOADED, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (0, 30, []),
        (10, 20, []),
        (5, 15, [(15, 20)]),
        (12, 15, [(10, 12), (15, 20)]),
        (15, 40, [(10, 15)]),
        (0, 10, [(10, 20)]),
        (20, 30, [(10, 20)]),
    ],
)
def test_what_is_loaded_is_cut_out(start: int, end: int, left: list[tuple[int, int]]) -> None:
    found = still_lost([SKIPPED, loaded(start, end)])
    assert [(one.start, one.end) for one in found] == left
    assert {(one.reason, one.topic_id) for one in found} <= {(Loss.SKIPPED, "id1")}


@pytest.mark.parametrize("other", [{"topic_id": "id2"}, {"partition": 1}, {"topic": "people"}])
def test_only_of_the_same_partition_of_the_same_topic(other: dict[str, object]) -> None:
    assert still_lost([SKIPPED, loaded(0, 30, **other)]) == [SKIPPED]


def test_a_range_recorded_without_an_id_counts_for_any_topic_of_the_name() -> None:
    assert still_lost([replace(SKIPPED, topic_id=""), loaded(0, 30)]) == []


def test_what_is_lost_after_it_was_loaded_stays_lost() -> None:
    assert still_lost([loaded(0, 30), SKIPPED]) == [SKIPPED]


def step(start: int, end: int, high: int, topic_id: str = "id1") -> Advance:
    progress = Progress(start, high, topic_id)
    return Advance("orders", 0, topic_id, start, end, Standing(progress, progress))


def test_a_cycle_records_what_it_loads_of_that() -> None:
    rewound = step(5, 15, high=40)
    assert goes_back([rewound])
    assert loaded_again([SKIPPED], [rewound]) == [(rewound, 10, 15)]
    further = step(5, 18, high=40)
    assert loaded_again([SKIPPED, loaded(10, 15)], [further]) == [(further, 15, 18)]
    assert loaded_again([SKIPPED], [step(5, 15, high=40, topic_id="id2")]) == []


def test_a_cycle_that_goes_on_has_nothing_to_look_up() -> None:
    assert not goes_back([step(40, 60, high=40)])
    assert not goes_back([step(5, 5, high=40)])
    assert not goes_back([Advance("orders", 0, "id1", 0, 5, Standing(None, None))])
