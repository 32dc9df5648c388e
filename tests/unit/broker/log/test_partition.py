"""A partition's log: appending, reading, finding by time, in one life and over clean stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.broker.log.files import Files
from millstream.errors import (
    CorruptBatch,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from millstream.model import TimestampType
from millstream.wire.records.batch_header import assemble_batch, iter_headers, read_header
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.records.codecs import Codec
from tests.unit.broker.log.support import NOW, fill, make_batch, numbers, open_log, read_all, sync, values


def test_offsets_are_given_in_order(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    first = log.append(make_batch([b"a", b"b"]), NOW)
    second = log.append(make_batch([b"c"]), NOW)
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert log.end_offset == 3
    assert [(record.offset, record.value) for record in read_all(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert first.log_append_time_ms == -1


def test_on_a_real_disk(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", files=Files(), segment_bytes=1000)
    fill(log, 20)
    sync(log)
    assert log.durable_offset == 20
    log.close(clean=True)
    assert numbers(open_log(tmp_path / "t-0", files=Files())) == list(range(20))


def test_several_batches_in_one_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    appended = log.append(make_batch([b"a", b"b"]) + make_batch([b"c"]), NOW)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert values(log) == [b"a", b"b", b"c"]


def test_a_writable_buffer_is_changed_in_place_and_others_are_not(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 5)
    batch = make_batch()
    log.append(batch, NOW)
    assert read_header(batch).base_offset == 0
    buffer = bytearray(batch)
    log.append(memoryview(buffer), NOW)
    assert read_header(buffer).base_offset == 6


def test_a_log_without_data_has_no_directory(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, 0, 0)
    assert not log.read(0, 100)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    assert log.maintain(NOW).deleted_segments == 0
    assert log.delete_records(-1) == 0
    assert not log.take_unsynced()
    log.close(clean=True)
    assert not (tmp_path / "t-0").exists()


def test_a_clean_stop_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=1000)
    fill(log, 20)
    log.close(clean=True)
    again = open_log(tmp_path / "t-0", segment_bytes=1000)
    assert not again.recovery.scanned
    assert (again.start_offset, again.end_offset, again.durable_offset) == (0, 20, 20)
    assert again.size_bytes == log.size_bytes
    assert numbers(again) == list(range(20))
    fill(again, 5, start=20)
    again.close(clean=True)
    assert numbers(open_log(tmp_path / "t-0")) == list(range(25))


def test_a_clean_stop_of_an_untouched_log_writes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    log.close(clean=True)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t-0").iterdir()}
    again = open_log(tmp_path / "t-0")
    numbers(again)
    again.close(clean=True)
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t-0").iterdir()}


# -- reading


def test_reads_are_whole_batches_within_the_limit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=5000, index_interval_bytes=300)
    fill(log, 100, size=50)
    one = len(log.read(0, 1))
    for offset in range(100):
        for max_bytes in (1, one, one + 1, 3 * one, 10_000):
            data = log.read(offset, max_bytes).read()
            headers = [header for _, header in iter_headers(data)]
            assert headers[0].base_offset == offset
            assert len(data) <= max(max_bytes, one)
            assert [header.base_offset for header in headers] == list(range(offset, offset + len(headers)))
    assert log.segment_count > 2


def test_a_first_batch_that_is_too_large_is_given_only_when_asked_for(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    assert not log.read(1, 10, at_least_one=False)
    assert len(list(iter_headers(log.read(1, 10, at_least_one=True).read()))) == 1


def test_a_batch_is_found_by_any_of_its_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        log.append(make_batch([b"a", b"b", b"c"]), NOW)
    assert [read_header(log.read(offset, 1).read()).base_offset for offset in range(9)] == [
        0, 0, 0, 3, 3, 3, 6, 6, 6,
    ]  # fmt: skip


def test_offsets_outside_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    assert not log.read(3, 100)
    for offset in (-1, 4, 1 << 40):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100)


def test_a_reader_at_the_end_goes_on_after_the_segment_was_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    for number in range(10):
        fill(log, 1, start=number)
        assert len(list(iter_headers(log.read(number, 1 << 20).read()))) == 1
        assert not log.read(number + 1, 1 << 20)


# -- what is refused


def test_damaged_batches_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    good = make_batch([b"a"])
    for position in (8, 16, 17, 25, len(good) - 1):
        damaged = bytearray(good)
        damaged[position] ^= 1
        with pytest.raises(CorruptBatch):
            log.append(good + damaged, NOW)
    with pytest.raises(CorruptBatch):
        log.append(good[:-1], NOW)
    with pytest.raises(InvalidRecordError):
        log.append(b"", NOW)
    assert log.end_offset == 0
    log.append(good, NOW)
    assert values(log) == [b"a"]


def test_counts_must_agree(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    with pytest.raises(InvalidRecordError, match="1 records with offsets from 0 to 1"):
        log.append(encode_batch([RecordData(1, NOW, None, None)]), NOW)


@pytest.mark.parametrize("kind", ["transactional", "control"])
def test_transactions_are_for_those_who_say_so(tmp_path: Path, kind: str) -> None:
    log = open_log(tmp_path / "t-0")
    flags: dict[str, Any] = {kind: True}
    batch = make_batch(producer_id=1, producer_epoch=0, base_sequence=0, **flags)
    with pytest.raises(InvalidRecordError, match=kind):
        log.append(batch, NOW)
    assert log.append(batch, NOW, allow_transactional=True).base_offset == 0


def test_only_compaction_sets_delete_horizons(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecordError):
        open_log(tmp_path / "t-0").append(make_batch(delete_horizon_ms=5), NOW)


def test_sizes_are_limited(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", max_message_bytes=1000, segment_bytes=1500)
    log.append(make_batch([bytes(900)]), NOW)
    with pytest.raises(MessageTooLargeError):
        log.append(make_batch([bytes(1000)]), NOW)
    with pytest.raises(RecordListTooLargeError):
        log.append(make_batch([bytes(900)]) * 2, NOW)


def test_timestamps_are_limited(tmp_path: Path) -> None:
    before, after = 1000, 500
    log = open_log(
        tmp_path / "t-0", message_timestamp_before_max_ms=before, message_timestamp_after_max_ms=after
    )
    for timestamp in (NOW - 1000, NOW, NOW + 500, -1):
        log.append(make_batch(timestamp=timestamp), NOW)
    for timestamp in (NOW - 1001, NOW + 501):
        with pytest.raises(InvalidTimestampError):
            log.append(make_batch(timestamp=timestamp), NOW)
    with pytest.raises(InvalidTimestampError):
        log.append(make_batch(timestamp_type=TimestampType.LOG_APPEND_TIME), NOW)


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    fields = read_header(make_batch())._asdict() | {"attributes": 5, "record_count": 1}
    for computed in ("batch_length", "magic", "crc"):
        del fields[computed]
    with pytest.raises(CorruptBatch, match="unknown codec 5"):
        open_log(tmp_path / "t-0").append(assemble_batch(b"", **fields), NOW)


# -- what the topic makes of batches


def test_the_brokers_time_replaces_the_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    appended = log.append(make_batch([b"a", b"b"], timestamp=5), NOW)
    assert appended.log_append_time_ms == NOW
    assert {record.timestamp for record in read_all(log)} == {NOW}
    assert log.offset_for_timestamp(NOW) == (0, NOW)
    assert log.offset_for_timestamp(NOW + 1) is None


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_have_a_codec_of_its_own(tmp_path: Path, name: str) -> None:
    log = open_log(tmp_path / "t-0", compression_type=name)
    wanted = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    for codec in Codec:
        log.append(bytearray(make_batch([b"x" * 50, b"y" * 50], codec=codec)), NOW)
    assert values(log) == [b"x" * 50, b"y" * 50] * 5
    assert {header.codec for _, header in iter_headers(log.read(0, 1 << 20).read())} == {wanted}


def test_compacted_topics_need_keys(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", cleanup_policy=("compact",))
    for codec in Codec:
        with pytest.raises(InvalidRecordError, match="record 1 has no key"):
            log.append(make_batch([b"a", b"b"], keys=[b"k", None], codec=codec), NOW)
        log.append(make_batch([b"a", None], keys=[b"", b"k"], codec=codec), NOW)
    assert log.end_offset == 10


# -- by time


@pytest.mark.parametrize("reopen", [None, True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_first_record_since_a_time(tmp_path: Path, codec: Codec, reopen: bool | None) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=600, index_interval_bytes=150)
    times = [NOW + step for step in (0, 10, 5, 30, 20, 20, 50, 40, 60, 55, 70, 80, 75, 90, 100)]
    for timestamp in times:
        batch = make_batch([b"a", b"b", b"c"], timestamp=timestamp, codec=codec)
        log.append(batch, NOW)
    if reopen is not None:
        log.close(clean=reopen)
        log = open_log(tmp_path / "t-0", clean=reopen)
    assert log.segment_count > 2
    records = read_all(log)
    for timestamp in range(NOW - 2, NOW + 105):
        expected = next(
            ((each.offset, each.timestamp) for each in records if each.timestamp >= timestamp), None
        )
        assert log.offset_for_timestamp(timestamp) == expected


@pytest.mark.parametrize("reopen", [None, True, False])
def test_the_record_with_the_largest_time(tmp_path: Path, reopen: bool | None) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=250)
    for step in (0, 10, 99, 30, 99, 20, 98):
        log.append(make_batch(timestamp=NOW + step), NOW)
    if reopen is not None:
        log.close(clean=reopen)
        log = open_log(tmp_path / "t-0", clean=reopen)
    assert log.offset_of_max_timestamp() == (2, NOW + 99)
    log.delete_records(3)
    assert log.offset_of_max_timestamp() == (4, NOW + 99)
    assert log.offset_for_timestamp(NOW + 50) == (4, NOW + 99)
    log.delete_records(5)
    assert log.offset_of_max_timestamp() == (6, NOW + 98)
    log.delete_records(-1)
    assert log.offset_of_max_timestamp() is None


def test_deleted_records_are_not_found_by_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(make_batch([b"a", b"b", b"c"]), NOW)
    log.append(make_batch([b"d"], timestamp=NOW + 1), NOW)
    assert log.offset_of_max_timestamp() == (2, NOW + 2)
    assert log.offset_for_timestamp(NOW + 1) == (1, NOW + 1)
    log.delete_records(2)
    assert log.offset_for_timestamp(NOW) == (2, NOW + 2)
    log.delete_records(3)
    assert log.offset_of_max_timestamp() == (3, NOW + 1)


# -- deleting records


def test_deleting_records_moves_the_start_for_good(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    fill(log, 10)
    assert log.delete_records(4) == 4
    assert log.delete_records(2) == 4, "it never goes back"
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(11)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(-2)
    assert numbers(log) == [4, 5, 6, 7, 8, 9]
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", clean=False)
    assert again.start_offset == 4
    assert numbers(again) == [4, 5, 6, 7, 8, 9]


def test_deleting_all_records_keeps_the_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 5)
    sync(log)
    assert log.delete_records(-1) == 5
    assert log.maintain(NOW).deleted_segments == 1
    assert fill(log, 1)[0].base_offset == 5
    for clean in (True, False):
        log.close(clean=clean)
        log = open_log(tmp_path / "t-0", clean=clean)
        assert (log.start_offset, log.end_offset) == (5, 6)


def test_slices_outlive_their_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    held = log.read(0, 1 << 20)
    before = held.read()
    log.delete_records(-1)
    for path in log.maintain(NOW).trash:
        Path(path).unlink()
    log.close(clean=True)
    assert held.read() == before
