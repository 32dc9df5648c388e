"""Rolling and retention: whole segments go, by time, by size, and by deleted records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.broker.log.config import LogConfig
from millstream.broker.log.upkeep.retention import expired
from tests.unit.broker.log.support import NOW, fill, make_batch, numbers, open_log

HOUR_MS = 60 * 60 * 1000


@dataclass
class Old:
    size: int
    next_offset: int
    latest_ms: int


SEGMENTS = [Old(100, 10, NOW - 3000), Old(100, 20, NOW - 2000), Old(100, 30, NOW - 5000), Old(50, 35, NOW)]


@pytest.mark.parametrize(
    ("settings", "start_offset", "count"),
    [
        ({}, 0, 0),
        ({"retention_ms": 2500}, 0, 1),  # the third is older still, but the second is in the way
        ({"retention_ms": 1999}, 0, 3),
        ({"retention_ms": 2000}, 0, 1),
        ({"retention_ms": -1}, 0, 0),
        ({"retention_bytes": 350}, 0, 0),
        ({"retention_bytes": 250}, 0, 1),
        ({"retention_bytes": 249}, 0, 1),
        ({"retention_bytes": 150}, 0, 2),
        ({"retention_bytes": 50}, 0, 3),
        ({"retention_bytes": 1}, 0, 3),
        ({"retention_bytes": 0}, 0, 4),
        ({"retention_bytes": 250, "retention_ms": 1500}, 0, 3),
        ({}, 9, 0),
        ({}, 10, 1),
        ({}, 29, 2),
        ({}, 35, 4),
        ({"retention_ms": 1, "retention_bytes": 0, "cleanup_policy": ("compact",)}, 0, 0),
        ({"cleanup_policy": ("compact",)}, 20, 2),
        ({"retention_ms": 2500, "cleanup_policy": ("compact", "delete")}, 0, 1),
    ],
)
def test_how_many_segments_go(settings: dict[str, int], start_offset: int, count: int) -> None:
    config = LogConfig(**settings)  # type: ignore[arg-type]
    assert expired(SEGMENTS, config, start_offset, NOW) == count


def test_segments_are_rolled_by_size(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=1000)
    fill(log, 20)
    names = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))
    assert names == [f"{offset:020d}.log" for offset in (0, 5, 10, 15)]
    assert all((tmp_path / "t-0" / name).stat().st_size <= 1000 for name in names)


def test_segments_are_rolled_by_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_ms=HOUR_MS)
    fill(log, 1, now_ms=NOW)
    fill(log, 1, start=1, now_ms=NOW + HOUR_MS - 1)
    assert log.segment_count == 1
    fill(log, 1, start=2, now_ms=NOW + HOUR_MS)
    assert log.segment_count == 2
    assert log.maintain(NOW + 2 * HOUR_MS).rolled
    assert not log.maintain(NOW + 9 * HOUR_MS).rolled, "an empty segment is not old"
    assert log.segment_count == 3


@pytest.mark.parametrize("clean", [True, False])
def test_a_segments_age_is_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0", segment_ms=HOUR_MS)
    fill(log, 1, now_ms=NOW)
    log.close(clean=clean)
    again = open_log(tmp_path / "t-0", clean=clean, segment_ms=HOUR_MS, now_ms=NOW + HOUR_MS)
    fill(again, 1, start=1, now_ms=NOW + HOUR_MS)
    assert again.segment_count == 2


def test_old_segments_are_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400, retention_ms=HOUR_MS)
    for number in range(10):
        fill(log, 1, start=number, now_ms=NOW + number * 1000)
    done = log.maintain(NOW + HOUR_MS + 3500)
    assert (done.deleted_segments, log.start_offset) == (2, 4)
    assert len(done.trash) == 6
    assert all(os.path.exists(path) for path in done.trash)
    assert numbers(log) == [4, 5, 6, 7, 8, 9]
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", clean=False)
    assert (again.start_offset, numbers(again)) == (4, [4, 5, 6, 7, 8, 9])
    assert not any(os.path.exists(path) for path in done.trash), "leftovers are removed at the next start"


@pytest.mark.parametrize("clean", [True, False])
def test_when_everything_is_old_the_offsets_stay(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400, retention_ms=HOUR_MS)
    fill(log, 5)
    done = log.maintain(NOW + HOUR_MS + 1)
    assert done.deleted_segments == 3
    assert (log.start_offset, log.end_offset, log.size_bytes, log.segment_count) == (5, 5, 0, 1)
    assert done.deleted_bytes == 5 * len(make_batch([bytes(106)]))
    log.close(clean=clean)
    again = open_log(tmp_path / "t-0", clean=clean)
    assert (again.start_offset, again.end_offset) == (5, 5)
    assert fill(again, 1)[0].base_offset == 5


def test_large_logs_are_cut_from_the_front(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400, retention_bytes=800)
    fill(log, 20)
    log.maintain(NOW)
    assert 800 <= log.size_bytes < 1200
    assert numbers(log) == list(range(log.start_offset, 20))


def test_records_without_a_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", retention_ms=HOUR_MS)
    log.append(make_batch(timestamp=-1), NOW)
    (path,) = (tmp_path / "t-0").glob("*.log")
    os.utime(path, (NOW / 1000, NOW / 1000))
    assert log.maintain(NOW + HOUR_MS).deleted_segments == 0
    assert log.maintain(NOW + HOUR_MS + 1).deleted_segments == 1


def test_settings_can_change_at_any_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 10)
    assert log.maintain(NOW + HOUR_MS).deleted_segments == 0
    log.update_config(LogConfig(retention_ms=1000))
    assert log.maintain(NOW + HOUR_MS).deleted_segments == 5
    fill(log, 10)
    assert log.segment_count == 1


def test_epochs_follow_the_start(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 4)
    log.close(clean=False)
    log = open_log(tmp_path / "t-0", clean=False, segment_bytes=400)
    fill(log, 4)
    log.delete_records(6)
    log.maintain(NOW)
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(1) == (1, 8)
