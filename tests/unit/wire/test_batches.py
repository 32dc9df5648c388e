"""Record batches: round trips, damage, and agreement with kafka-python's own record code."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import CorruptBatch, UnsupportedMagic
from millstream.model import TimestampType
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    HEADER,
    BatchHeader,
    add_sequence,
    assemble_batch,
    check_crc,
    iter_headers,
    patch_batch,
    read_header,
    set_max_timestamp,
)
from millstream.wire.records.batches import (
    ControlType,
    RecordData,
    decode_batch,
    encode_batch,
    read_control_type,
)
from millstream.wire.records.codecs import Codec

with warnings.catch_warnings():  # kafka-python 3.0 reads its schemas in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

LIMIT = 1 << 24
SOME = [
    RecordData(10, 1000, b"key", b"value", (("name", b"x"), ("none", None), ("", b""))),
    RecordData(11, 1005, None, b""),
    RecordData(13, 990, b"", None),
]

int64 = st.integers(0, 2**62)
blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=10), blobs), max_size=4).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[RecordData], dict[str, Any]]:
    base_offset = draw(int64)
    count = draw(st.integers(1, 20))
    gaps = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
    offsets = [base_offset + sum(gaps[:index]) for index in range(count)]
    base_timestamp = draw(st.integers(-1, 2**61))
    records = [
        RecordData(
            offset, base_timestamp + draw(st.integers(-1000, 2**40)), draw(blobs), draw(blobs), draw(headers)
        )
        for offset in offsets
    ]
    options = {
        "base_offset": base_offset,
        "codec": draw(st.sampled_from(Codec)),
        "producer_id": draw(st.integers(-1, 2**63 - 1)),
        "producer_epoch": draw(st.integers(-1, 2**15 - 1)),
        "base_sequence": draw(st.integers(-1, 2**31 - 1)),
        "transactional": draw(st.booleans()),
        "control": draw(st.booleans()),
        "partition_leader_epoch": draw(st.integers(-1, 2**31 - 1)),
        "delete_horizon_ms": draw(st.none() | st.integers(0, 2**61)),
    }
    return records, options


@settings(max_examples=150, deadline=None)
@given(batches())
def test_what_was_encoded_comes_back(drawn: tuple[list[RecordData], dict[str, Any]]) -> None:
    records, options = drawn
    batch = encode_batch(records, **options)
    header = read_header(batch)
    check_crc(batch, header)
    assert decode_batch(batch, max_decompressed_bytes=LIMIT) == records
    assert header.size == len(batch)
    assert header.last_offset == records[-1].offset and header.next_offset == records[-1].offset + 1
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.codec is options["codec"]
    assert (header.is_transactional, header.is_control) == (options["transactional"], options["control"])
    assert header.delete_horizon_ms == options["delete_horizon_ms"]
    assert header.has_delete_horizon == (options["delete_horizon_ms"] is not None)
    for name in ("base_offset", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch"):
        assert getattr(header, name) == options[name]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_refused(codec: Codec) -> None:
    batch = encode_batch(SOME, base_offset=10, codec=codec)
    for length in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_batch(batch[:length], max_decompressed_bytes=LIMIT)
    with pytest.raises(CorruptBatch, match="1 bytes follow"):
        decode_batch(batch + b"\0", max_decompressed_bytes=LIMIT)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_flipped_bit_under_the_crc_is_found(codec: Codec) -> None:
    batch = encode_batch(SOME, base_offset=10, codec=codec)
    for position in range(8, len(batch)):
        if 12 <= position < 16:
            continue  # the leader epoch, which brokers write: outside the CRC
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                decode_batch(damaged, max_decompressed_bytes=LIMIT)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_behind_a_right_crc_is_found_or_harmless(data: st.DataObject) -> None:
    """An attacker computes the CRC too: whatever the records say, nothing but CorruptBatch comes out."""
    batch = bytearray(encode_batch(SOME, base_offset=10))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    fields = BatchHeader._make(HEADER.unpack_from(batch))._asdict()
    for name in ("batch_length", "magic", "crc"):
        del fields[name]
    with suppress(CorruptBatch):
        decode_batch(assemble_batch(batch[BATCH_OVERHEAD:], **fields), max_decompressed_bytes=LIMIT)


def _with_payload(payload: bytes, count: int = 1, last_offset_delta: int = 0) -> bytes:
    return assemble_batch(
        payload,
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=0,
        last_offset_delta=last_offset_delta,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),  # too short for a record
        (b"", 2**31 - 1),
        (b"\x0c\0\0\0\1\1\0", 2),  # one record, two claimed
        (b"\x0c\0\0\0\1\1\0" * 2, 1),  # two records, one claimed
        (b"\x0c\0\0\0\1\1\0" * 2, 2),  # the same offset twice
        (b"\x0a\0\0\0\1\1\0", 1),  # the length says less than the fields
        (b"\x0e\0\0\0\1\1\0\0", 1),  # ... and more
        (b"\x01\0\0\0\1\1\0", 1),  # a negative length
        (b"\x0c\0\0\0\3\1\0", 1),  # a key of length -2
        (b"\x0c\0\0\0\x40\1\0", 1),  # a key longer than the record
        (b"\x0c\0\0\0\1\1\1", 1),  # -1 headers
        (b"\x0c\0\0\0\1\1\x10", 1),  # 8 headers in no bytes
        (b"\x10\0\0\0\1\1\2\1\1", 1),  # a header without a name
        (b"\x0c\0\0\2\1\1\0", 1),  # an offset delta beyond the batch's last
        (b"\xff\xff\xff\xff\xff\xff\xff", 1),  # a length without an end
        (b"\x18\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x03\0\1\1\0", 1),  # a timestamp of 65 bits
    ],
)
def test_wrong_records_are_refused(payload: bytes, count: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_batch(_with_payload(payload, count), max_decompressed_bytes=LIMIT)


def test_a_batch_that_compaction_emptied() -> None:
    batch = _with_payload(b"", count=0, last_offset_delta=41)
    assert decode_batch(batch, max_decompressed_bytes=LIMIT) == []
    assert read_header(batch).next_offset == 42


def test_a_header_name_that_is_not_text_does_not_make_the_partition_unreadable() -> None:
    batch = _with_payload(b"\x12\0\0\0\1\1\2\2\xff\1")
    assert decode_batch(batch, max_decompressed_bytes=LIMIT)[0].headers == (("�", None),)


def test_other_formats_are_told_apart() -> None:
    batch = bytearray(encode_batch(SOME, base_offset=10))
    batch[16] = 1
    with pytest.raises(UnsupportedMagic):
        read_header(batch)
    with pytest.raises(UnsupportedMagic):
        read_header(batch[:40])  # an old message may be shorter than a header


@pytest.mark.parametrize("field", ["batch_length", "last_offset_delta", "record_count"])
def test_negative_counts_are_refused(field: str) -> None:
    header = read_header(encode_batch(SOME, base_offset=10))._replace(**{field: -1})
    with pytest.raises(CorruptBatch):
        read_header(HEADER.pack(*header))


def test_an_unknown_codec_is_refused() -> None:
    header = read_header(encode_batch(SOME, base_offset=10))._replace(attributes=5)
    with pytest.raises(CorruptBatch, match="unknown codec 5"):
        _ = header.codec


def test_headers_of_several_batches_and_a_partial_last_one() -> None:
    first, second = encode_batch(SOME, base_offset=10), encode_batch(SOME, base_offset=5, codec=Codec.GZIP)
    both = first + second
    assert [position for position, _ in iter_headers(both)] == [0, len(first)]
    assert [header.base_offset for _, header in iter_headers(both)] == [10, 5]
    for cut in range(len(first) + 1, len(both)):
        assert len(list(iter_headers(both[:cut], allow_partial=True))) == 1
        with pytest.raises(CorruptBatch):
            list(iter_headers(both[:cut]))
    assert list(iter_headers(b"")) == []


def test_a_batch_gets_its_place_without_a_new_crc() -> None:
    batch = bytearray(b"xx" + encode_batch(SOME, base_offset=10, codec=Codec.LZ4))
    before = read_header(batch, 2)
    patch_batch(batch, base_offset=700, partition_leader_epoch=3, position=2)
    header = read_header(batch, 2)
    check_crc(batch, header, 2)
    assert header == before._replace(base_offset=700, partition_leader_epoch=3)
    assert [record.offset for record in decode_batch(batch[2:], max_decompressed_bytes=LIMIT)] == [
        700,
        701,
        703,
    ]


def test_append_time_replaces_all_timestamps() -> None:
    batch = bytearray(encode_batch(SOME, base_offset=10))
    set_max_timestamp(memoryview(batch), 5555, append_time=True)
    assert {record.timestamp for record in decode_batch(batch, max_decompressed_bytes=LIMIT)} == {5555}
    assert read_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_sequences_wrap() -> None:
    records = [RecordData(offset, 0, None, None) for offset in range(4)]
    batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 1
    assert add_sequence(2**31 - 1, 1) == 0
    assert read_header(encode_batch(records)).last_sequence == -1


def test_control_records() -> None:
    assert read_control_type(b"\0\0\0\0") == ControlType.ABORT
    assert read_control_type(b"\0\0\0\1") == ControlType.COMMIT
    assert read_control_type(b"\0\1\0\7 and more") == 7, "of a later version"
    for wrong in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(CorruptBatch):
            read_control_type(wrong)


# -- against kafka-python, which knows the format independently


@settings(max_examples=60, deadline=None)
@given(batches())
def test_kafka_python_reads_what_we_write(drawn: tuple[list[RecordData], dict[str, Any]]) -> None:
    records, options = drawn
    options |= {
        "codec": Codec.NONE if options["codec"] in (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD) else options["codec"]
    }
    options |= {"control": False, "delete_horizon_ms": None}
    theirs = DefaultRecordBatch(encode_batch(records, **options))
    assert theirs.validate_crc()
    read = [
        RecordData(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ]
    assert read == records
    assert theirs.producer_id == options["producer_id"] and theirs.base_sequence == options["base_sequence"]


@settings(max_examples=60, deadline=None)
@given(batches())
def test_we_read_what_kafka_python_writes(drawn: tuple[list[RecordData], dict[str, Any]]) -> None:
    records, options = drawn
    codec = Codec.GZIP if options["codec"] is Codec.GZIP else Codec.NONE
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=options["transactional"],
        producer_id=options["producer_id"],
        producer_epoch=options["producer_epoch"],
        base_sequence=options["base_sequence"],
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        assert (
            builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
            is not None
        )
    batch = bytes(builder.build())
    decoded = decode_batch(batch, max_decompressed_bytes=LIMIT)
    assert decoded == [record._replace(offset=index) for index, record in enumerate(records)]
    assert read_header(batch).is_transactional == options["transactional"]
