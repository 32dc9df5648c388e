"""Every record of a produced batch is checked: by the compiled loop and by the plain decoder, alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.log.config import LogConfig
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.record_checks import RecordFacts, check_records, record_loop
from millstream.broker.log.validation import RecordsOutOfTimeError, RecordsWithoutKeyError, validate
from millstream.errors import BrokerError, CorruptBatch, InvalidRecordError, MessageTooLargeError
from millstream.model import TimestampType
from millstream.wire.records.batch_header import BatchHeader, read_header
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.decode import CheckRecords, load_check
from tests.kafka.malformed import good_batch, mutated, sealed

NOW_MS = 1_700_000_000_000
GOOD = encode_batch(
    [RecordData(0, NOW_MS, b"k", b"v", (("name", b"h"),)), RecordData(1, NOW_MS + 5, None, None)]
)


@pytest.fixture(scope="module")
def loop() -> CheckRecords:
    return load_check()


@pytest.fixture(params=["plain", "compiled"])
def _either(request: pytest.FixtureRequest, loop: CheckRecords) -> Iterator[None]:
    """A test for both ways to check."""
    record_loop.kernels = loop if request.param == "compiled" else None
    yield
    record_loop.kernels = None


both_ways = pytest.mark.usefixtures("_either")


def checked(batch: bytes, now_ms: int) -> list[BatchHeader] | str:
    try:
        return validate(memoryview(batch), LogConfig(), now_ms)
    except (BrokerError, CorruptBatch) as error:
        return str(error)


def test_compiled_and_plain_agree_on_damaged_batches(loop: CheckRecords) -> None:
    accepted, now_ms = 0, time.time_ns() // 1_000_000
    for seed in range(3000):
        batch = mutated(seed)
        record_loop.kernels = None
        plain = checked(batch, now_ms)
        record_loop.kernels = loop
        try:
            assert checked(batch, now_ms) == plain, f"seed {seed}"
        finally:
            record_loop.kernels = None
        accepted += isinstance(plain, list)
    assert 500 < accepted < 2500, "the damage is neither too light nor too heavy to show anything"


@both_ways
@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (GOOD.replace(b"\x08name", b"\x01name"), "a header without a name"),
        (GOOD.replace(b"name", b"n\xffme"), "name before byte .* is not UTF-8"),
        (GOOD + b"\0", "1 bytes follow the last of 2 records"),
        (GOOD[:57] + b"\0\0\0\1" + GOOD[61:], "bytes follow the last of 1 records"),
        (GOOD[:61] + b"\x01" + GOOD[62:], "a record of -1 bytes"),
        (GOOD[:62] + b"\x80" + GOOD[63:], "attributes 128"),
        (GOOD[:64] + b"\x02" + GOOD[65:], "offset delta 1 after 1|offset 1 in its batch, not 0"),
        (GOOD[:65] + b"\x7e" + GOOD[66:], "a field of 63 bytes"),
    ],
)
def test_what_is_wrong_is_said(batch: bytes, why: str) -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        wrong = sealed(batch, codec)
        with pytest.raises(InvalidRecordError, match=why):
            check_records(memoryview(wrong), read_header(wrong))


@both_ways
def test_a_name_in_any_language_is_fine() -> None:
    batch = encode_batch([RecordData(0, NOW_MS, None, None, (("größe\ufffd", b""),))])
    assert check_records(memoryview(batch), read_header(batch)) == RecordFacts(NOW_MS, NOW_MS, 1)


@both_ways
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused(codec: Codec) -> None:
    """With an error that makes producers split a batch, which may be an honest one."""
    bomb = encode_batch([RecordData(0, NOW_MS, None, bytes(65 << 20))], codec=codec)
    assert len(bomb) < 1 << 20
    with pytest.raises(MessageTooLargeError, match="decompresses to more than"):
        check_records(memoryview(bomb), read_header(bomb))


def test_a_small_batch_of_millions_of_bad_records_costs_little(loop: CheckRecords) -> None:
    """Decoded one by one they would take minutes and gigabytes, on the broker's only thread."""
    count = 2_000_000
    record = b"\x0c\0\0\0\1\1\0"  # all have offset 0
    head = GOOD[:23] + (count - 1).to_bytes(4, "big") + GOOD[27:57] + count.to_bytes(4, "big")
    bomb = sealed(head + record * count, Codec.ZSTD)
    assert len(bomb) < 100_000
    for kernels in (loop, None):
        record_loop.kernels = kernels
        try:
            with pytest.raises(MessageTooLargeError, match="2000000 records, 100000 are decoded at most"):
                check_records(memoryview(bomb), read_header(bomb))
        finally:
            record_loop.kernels = None


@both_ways
def test_records_are_named_that_have_no_key_or_are_out_of_time() -> None:
    hour = LogConfig(message_timestamp_before_max_ms=3_600_000, message_timestamp_after_max_ms=3_600_000)
    times = (NOW_MS, NOW_MS - 7_200_000, NOW_MS + 7_200_000, -1)
    batch = memoryview(encode_batch([RecordData(i, time, None, b"v") for i, time in enumerate(times)]))
    with pytest.raises(RecordsOutOfTimeError, match=f"timestamp {times[1]} is not between") as late:
        validate(batch, hour, NOW_MS)
    assert sorted(late.value.record_errors) == [1, 2]
    compacted = LogConfig(cleanup_policy=("compact",), message_timestamp_after_max_ms=1)
    with pytest.raises(RecordsWithoutKeyError, match="record 0 has no key") as keyless:
        validate(batch, compacted, NOW_MS)
    assert sorted(keyless.value.record_errors) == [0, 1, 2, 3]


def test_only_the_broker_sets_append_time() -> None:
    batch = encode_batch([RecordData(0, 5, None, b"v")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    for kind in ("CreateTime", "LogAppendTime"):
        config = LogConfig.from_properties({"message.timestamp.type": kind})
        with pytest.raises(RecordsOutOfTimeError, match="LogAppendTime"):
            validate(memoryview(batch), config, NOW_MS)


@both_ways
def test_a_wrong_largest_timestamp_is_corrected(tmp_path: Path) -> None:
    """As in Kafka: searches by time rely on it."""
    wrong = sealed(GOOD[:35] + (7).to_bytes(8, "big") + GOOD[43:])
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), clean=True, now_ms=NOW_MS)
    log.append(wrong, NOW_MS)
    stored = log.read(0, 1 << 20).read()
    assert read_header(stored).max_timestamp == NOW_MS + 5
    assert len(decode_batch(stored, max_decompressed_bytes=1 << 20)) == 2, "the CRC is right"
    assert log.offset_for_timestamp(NOW_MS + 1) == (1, NOW_MS + 5)
    log.close(clean=True)


@settings(deadline=None)
@given(chance=st.randoms(use_true_random=False), data=st.data())
def test_what_is_not_refused_can_be_read(chance: object, data: st.DataObject) -> None:
    """Any bytes at any place of the records, with a CRC that is right."""
    body = bytearray(good_batch(chance))  # type: ignore[arg-type]
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(21, len(body) - 1))] = data.draw(st.integers(0, 255))
    batch = sealed(bytes(body))
    try:
        (header,) = validate(memoryview(batch), LogConfig(), NOW_MS * 2)
    except (BrokerError, CorruptBatch):
        return
    records = decode_batch(batch, max_decompressed_bytes=1 << 20)
    assert [record.offset for record in records] == list(range(header.record_count))
