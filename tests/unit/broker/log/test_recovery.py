"""What a crash may leave, and what opening makes of it: every whole batch before the damage, and no more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millstream.broker.log.recovery.loading import EPOCHS_FILE
from millstream.broker.log.segments.segment import LOG_SUFFIX
from millstream.errors import KafkaStorageError
from millstream.wire.records.batches import RecordData, encode_batch
from tests.unit.broker.log.faults import CountingFiles, NothingSurvives, PowerLossFiles
from tests.unit.broker.log.support import NOW, fill, make_batch, numbers, open_log, read_all, sync

COUNT = 9
BATCH_BYTES = len(make_batch([bytes(16)]))  # as ``fill`` makes them


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A log of nine batches in two segments, left without a clean stop."""
    directory = tmp_path / "crashed" / "t-0"
    directory.parent.mkdir()
    log = open_log(directory, segment_bytes=5 * BATCH_BYTES)
    fill(log, COUNT, size=10)
    assert log.segment_count == 2
    log.close(clean=False)
    return directory


def last_file(directory: Path) -> Path:
    return max(directory.glob(f"*{LOG_SUFFIX}"))


def reopened(directory: Path, copy: Path, content: bytes) -> list[int]:
    """The numbers in a copy of the log whose last file has this content instead."""
    copy.mkdir()
    for path in directory.iterdir():
        (copy / path.name).write_bytes(content if path == last_file(directory) else path.read_bytes())
    log = open_log(copy, clean=False)
    found = numbers(log)
    assert log.end_offset == len(found)
    assert log.leader_epoch == 1
    if len(content) % 16 == 0:  # What is there can be appended to, and opens again.
        fill(log, 1, start=777)
        log.close(clean=False)
        assert numbers(open_log(copy, clean=False)) == [*found, 777]
    shutil.rmtree(copy)
    return found


def test_a_crash_without_damage_loses_nothing(crashed: Path) -> None:
    log = open_log(crashed, clean=False)
    assert numbers(log) == list(range(COUNT))
    assert log.recovery.scanned
    assert log.recovery.cut_bytes == 0


def test_the_last_file_cut_at_every_byte(crashed: Path, tmp_path: Path) -> None:
    content = last_file(crashed).read_bytes()
    for length in range(len(content) - 2 * BATCH_BYTES, len(content)):
        whole = COUNT - 2 + (length - (len(content) - 2 * BATCH_BYTES)) // BATCH_BYTES
        assert reopened(crashed, tmp_path / "copy", content[:length]) == list(range(whole)), (
            f"cut at {length}"
        )


def test_every_byte_of_the_last_two_batches_flipped(crashed: Path, tmp_path: Path) -> None:
    content = last_file(crashed).read_bytes()
    start = len(content) - 2 * BATCH_BYTES
    for position in range(start, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        whole = COUNT - 2 + (position - start) // BATCH_BYTES
        found = reopened(crashed, tmp_path / "copy", bytes(damaged))
        assert found == list(range(whole)), f"byte {position} flipped"


def test_a_tail_of_zeros_is_cut(crashed: Path, tmp_path: Path) -> None:
    content = last_file(crashed).read_bytes()
    for zeros in (1, 11, 60, 61, 62, 5000):
        assert reopened(crashed, tmp_path / "copy", content + bytes(zeros)) == list(range(COUNT))


def test_what_follows_a_shortened_segment_is_dropped(crashed: Path) -> None:
    first, second = min(crashed.glob(f"*{LOG_SUFFIX}")), int(last_file(crashed).stem)
    first.write_bytes(first.read_bytes()[:-BATCH_BYTES])
    log = open_log(crashed, clean=False)
    assert log.end_offset == second - 1
    assert numbers(log) == list(range(second - 1))
    assert log.recovery.dropped_segments == 1
    assert "does not reach" in log.recovery.reason


def test_only_headers_are_read_before_the_recovery_point(crashed: Path) -> None:
    content = bytearray(last_file(crashed).read_bytes())
    content[-1] ^= 1
    last_file(crashed).write_bytes(content)
    trusting = open_log(crashed, clean=False, recovery_point=COUNT)
    assert trusting.end_offset == COUNT
    trusting.close(clean=False)
    careful = open_log(crashed, clean=False, recovery_point=COUNT - 1)
    assert careful.end_offset == COUNT - 1
    assert careful.durable_offset == COUNT - 1


def test_losing_what_was_durable_is_told(crashed: Path) -> None:
    last_file(crashed).write_bytes(b"")
    log = open_log(crashed, clean=False, recovery_point=COUNT)
    assert log.recovery.missing_offsets == COUNT - log.end_offset > 0


def test_recovered_batches_are_durable_only_after_a_sync(crashed: Path) -> None:
    log = open_log(crashed, clean=False, recovery_point=2)
    assert log.durable_offset == 2
    sync(log)
    assert log.durable_offset == COUNT


def test_a_clean_start_reads_no_batches(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, segment_bytes=1000)
    fill(log, 30)
    log.append(make_batch(producer_id=5, producer_epoch=0, base_sequence=0), NOW)
    log.close(clean=True)
    files = CountingFiles()
    again = open_log(directory, files=files, segment_bytes=1000)
    assert (again.end_offset, again.producer_count) == (31, 1)
    assert again.maintain(NOW).deleted_segments == 0
    fill(again, 1, start=31)
    assert {path: count for path, count in files.bytes_read.items() if path.endswith(LOG_SUFFIX)} == {}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "flipped", "short"])
@pytest.mark.parametrize("clean", [True, False])
def test_everything_but_the_batches_can_be_found_again(
    tmp_path: Path, suffix: str, damage: str, clean: bool
) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, segment_bytes=1500, index_interval_bytes=100)
    for number in range(30):
        log.append(_numbered(number), NOW)
    log.close(clean=False)
    log = open_log(directory, clean=False, segment_bytes=1500, index_interval_bytes=100)  # writes the epochs
    log.append(_numbered(30), NOW)
    before = [(record.offset, record.timestamp) for record in read_all(log)]
    log.close(clean=clean)
    for path in directory.iterdir():
        if path.name.endswith(suffix):
            _damage(path, damage)
    again = open_log(directory, clean=clean)
    assert [(record.offset, record.timestamp) for record in read_all(again)] == before
    assert [again.offset_for_timestamp(NOW + step * 10) for step in range(31)] == [
        (step, NOW + step * 10) for step in range(31)
    ]
    assert again.offset_of_max_timestamp() == (30, NOW + 300)
    assert again.append(_numbered(30), NOW).duplicate
    again.append(_numbered(31), NOW)
    assert again.leader_epoch == (1 if clean else 2)


def _numbered(number: int) -> bytes:
    records = [RecordData(0, NOW + number * 10, None, bytes(50))]
    return encode_batch(records, producer_id=5, producer_epoch=0, base_sequence=number)


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
        return
    middle = len(content) // 2
    flipped = content[:middle] + bytes(byte ^ 0x55 for byte in content[middle:][:1]) + content[middle + 1 :]
    changed = {"empty": b"", "zeros": bytes(len(content)), "flipped": flipped, "short": content[:-1]}
    path.write_bytes(changed[damage])


def test_leftovers_are_removed(crashed: Path) -> None:
    for name in ("x.tmp", "00000000000000000000.log.deleted", "00000000000000000999.index"):
        (crashed / name).write_bytes(b"leftover")
    assert numbers(open_log(crashed, clean=False)) == list(range(COUNT))
    assert not {"x.tmp", "00000000000000000000.log.deleted", "00000000000000000999.index"} & {
        path.name for path in crashed.iterdir()
    }


def test_a_damaged_start_offset_is_an_error(crashed: Path) -> None:
    (crashed / "log-start-offset-checkpoint").write_text("0\nx\n")
    with pytest.raises(KafkaStorageError, match="log-start-offset-checkpoint is damaged"):
        open_log(crashed, clean=False)


def test_records_deleted_beyond_what_is_left(crashed: Path) -> None:
    log = open_log(crashed, clean=False)
    log.delete_records(COUNT)
    log.close(clean=False)
    last_file(crashed).write_bytes(b"")
    again = open_log(crashed, clean=False)
    assert (again.start_offset, again.end_offset) == (COUNT, COUNT)
    assert fill(again, 1)[0].base_offset == COUNT


# -- leader epochs


def test_every_crash_begins_an_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for epoch in range(3):
        fill(log, 2)
        assert log.leader_epoch == epoch
        log.close(clean=False)
        log = open_log(tmp_path / "t-0", clean=False)
    assert log.leader_epoch == 3
    log.close(clean=True)
    again = open_log(tmp_path / "t-0", clean=True)
    assert [again.end_offset_for_epoch(epoch) for epoch in range(-1, 5)] == [
        (-1, -1), (0, 2), (1, 4), (2, 6), (3, 6), (-1, -1),
    ]  # fmt: skip


def test_the_callers_epoch_is_taken_without_writing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    log.close(clean=False)
    log = open_log(tmp_path / "t-0", clean=False, epoch_floor=5)
    assert log.leader_epoch == 5
    assert (tmp_path / "t-0" / EPOCHS_FILE).read_text() == "0\n1\n0 0\n"
    fill(log, 2)
    log.close(clean=False)
    log = open_log(tmp_path / "t-0", clean=False, epoch_floor=6)
    assert log.end_offset == 4
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 3, 5, 6)] == [(0, 2), (0, 2), (5, 4), (6, 4)]


def test_an_epoch_that_got_no_records_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    for epoch in range(1, 4):
        log.close(clean=False)
        log = open_log(tmp_path / "t-0", clean=False)
        assert log.leader_epoch == epoch
    fill(log, 1)
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 3)] == [(0, 2), (0, 2), (0, 2), (3, 3)]


def test_an_empty_log_has_the_callers_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", epoch_floor=4)
    assert log.leader_epoch == 4
    fill(log, 1)
    log.close(clean=True)
    log = open_log(tmp_path / "t-0", epoch_floor=4)
    assert log.leader_epoch == 4
    assert log.end_offset_for_epoch(4) == (4, 1)


def test_what_ended_with_an_epoch_does_not_come_back(tmp_path: Path) -> None:
    """A tail that was cut after a failed sync, but is there again after a crash."""
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    sync(log)
    fill(log, 2, start=90)
    with_tail = last_file(tmp_path / "t-0").read_bytes()
    log.sync_failed(log.take_unsynced(), OSError("failed"))
    log.close(clean=False)
    last_file(tmp_path / "t-0").write_bytes(with_tail)
    assert numbers(open_log(tmp_path / "t-0", clean=False)) == [0, 1, 2]


# -- what is trusted, and what is not


def test_indexes_that_a_clean_stop_wrote_are_verified(tmp_path: Path) -> None:
    """They were written without waiting for the disk: a part of them may be missing that looks whole."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=50)
    for number in range(10):
        log.append(_numbered(number), NOW)
    log.close(clean=True)
    (path,) = (tmp_path / "t-0").glob("*.snapshot")
    path.write_bytes(path.read_bytes()[:-12])
    again = open_log(tmp_path / "t-0")
    assert not again.recovery.scanned
    assert again.offset_of_max_timestamp() == (9, NOW + 90)


def test_indexes_of_a_segment_that_ends_at_the_recovery_point_are_built_anew(tmp_path: Path) -> None:
    """It may have been closed after the sync that the recovery point tells of."""
    log = open_log(tmp_path / "t-0", segment_bytes=1000, index_interval_bytes=50)
    for number in range(10):
        log.append(_numbered(number), NOW)
    assert log.segment_count == 2
    log.close(clean=False)
    path = min((tmp_path / "t-0").glob("*.timeindex"))
    path.write_bytes(path.read_bytes()[:-12])
    end_of_first = int(last_file(tmp_path / "t-0").stem)
    again = open_log(tmp_path / "t-0", clean=False, recovery_point=end_of_first)
    expected = (end_of_first - 1, NOW + 10 * (end_of_first - 1))
    assert again.offset_for_timestamp(expected[1]) == expected


def test_a_snapshot_of_what_was_lost_is_dropped(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=4 * len(_numbered(0)))
    for number in range(5):
        log.append(_numbered(number), NOW)  # the last of them in a new segment, with a snapshot of the first
    assert log.segment_count == 2
    log.close(clean=False)
    last_file(tmp_path / "t-0").unlink()
    first = last_file(tmp_path / "t-0")
    first.write_bytes(first.read_bytes()[: len(_numbered(0))])
    log = open_log(tmp_path / "t-0", clean=False)
    assert log.end_offset == 1
    fill(log, 3)
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", clean=False)
    assert not again.append(_numbered(1), NOW).duplicate, "it was lost"


# -- cuts are durable before anything else is written


def test_a_torn_tail_is_cut_for_good(tmp_path: Path) -> None:
    files = PowerLossFiles(tmp_path / "disk")
    log = open_log(Path(files.root) / "t-0", files=files)
    fill(log, 2)
    sync(log)
    log.close(clean=False)
    with last_file(Path(files.root) / "t-0").open("ab") as file:
        file.write(b"torn")
    files = PowerLossFiles(tmp_path / "disk")
    open_log(Path(files.root) / "t-0", files=files, clean=False)
    after = files.after_power_loss(NothingSurvives(), tmp_path / "after")
    assert last_file(Path(after.root) / "t-0").stat().st_size == 2 * len(make_batch([bytes(106)]))


def test_retention_leaves_a_durable_segment(tmp_path: Path) -> None:
    files = PowerLossFiles(tmp_path / "disk")
    log = open_log(Path(files.root) / "t-0", files=files, retention_ms=1000)
    fill(log, 5)
    sync(log)
    assert log.maintain(NOW + 5000).deleted_segments == 1
    assert f"{5:020d}.log" in files.durable_names(Path(files.root) / "t-0"), "or offsets would be given twice"


def test_what_was_recovered_outlives_a_failed_sync(tmp_path: Path) -> None:
    files = PowerLossFiles(tmp_path / "disk")
    directory = Path(files.root) / "t-0"
    log = open_log(directory, files=files, segment_bytes=400)
    fill(log, 6)
    log.close(clean=False)
    log = open_log(directory, files=files, clean=False, segment_bytes=400)
    fill(log, 1, start=99)
    log.sync_failed(log.take_unsynced(), OSError("failed"))
    assert numbers(log) == list(range(6)), "it may have been durable: only what is new is cut"
    assert log.durable_offset == 0
    sync(log)
    assert log.durable_offset == 6
    after = files.after_power_loss(NothingSurvives(), tmp_path / "after")
    assert numbers(open_log(Path(after.root) / "t-0", files=after, clean=False)) == list(range(6))
