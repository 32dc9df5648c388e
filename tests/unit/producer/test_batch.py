"""Batches: what they encode to, checked with the strict decoder, and how they are split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.producer.core.batch import Batch, PartitionQueue, encode_together
from millstream.producer.core.column_batch import ColumnBatch
from millstream.producer.core.columns import RecordColumns, column_of, encoder, headers_of, row_numbers
from millstream.producer.core.times import Times, expand_together
from millstream.wire.records.batch_header import BATCH_OVERHEAD, read_header
from millstream.wire.records.batches import decode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.encode import load

RECORDS = st.tuples(
    st.none() | st.binary(max_size=50),
    st.none() | st.binary(max_size=50) | st.just(b"x" * 5000),
    st.integers(0, 2**50),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def batch_of(records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]) -> Batch:
    batch = Batch(PartitionQueue("t", 0), 0, 500, None, Times())
    for key, value, timestamp, headers in records:
        batch.add(key, value, headers, timestamp, 0)
    batch.seal()
    return batch


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=20), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_what_is_encoded_is_what_was_added(records: list[Any], codec: Codec) -> None:
    encoded = batch_of(records).encode(codec, None)
    decoded = decode_batch(encoded, max_decompressed_bytes=1 << 24)
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in decoded] == records
    assert [r.offset for r in decoded] == list(range(len(records)))


@settings(deadline=None)
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=20), min_size=4, max_size=8), st.sampled_from(Codec))
def test_many_batches_together_are_encoded_as_each_alone(many: list[list[Any]], codec: Codec) -> None:
    together, alone = [batch_of(records) for records in many], [batch_of(records) for records in many]
    for batches in (together, alone):
        for number, batch in enumerate(batches):
            batch.set_identity(7, 1, number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "kernels", load())
        encode_together(together, codec)
    if codec is Codec.NONE:
        assert [one.encoded is not None for one in together] == [not one.headers for one in together]
    assert [bytes(one.encode(codec, None)) for one in together] == [
        bytes(one.encode(codec, None)) for one in alone
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    records: list[Any] = [
        (b"k", b"some value that repeats " * 10, 1_700_000_000_000 + n, []) for n in range(5000)
    ]
    encoded = batch_of(records).encode(codec, None)
    assert read_header(encoded).codec is codec
    assert len(decode_batch(encoded, max_decompressed_bytes=1 << 24)) == 5000


def test_a_new_identity_changes_the_header_only() -> None:
    batch = batch_of([(b"k", b"v", 5, []), (None, None, 3, [("h", None)])])
    batch.set_identity(7, 1, 10)
    first = batch.encode(Codec.NONE, None)
    assert batch.encode(Codec.NONE, None) is first
    batch.set_identity(7, 2, 0)
    second = batch.encode(Codec.NONE, None)
    header = read_header(second)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert (header.base_timestamp, header.max_timestamp) == (5, 5)
    assert first[61:] == second[61:]
    decode_batch(second, max_decompressed_bytes=1000)


def test_splitting_keeps_records_headers_and_sequence() -> None:
    batch = batch_of([(b"%d" % n, b"v", n, [("h", b"%d" % n)] if n % 2 else []) for n in range(5)])
    batch.set_identity(1, 0, 2**31 - 2)
    batch.room = 0
    first, second = batch.split(["a", "b"])
    assert (first.count, second.count) == (2, 3)
    assert (first.delivery, second.delivery) == ("a", "b")
    assert (first.base_sequence, second.base_sequence) == (2**31 - 2, 0)  # sequences wrap
    assert first.reserved + second.reserved == batch.reserved
    assert (first.size, second.size) == (200, 300)
    decoded = [
        record
        for part in (first, second)
        for record in decode_batch(part.encode(Codec.NONE, None), max_decompressed_bytes=1000)
    ]
    assert [record.key for record in decoded] == [b"0", b"1", b"2", b"3", b"4"]
    assert [bool(record.headers) for record in decoded] == [False, True, False, True, False]


def test_both_encoders_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some records have keys, headers, or a time of their own."""
    records: list[Any] = [
        (b"k" if n % 3 == 0 else None, b"v" * n, 1000 + n // 5, [("h", None)] if n % 7 == 0 else [])
        for n in range(100)
    ]
    monkeypatch.setattr(encoder, "kernels", None)
    plain = batch_of(records).encode(Codec.NONE, None)
    monkeypatch.setattr(encoder, "kernels", load())
    assert bytes(batch_of(records).encode(Codec.NONE, None)) == plain
    assert batch_of(records).encode(Codec.GZIP, None) is not None


def test_times_are_the_clocks_or_the_callers() -> None:
    batch = Batch(PartitionQueue("t", 0), 0, 500, None, Times())
    for timestamp in (1.5, 1.5009, 7, 1.5012, 1.5013, 1.502):
        batch.add(None, b"v", (), timestamp, 10)
    batch.seal()
    assert batch.times.expand(6) == [1500, 1500, 7, 1501, 1501, 1502]
    assert [batch.times.at(n) for n in range(6)] == batch.times.expand(6)
    assert expand_together([batch.times], [6]).tolist() == batch.times.expand(6)
    assert batch.times.span == (1500, 1502)
    assert (batch.size, batch.room) == (60, 440)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_parts_of_times(stamps: list[int], data: st.DataObject) -> None:
    times = Times()
    for row, stamp in enumerate(stamps):
        if row == 0 or stamp != stamps[row - 1]:
            times.change(row, stamp)
    middle = data.draw(st.integers(0, len(stamps) - 1))
    assert times.part(0, middle).expand(middle) == stamps[:middle] or not middle
    assert times.part(middle).expand(len(stamps) - middle) == stamps[middle:]


# -- blocks


def block_of(count: int, capacity: int = 100_000) -> tuple[ColumnBatch, int]:
    columns = RecordColumns(
        column_of([b"k%d" % n for n in range(count)]),
        column_of([None if n % 4 == 0 else b"v%d" % n for n in range(count)]),
        headers_of({1: [("h", b"1")]}, count),
        np.arange(count, dtype=np.int64) + 1000,
    )
    block = ColumnBatch(PartitionQueue("t", 0), 0, capacity, None)
    half = block.fill(load(), columns, row_numbers(count // 2), 0)
    return block, half + block.fill(load(), columns, row_numbers(count)[half:].copy(), 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_block_is_filled_in_pieces(codec: Codec) -> None:
    block, filled = block_of(100)
    assert block.count == filled == 100
    block.set_identity(7, 1, 10)
    read = decode_batch(block.encode(codec, None), max_decompressed_bytes=1 << 20)
    assert [record.key for record in read] == [b"k%d" % n for n in range(100)]
    assert [record.timestamp for record in read] == list(range(1000, 1100))
    assert read[1].headers == (("h", b"1"),)
    header = read_header(block.encode(codec, None))
    assert (header.max_timestamp, header.base_sequence, header.codec) == (1099, 10, codec)


def test_a_block_takes_what_fits() -> None:
    block, filled = block_of(100, capacity=500)
    assert 10 < filled < 100 and block.count == filled
    assert block.size <= 500 - BATCH_OVERHEAD
    assert block.room < 0, "nothing is added to it record by record"


def test_a_block_is_split_as_a_batch_is() -> None:
    block, _ = block_of(100)
    block.set_identity(7, 1, 0)
    first, second = block.split(["a", "b"])
    parts = [
        decode_batch(part.encode(Codec.NONE, None), max_decompressed_bytes=1 << 20)
        for part in (first, second)
    ]
    assert [record.key for part in parts for record in part] == [b"k%d" % n for n in range(100)]
    assert [record.timestamp for part in parts for record in part] == list(range(1000, 1100))
    assert (first.base_sequence, second.base_sequence) == (0, 50)
    assert first.reserved + second.reserved == block.reserved
    assert 0 < first.size <= block.size


@pytest.mark.parametrize(
    "batches",
    [
        [[5, 5, 5], [6]],  # one for each batch
        [[5, 6], [7, 9, 8]],  # one for each record
        [[5, 5, 6], [7], [8, 8, 9, 9, 9]],
    ],
)
def test_timestamps_of_several_batches(batches: list[list[int]]) -> None:
    every = []
    for stamps in batches:
        times = Times()
        for row, stamp in enumerate(stamps):
            if not row or stamp != stamps[row - 1]:
                times.change(row, stamp)
        every.append(times)
    expanded = expand_together(every, [len(stamps) for stamps in batches])
    assert expanded.tolist() == [stamp for stamps in batches for stamp in stamps]
