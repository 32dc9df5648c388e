"""Segments and their indexes: what is found without reading, and what is closed when it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.log.config import LogConfig
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.index import IndexBytes, SegmentIndex
from millstream.broker.log.segments.segment import walk
from millstream.errors import CorruptBatch, KafkaStorageError
from millstream.wire.records.batch_header import read_header
from tests.unit.broker.log.support import NOW, QuickFiles, fill, make_batch, numbers, open_log, sync


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(61, 500), st.integers(-1, 1000)), max_size=40))
def test_an_index_never_points_behind_what_is_sought(batches: list[tuple[int, int, int]]) -> None:
    index = SegmentIndex()
    offset = position = 0
    newest = (-1, 0)
    known: list[tuple[int, int, int]] = []  # last offset, position, largest timestamp
    for count, size, timestamp in batches:
        last = offset + count - 1
        known.append((last, position, timestamp))
        newest = max(newest, (timestamp, last), key=lambda pair: pair[0])
        if len(known) % 3 == 0:
            index.add(last, position, *newest)
        offset, position = last + 1, position + size
    index.add_time(*newest)
    for last, at, timestamp in known:
        assert index.position_before(last) <= at
        assert index.boundary_before(at) <= at
        older = index.offset_before_time(timestamp)
        assert all(time < timestamp for end, _, time in known if end < older)
    stored = SegmentIndex.from_bytes(index.to_bytes(), max(1, position))
    assert stored is not None
    assert stored.offsets == index.offsets and stored.positions == index.positions
    assert stored.times == index.times and stored.time_offsets == index.time_offsets


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        (b"\0" * 7, bytes(12)),
        (b"", b"\0" * 11),
        (b"", b""),  # a segment with batches has a largest timestamp
        (bytes(16), bytes(12)),  # does not grow
        (b"\0\0\0\1\0\0\3\xe8", bytes(12)),  # a position behind the end
    ],
)
def test_index_files_that_cannot_be_right(offsets: bytes, times: bytes) -> None:
    assert SegmentIndex.from_bytes(IndexBytes(offsets, times), 1000) is None


def test_walking_over_large_and_small_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    sizes = [1, 5000, 1, 1, 90_000, 300, 1, 20_000] * 5
    for size in sizes:
        log.append(make_batch([bytes(size)]), NOW)
    file = QuickFiles().open(tmp_path / "t-0" / f"{0:020d}.log")
    found = [header.base_offset for _, header in walk(file, 0, file.size())]
    assert found == list(range(len(sizes)))
    with pytest.raises(CorruptBatch):
        list(walk(file, 0, file.size() - 1))


def test_a_log_damaged_while_it_is_open_is_the_disks_fault(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 4)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(KafkaStorageError, match="is damaged"):
        log.read(1, 1000)


def descriptors_of(directory: Path) -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.readlink(link).startswith(str(directory)) for link in links)


def test_files_that_are_not_used_are_closed(tmp_path: Path) -> None:
    pool = FilePool(QuickFiles(), capacity=4)
    config = LogConfig(segment_bytes=400, index_interval_bytes=100)
    log = PartitionLog.open(tmp_path / "t-0", config, pool=pool, clean=True, now_ms=NOW)
    fill(log, 40)
    sync(log)
    assert log.segment_count == 20
    assert numbers(log) == list(range(40))
    assert descriptors_of(tmp_path) <= 5
    held = [log.read(offset, 1) for offset in range(0, 40, 2)]
    assert descriptors_of(tmp_path) == 20, "a slice keeps its file open"
    assert [read_header(each.read()).base_offset for each in held] == list(range(0, 40, 2))
    del held
    assert descriptors_of(tmp_path) <= 5
    log.close(clean=True)
    assert descriptors_of(tmp_path) == 0


def test_files_that_are_not_synced_stay_open(tmp_path: Path) -> None:
    pool = FilePool(QuickFiles(), capacity=2)
    logs = [
        PartitionLog.open(tmp_path / f"t-{number}", LogConfig(), pool=pool, clean=True, now_ms=NOW)
        for number in range(8)
    ]
    for round_number in range(3):
        for log in logs:
            fill(log, 1, start=round_number)
    assert descriptors_of(tmp_path) >= 8, "a failed write-back is told only to who had the file open"
    for log in logs:
        sync(log)
    assert descriptors_of(tmp_path) <= 3
    assert all(numbers(log) == [0, 1, 2] for log in logs)
