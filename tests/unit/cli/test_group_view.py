"""A group that is watched: rates, and what a terminal has room for."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from millstream.cli.group_view import add_rates, picture


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


def drawn(partitions: int, height: int, width: int = 100, members: int = 1, name: str = "m") -> list[str]:
    described = {
        **dict.fromkeys(("state", "assignor", "coordinator", "lag")),
        "group": "g",
        "members": [
            {
                "member_id": name,
                "instance_id": None,
                "client_id": name[:14],
                "host": "/127.0.0.1",
                "partitions": [["t", 0]],
            }
            for _ in range(members)
        ],
        "partitions": [
            {"topic": "t", "partition": number, "committed": 1, "end": 2, "lag": 1, "member_id": name}
            for number in range(partitions)
        ],
    }
    add_rates([described], [], 1.0)
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    lines = console.render_lines(picture([described], 2.0, console), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize("width", [100, 30])
@pytest.mark.parametrize("partitions", [1, 3, 500])
def test_the_last_line_is_seen_on_a_low_terminal(partitions: int, width: int) -> None:
    lines = drawn(partitions, 24, width)
    assert len(lines) <= 24
    assert "Ctrl-C ends it" in "".join(lines[-2:])


def test_what_there_is_no_room_for_is_counted() -> None:
    lines = drawn(500, 24)
    shown = sum(line.split()[:1] == ["t"] for line in lines)
    assert len(lines) == 24 and shown > 3
    assert lines[-2] == f"1 more member and {500 - shown} more partitions: they need a higher terminal"
    assert not any("more" in line for line in drawn(3, 24))


@pytest.mark.parametrize("members", [0, 1, 2, 6])
def test_lag_comes_before_clients_and_ids(members: int) -> None:
    lines = drawn(6, 24, 80, members, "consumer-audit-5-0f1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8")
    assert len(lines) <= 24
    assert any("lag" in line.split()[2:] for line in lines)
    assert [line.split()[:5] for line in lines if line.split()[:1] == ["t"]] == [
        ["t", str(number), "1", "2", "1"] for number in range(6)
    ]
