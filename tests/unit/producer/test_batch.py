"""Batches: what they encode to, checked with the strict decoder, and how they are split."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.producer.accumulator import PartitionQueue
from millstream.producer.batch import Batch
from millstream.wire.batches import decode_batch, read_header
from millstream.wire.codecs import Codec

RECORDS = st.tuples(
    st.none() | st.binary(max_size=50),
    st.none() | st.binary(max_size=50) | st.just(b"x" * 5000),
    st.integers(0, 2**50),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def batch_of(records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]) -> Batch:
    batch = Batch(PartitionQueue("t", 0), 0, 100, None)
    for index, (key, value, timestamp, headers) in enumerate(records):
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)
        if headers:
            batch.headers[index] = headers
    batch.seal()
    return batch


@given(st.lists(RECORDS, min_size=1, max_size=20), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_what_is_encoded_is_what_was_added(records: list[Any], codec: Codec) -> None:
    encoded = batch_of(records).encode(codec, None)
    decoded = decode_batch(encoded, max_decompressed_bytes=1 << 24)
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in decoded] == records
    assert [r.offset for r in decoded] == list(range(len(records)))


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
    batch.size = 500
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
