"""Full and failing disks: the producer is told, reads go on, and writing resumes when it can."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.segments.segment import LOG_SUFFIX
from millstream.errors import KafkaStorageError
from tests.unit.broker.log.faults import FaultyFiles
from tests.unit.broker.log.support import NOW, fill, make_batch, numbers, open_log, sync


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def fail_sync(log: PartitionLog, files: FaultyFiles) -> None:
    files.faults.sync_error = errno.EIO
    ticket = log.take_unsynced()
    with pytest.raises(OSError, match="Input/output") as caught:
        ticket.sync()
    files.faults.sync_error = None
    log.sync_failed(ticket, caught.value)


def test_writes_that_are_taken_in_pieces(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    files.faults.most_per_write = 7
    fill(log, 3)
    log.close(clean=False)
    assert numbers(open_log(tmp_path / "t-0", clean=False)) == [0, 1, 2]


@pytest.mark.parametrize("free_bytes", [0, 1, 60, 150])
def test_a_full_disk(tmp_path: Path, files: FaultyFiles, free_bytes: int) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 3)
    size = log.size_bytes
    files.faults.free_bytes = free_bytes
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="No space left"):
            fill(log, 1, start=99)
    assert (log.end_offset, log.size_bytes) == (3, size)
    assert (tmp_path / "t-0" / f"{0:020d}{LOG_SUFFIX}").stat().st_size == size, "no torn batch stays"
    assert numbers(log) == [0, 1, 2]
    files.faults.free_bytes = None
    fill(log, 2, start=3)
    log.close(clean=True)
    assert numbers(open_log(tmp_path / "t-0")) == [0, 1, 2, 3, 4]


def test_a_full_disk_before_the_first_batch(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    files.faults.create_error = errno.ENOSPC
    with pytest.raises(KafkaStorageError):
        fill(log, 1)
    files.faults.create_error = None
    fill(log, 1)
    assert numbers(log) == [0]


@pytest.mark.parametrize("what", ["create_error", "write_error"])
def test_a_full_disk_at_the_end_of_a_segment(tmp_path: Path, files: FaultyFiles, what: str) -> None:
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=400)
    fill(log, 2)
    setattr(files.faults, what, errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            fill(log, 1, start=99)
    setattr(files.faults, what, None)
    fill(log, 3, start=2)
    assert numbers(log) == [0, 1, 2, 3, 4]
    log.close(clean=False)
    assert numbers(open_log(tmp_path / "t-0", clean=False)) == [0, 1, 2, 3, 4]


def test_a_torn_batch_that_cannot_be_cut_off_at_once(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 2)
    files.faults.free_bytes = 50
    files.faults.truncate_error = errno.EIO
    with pytest.raises(KafkaStorageError, match="No space left"):
        fill(log, 1)
    files.faults.free_bytes = None
    with pytest.raises(KafkaStorageError, match="Input/output"):
        fill(log, 1)
    assert numbers(log) == [0, 1]
    files.faults.truncate_error = None
    fill(log, 1, start=2)
    assert numbers(log) == [0, 1, 2]


def test_a_failed_write_does_not_count_for_producers(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    batch = make_batch(producer_id=1, producer_epoch=0, base_sequence=0)
    files.faults.write_error = errno.EIO
    with pytest.raises(KafkaStorageError):
        log.append(batch, NOW)
    files.faults.write_error = None
    assert not log.append(batch, NOW).duplicate


# -- syncs


def test_a_sync_covers_what_was_there_when_it_was_taken(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 5)
    ticket = log.take_unsynced()
    fill(log, 2, start=5)
    assert log.durable_offset == 0
    ticket.sync()
    log.synced(ticket)
    assert log.durable_offset == 5
    sync(log)
    assert log.durable_offset == 7
    assert not log.take_unsynced()


@pytest.mark.parametrize("segment_bytes", [1 << 30, 700, 340])
def test_a_failed_sync_cuts_what_is_not_durable(
    tmp_path: Path, files: FaultyFiles, segment_bytes: int
) -> None:
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=segment_bytes)
    fill(log, 3)
    sync(log)
    fill(log, 5, start=90)
    assert log.leader_epoch == 0
    fail_sync(log, files)
    assert (log.end_offset, log.durable_offset, log.leader_epoch) == (3, 3, 1)
    assert numbers(log) == [0, 1, 2]
    assert log.end_offset_for_epoch(0) == (0, 3)
    fill(log, 4, start=3)
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", clean=False)
    assert numbers(again) == [0, 1, 2, 3, 4, 5, 6]
    assert again.end_offset_for_epoch(0) == (0, 3)


def test_a_failed_first_sync(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 3)
    fail_sync(log, files)
    assert (log.start_offset, log.end_offset, log.leader_epoch) == (0, 0, 1)
    fill(log, 1, start=7)
    sync(log)
    assert (numbers(log), log.durable_offset) == ([7], 1)


def test_a_later_success_does_not_make_up_for_a_failed_sync(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 2)
    sync(log)
    fill(log, 2, start=90)
    first = log.take_unsynced()
    fill(log, 2, start=92)
    second = log.take_unsynced()
    log.sync_failed(first, OSError(errno.EIO, "failed"))
    second.sync()
    log.synced(second)
    assert log.durable_offset == log.end_offset == 2
    log.sync_failed(second, OSError(errno.EIO, "failed"))
    assert log.leader_epoch == 1, "one failure is one cut"


def test_producers_are_set_back_with_the_cut(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)

    def send(sequence: int) -> bool:
        batch = make_batch(producer_id=1, producer_epoch=0, base_sequence=sequence)
        return log.append(batch, NOW).duplicate

    assert not any(send(sequence) for sequence in range(3))
    sync(log)
    assert not any(send(sequence) for sequence in range(3, 6))
    fail_sync(log, files)
    assert send(2), "it is in the log"
    assert not send(3), "it is not any more"


def test_a_disk_that_refuses_the_cut_too(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 2)
    sync(log)
    fill(log, 2, start=90)
    files.faults.truncate_error = errno.EIO
    fail_sync(log, files)
    assert log.end_offset == 2
    assert numbers(log)[:2] == [0, 1], "reads go on"
    with pytest.raises(KafkaStorageError):
        fill(log, 1)
    files.faults.truncate_error = None
    fill(log, 1, start=2)
    assert (numbers(log), log.leader_epoch) == ([0, 1, 2], 1)


def test_records_deleted_behind_the_durable_offset_before_a_failed_sync(
    tmp_path: Path, files: FaultyFiles
) -> None:
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=400)
    fill(log, 8)
    log.delete_records(5)
    fail_sync(log, files)
    assert (log.start_offset, log.end_offset, log.durable_offset) == (5, 5, 5)
    assert fill(log, 1, start=5)[0].base_offset == 5
    log.close(clean=False)
    assert numbers(open_log(tmp_path / "t-0", clean=False)) == [5]


def test_a_clean_stop_that_fails_says_so(tmp_path: Path, files: FaultyFiles) -> None:
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 2)
    files.faults.sync_error = errno.EIO
    with pytest.raises(KafkaStorageError):
        log.close(clean=True)
