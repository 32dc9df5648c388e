"""Rates of a group that is watched."""

from __future__ import annotations

from typing import Any

from millstream.cli.group_view import add_rates


def group(committed: int | None, end: int | None, partition: int = 0) -> dict[str, Any]:
    partitions = [{"topic": "t", "partition": partition, "committed": committed, "end": end}]
    return {"group": "g", "partitions": partitions}


def rates(before: list[dict[str, Any]], after: dict[str, Any], seconds: float = 2.0) -> tuple[Any, Any]:
    add_rates([after], before, seconds)
    assert after["produced_per_s"] == after["partitions"][0]["produced_per_s"]
    return after["produced_per_s"], after["committed_per_s"]


def test_rates_are_per_second_since_the_last_look() -> None:
    assert rates([group(10, 20)], group(14, 30)) == (5.0, 2.0)
    assert rates([group(10, 20)], group(10, 20)) == (0.0, 0.0)


def test_no_rate_without_something_to_compare_with() -> None:
    assert rates([], group(10, 20)) == (None, None)
    assert rates([group(10, 20, partition=1)], group(10, 20)) == (None, None)
    assert rates([group(None, 20)], group(10, 22)) == (1.0, None)


def test_a_group_that_was_moved_back_has_no_rate() -> None:
    assert rates([group(10, 20)], group(4, 22)) == (1.0, None)
