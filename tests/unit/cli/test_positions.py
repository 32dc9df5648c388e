"""How places in a topic are read as people type them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.positions import (
    AtOffset,
    AtTime,
    BeforeEnd,
    End,
    GroupPosition,
    Shift,
    read_group_position,
    read_position,
)
from millstream.terminal.outcome import UsageError

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", End.EARLIEST),
        (" latest ", End.LATEST),
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("offset:7", AtOffset(7)),
        ("-10", BeforeEnd(10)),
        ("@1700000000000", AtTime(1_700_000_000_000)),
        ("15m", AtTime(NOW_MS - 900_000)),
        ("2h", AtTime(NOW_MS - 7_200_000)),
        ("7d", AtTime(NOW_MS - 604_800_000)),
        ("500ms", AtTime(NOW_MS - 500)),
        ("15m ago", AtTime(NOW_MS - 900_000)),
        ("1 hour ago", AtTime(NOW_MS - 3_600_000)),
        ("2 Days ago", AtTime(NOW_MS - 172_800_000)),
        ("30 seconds ago", AtTime(NOW_MS - 30_000)),
        ("99999d", AtTime(0)),
        ("2026-01-31T12:00:00Z", AtTime(1_769_860_800_000)),
        ("2026-01-31T14:00:00+02:00", AtTime(1_769_860_800_000)),
        ("time:2026-01-31T12:00:00Z", AtTime(1_769_860_800_000)),
        ("2026-01-31 12:00:00.250Z", AtTime(1_769_860_800_250)),
    ],
)
def test_reads_what_people_type(text: str, position: GroupPosition) -> None:
    assert read_position(text, "--from", NOW_MS) == position
    assert read_group_position(text, "--to", NOW_MS) == position


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 12, 0).astimezone()
    assert read_position("2026-01-31T12:00", "--from", NOW_MS) == AtTime(int(local.timestamp() * 1000))


@pytest.mark.parametrize("text", ["shift:-100", "shift:+5", "shift:5"])
def test_only_groups_shift(text: str) -> None:
    assert read_group_position(text, "--to", NOW_MS) == Shift(int(text.removeprefix("shift:")))
    with pytest.raises(UsageError, match="groups only"):
        read_position(text, "--from", NOW_MS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "offset:-1",
        "offset:",
        "shift:",
        "shift:x",
        "--5",
        "5.5",
        "@",
        "@x",
        "time:",
        "2026-13-01",
        "9" * 30,
        "-" + "9" * 30,
        "15 m",
        "1w",
        "EARLIEST",
    ],
)
def test_refuses_what_it_does_not_understand(text: str) -> None:
    with pytest.raises(UsageError, match=r"--to .* is not a position"):
        read_group_position(text, "--to", NOW_MS)


@given(st.text())
def test_raises_nothing_but_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        read_group_position(text, "--to", NOW_MS)


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)))
def test_a_time_in_utc_comes_back(moment: datetime) -> None:
    expected = round(moment.replace(tzinfo=UTC).timestamp() * 1000)
    assert read_position(f"{moment.isoformat()}+00:00", "--from", NOW_MS) == AtTime(expected)
