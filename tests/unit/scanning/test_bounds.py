"""``start`` and ``end`` of a scan as they are given: what is taken, and what each slip is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from millstream import TopicPartition
from millstream.errors import ConfigError
from millstream.scanning.bounds import Time, check_order, read_bound

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_places() -> None:
    assert read_bound("earliest", "start").everywhere == "earliest"
    assert read_bound(0, "start").everywhere == 0
    assert read_bound(NOON, "start").everywhere == Time(1_769_860_800_000)
    assert read_bound({ONE: 3, TWO: NOON}, "end").places == {ONE: 3, TWO: Time(1_769_860_800_000)}


def test_a_zone_counts() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert read_bound(east, "start") == read_bound(NOON, "start")
    before_1970 = datetime(1960, 1, 1, tzinfo=UTC)
    assert read_bound(before_1970, "start").everywhere == Time(0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (datetime(2026, 1, 31), "without a zone"),
        (-1, "from 0 on"),
        (2**63, "from 0 on"),
        (True, "must be earliest, latest, committed"),
        (None, "must be earliest, latest, committed"),
        ("soon", "must be earliest, latest, committed"),
        (1.5, "must be earliest, latest, committed"),
        ({}, "names no partition"),
        ({0: 1}, "its keys are partitions"),
        ({ONE: "soon"}, "must be earliest, latest, committed"),
    ],
)
def test_slips(given: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read_bound(given, "start")
    assert caught.value.setting == "start"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (5, 4),
        (NOON, NOON - timedelta(milliseconds=1)),
        ("latest", "earliest"),
        ("latest", 7),
        ({ONE: 1, TWO: 5}, {ONE: 2, TWO: 4}),
        ({ONE: 1, TWO: 5}, 4),
        (5, {ONE: 6, TWO: 4}),
    ],
)
def test_start_after_end(start: object, end: object) -> None:
    with pytest.raises(ConfigError, match="is after end"):
        check_order(read_bound(start, "start"), read_bound(end, "end"))


@pytest.mark.parametrize(
    ("start", "end"),
    [(4, 4), (NOON, NOON), ("latest", "latest"), ("committed", 0), (NOON, 0), ({ONE: 1}, {ONE: 1})],
)
def test_what_only_the_topic_can_tell(start: object, end: object) -> None:
    check_order(read_bound(start, "start"), read_bound(end, "end"))
