"""Columns from the compiled decoder look as those from the plain one, whoever looks at them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding.columns import Columns, Stretch, decode_compiled, decode_stretch
from millstream.consumer.decoding.fields import Fields, Numbers, Texts
from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.drain import Deserializers, deserialize
from millstream.errors import DeserializationError
from millstream.model import TimestampType, TopicPartition
from millstream.serde import deserializer
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.decode import DecoderKernels

T0 = TopicPartition("t", 0)
FIELD = st.none() | st.binary(max_size=12)


@pytest.fixture(scope="module")
def loops() -> DecoderKernels:
    found = compiling.background.wait(60)
    assert found is not None
    return found


def compiled(loops: DecoderKernels, batch: bytes) -> Columns:
    columns = decode_compiled(loops, memoryview(batch), read_header(batch), T0, 1 << 20)
    assert columns is not None
    return columns


def plain(batch: bytes) -> Columns:
    header = read_header(batch)
    epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    rows = zip(*decode_batch(batch, max_decompressed_bytes=1 << 20), strict=True)
    return Columns(*T0, header.timestamp_type, epoch, *rows)


def batch_of(values: list[bytes | None], keys: list[bytes | None] | None = None, **options: Any) -> bytes:
    pairs = zip(keys or [None] * len(values), values, strict=True)
    return encode_batch([RecordData(at, at, key, value) for at, (key, value) in enumerate(pairs)], **options)


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(FIELD, FIELD, st.lists(st.tuples(st.text(max_size=3), FIELD), max_size=2)), min_size=1
    ),
    data=st.data(),
)
def test_rows_slices_and_records_are_the_same(
    loops: DecoderKernels,
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    data: st.DataObject,
) -> None:
    records = [RecordData(i * 2, i, k, v, tuple(h)) for i, (k, v, h) in enumerate(rows)]
    batch = encode_batch(records, codec=data.draw(st.sampled_from([Codec.NONE, Codec.GZIP])))
    fast, slow = compiled(loops, batch), plain(batch)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    for one, other in ((fast, slow), (fast.rows(start, stop), slow.rows(start, stop))):
        assert list(Records([one])) == list(Records([other]))
        assert [Records([one])[i] for i in range(len(one))] == list(Records([other]))
    assert all(type(each) is int for each in (*fast.offsets, fast.offsets[0], fast.timestamps[-1]))
    assert fast.data_bytes >= slow.data_bytes


DESERIALIZERS = ["string", "int", "long", "short", "float", "double", "boolean", "json", "bytes"]
SIZES = {"short": 2, "int": 4, "float": 4, "long": 8, "double": 8}


@settings(deadline=None)
@given(name=st.sampled_from(DESERIALIZERS), data=st.data())
def test_deserializing_gives_the_same_objects_and_the_same_error(
    loops: DecoderKernels, name: str, data: st.DataObject
) -> None:
    size = SIZES.get(name)
    good = st.binary(min_size=size, max_size=size) if size else st.text(max_size=4).map(str.encode)
    values = data.draw(st.lists(st.none() | good | good | st.binary(max_size=9), min_size=1, max_size=20))
    batch = batch_of(values, values[::-1])
    how = Deserializers.of(deserializer(name), deserializer(name))
    fast, fast_error = deserialize(compiled(loops, batch), how)
    slow, slow_error = deserialize(plain(batch), how)
    assert repr(list(Records([fast]))) == repr(list(Records([slow]))), "repr: a NaN is not equal to itself"
    assert repr([Records([fast])[i] for i in range(len(fast))]) == repr(list(Records([slow])))
    assert str(fast_error) == str(slow_error)


@pytest.mark.parametrize("value", [b"", None])
def test_headers_count_as_data(loops: DecoderKernels, value: bytes | None) -> None:
    """Else a poll would take in any number of batches that are nothing but headers."""
    headers = (("first", b"x" * 500), ("second", None), ("third", b"y" * 500))
    batch = encode_batch([RecordData(at, 0, None, value, headers * at) for at in range(3)])
    for columns in (compiled(loops, batch), plain(batch)):
        assert 3000 <= columns.data_bytes <= 3200
        assert 2000 <= columns.rows(2, 3).data_bytes <= 2100
        assert columns.rows(0, 1).data_bytes <= 10


def test_text_is_not_torn_between_two_records(loops: DecoderKernels) -> None:
    euro = "€".encode()
    columns = compiled(loops, batch_of([b"a", euro[:1], euro[1:], b"b"]))
    good, error = deserialize(columns, Deserializers(value=deserializer("string")))
    assert list(good.values) == ["a"]
    assert isinstance(error, DeserializationError) and error.offset == 1 and error.raw == euro[:1]


def test_known_formats_stay_columns(loops: DecoderKernels) -> None:
    texts = compiled(loops, batch_of([b"a", None, "é".encode(), b""]))
    good, _ = deserialize(texts, Deserializers(value=deserializer("string")))
    assert isinstance(good.values, Texts) and list(good.values) == ["a", None, "é", ""]
    assert good.values[2] == "é" and good.values[1] is None
    numbers = compiled(loops, batch_of([struct.pack(">q", -5), None]))
    good, _ = deserialize(numbers, Deserializers(value=deserializer("long")))
    assert isinstance(good.values, Numbers) and list(good.values) == [-5, None]
    assert good.values[0] == -5 and type(good.values[0]) is int and good.values[1] is None
    assert isinstance(good.keys, Fields)


# -- several batches in one go


def stretch(loops: DecoderKernels, data: bytes, **options: Any) -> Stretch | None:
    settings = {"check_crcs": True, "skip_transactional": False, "max_payload_bytes": 1 << 20, **options}
    return decode_stretch(loops, memoryview(data), 0, T0, **settings)


def numbered(first: int, count: int = 3, **options: Any) -> bytes:
    records = [RecordData(first + i, i, None, str(first + i).encode()) for i in range(count)]
    return encode_batch(records, base_offset=first, **options)


def test_batches_in_a_row_are_decoded_in_one_go(loops: DecoderKernels) -> None:
    data = numbered(0) + numbered(3) + numbered(8)
    found = stretch(loops, data)
    assert found is not None
    assert found.end == len(data) and found.next_offset == 11
    assert list(found.columns.offsets) == [0, 1, 2, 3, 4, 5, 8, 9, 10]
    assert list(found.columns.values) == [str(i).encode() for i in found.columns.offsets]


@pytest.mark.parametrize("codec", list(Codec))
def test_so_are_compressed_ones(loops: DecoderKernels, codec: Codec) -> None:
    data = numbered(0, codec=codec) + numbered(3, codec=codec) + numbered(6, codec=codec)
    found = stretch(loops, data)
    assert found is not None
    assert found.end == len(data) and found.next_offset == 9
    assert list(found.columns.values) == [str(i).encode() for i in range(9)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize(
    "keep", [lambda columns: columns.values[5:6], lambda columns: columns.rows(5, 6).values]
)
def test_what_somebody_keeps_is_not_written_over(
    loops: DecoderKernels, codec: Codec, keep: Callable[[Any], Any]
) -> None:
    """Decompressed records lie in memory that is used again: not while there are columns of them."""

    def texts(mark: str) -> list[bytes]:
        chance = random.Random(mark)
        return [chance.randbytes(5000).hex().encode() for _ in range(300)]

    def read(mark: str) -> Columns:
        found = stretch(loops, batch_of(list(texts(mark)), codec=codec), max_payload_bytes=1 << 24)
        assert found is not None
        return found.columns

    kept = [keep(read(mark)) for mark in "abc"]
    for mark in "defgh":
        assert list(read(mark).values[:9]) == texts(mark)[:9]
    for mark, each in zip("abc", kept, strict=True):
        assert list(each) == texts(mark)[5:6]


def at_offset(batch: bytes, offset: int) -> bytes:
    """The same batch elsewhere in the log; the CRC does not cover that."""
    return struct.pack(">q", offset) + batch[8:]


def test_few_records_do_not_keep_much_memory(loops: DecoderKernels) -> None:
    found = stretch(loops, batch_of([b"x" * 100], codec=Codec.ZSTD))
    assert found is not None and found.columns.values.data.nbytes < 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_becomes_very_large_is_read_on_its_own(loops: DecoderKernels, codec: Codec) -> None:
    """And those before it in one go."""
    large = batch_of([bytes(6 << 20)], codec=codec)
    assert stretch(loops, large, max_payload_bytes=1 << 28) is None
    columns = decode_compiled(loops, memoryview(large), read_header(large), T0, 1 << 28)
    assert columns is not None and list(columns.values) == [bytes(6 << 20)]
    header = read_header(numbered(0, codec=codec))
    found = stretch(
        loops, numbered(0, codec=codec) + at_offset(large, header.next_offset), max_payload_bytes=1 << 28
    )
    assert found is not None and found.next_offset == 3


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_batches_that_become_a_hundred_times_larger_are_read_in_one_go(
    loops: DecoderKernels, codec: Codec
) -> None:
    found = stretch(loops, batch_of([bytes(100_000)] * 3, codec=codec))
    assert found is not None and [len(value) for value in found.columns.values] == [100_000] * 3


@pytest.mark.parametrize("codec", [5, 6, 7, Codec.LZ4, Codec.ZSTD, Codec.GZIP])
def test_what_cannot_be_decompressed_needs_judgement(loops: DecoderKernels, codec: int) -> None:
    bad = bytearray(numbered(0))
    bad[22] = codec
    assert stretch(loops, bytes(bad), check_crcs=False) is None


def _bad_crc(batch: bytes) -> bytes:
    return batch[:-1] + b"\xff"


@pytest.mark.parametrize(
    "different",
    [
        pytest.param(numbered(3, codec=Codec.GZIP), id="compressed"),
        pytest.param(numbered(3, control=True), id="control"),
        pytest.param(numbered(3, partition_leader_epoch=4), id="another epoch"),
        pytest.param(numbered(3, timestamp_type=TimestampType.LOG_APPEND_TIME), id="another timestamp type"),
        pytest.param(numbered(1), id="out of order"),
        pytest.param(numbered(3)[:-1], id="cut"),
        pytest.param(numbered(3)[:40], id="cut in the header"),
        pytest.param(_bad_crc(numbered(3)), id="damaged"),
    ],
)
def test_a_stretch_ends_before_what_needs_judgement(loops: DecoderKernels, different: bytes) -> None:
    found = stretch(loops, numbered(0) + different)
    assert found is not None
    assert found.end == len(numbered(0)) and found.next_offset == 3


def test_transactions_are_looked_at_where_it_matters(loops: DecoderKernels) -> None:
    data = numbered(0, transactional=True, producer_id=7)
    assert stretch(loops, data) is not None
    assert stretch(loops, data, skip_transactional=True) is None


def test_damage_is_seen_where_crcs_are_checked(loops: DecoderKernels) -> None:
    assert stretch(loops, _bad_crc(numbered(0))) is None
    assert stretch(loops, numbered(0)[:-2] + b"x" + numbered(0)[-1:], check_crcs=False) is not None


def test_a_batch_that_lost_records_to_compaction_ends_a_stretch(loops: DecoderKernels) -> None:
    gap = encode_batch([RecordData(0, 0, None, b"0"), RecordData(2, 0, None, b"2")])
    found = stretch(loops, gap + numbered(3))
    assert found is not None and found.end == len(gap)


@pytest.mark.parametrize("look", [list, len, lambda column: column[0], lambda column: column[1:]])
def test_a_column_is_a_sequence(loops: DecoderKernels, look: Callable[[Any], Any]) -> None:
    columns = compiled(loops, batch_of([b"a", b"b", None]))
    for column in (columns.offsets, columns.keys, columns.values, columns.headers):
        assert look(column) is not None or column is columns.keys
        with pytest.raises(IndexError):
            column[3]
