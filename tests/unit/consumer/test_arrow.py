"""Record batches: the same from columns that lie in arrays, from plain ones, and from both at once."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding.arrow import column_type, to_record_batch
from millstream.consumer.decoding.columns import Columns, decode_columns, decode_compiled
from millstream.consumer.fetching.drain import Deserializers, deserialize
from millstream.errors import ConfigError
from millstream.model import TimestampType, TopicPartition
from millstream.serde import deserializer
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.decode import DecoderKernels


@pytest.fixture(scope="module")
def loops() -> DecoderKernels:
    found = compiling.background.wait(60)
    assert found is not None
    return found


def batch_of(first: int, values: list[bytes | None], **options: Any) -> bytes:
    records = [
        RecordData(
            first + i, 1_700_000_000_000 + i, value, value, (("h", b"x"), ("n", None)) if i == 1 else ()
        )
        for i, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=first, **options)


def columns_of(batch: bytes, loops: DecoderKernels | None, topic: str = "t", partition: int = 0) -> Columns:
    header = read_header(batch)
    if loops is not None:
        found = decode_compiled(loops, memoryview(batch), header, TopicPartition(topic, partition), 1 << 20)
        assert found is not None
        return found
    rows = zip(*decode_batch(batch, max_decompressed_bytes=1 << 20), strict=True)
    return Columns(topic, partition, header.timestamp_type, None, *rows)


VALUES = [b"a", None, b"", b"\xff\x00" * 40, None]


@pytest.mark.parametrize("mix", [(True, True, True), (False, False, False), (True, False, True)])
def test_several_batches_become_one(loops: DecoderKernels, mix: tuple[bool, ...]) -> None:
    batches = [
        (batch_of(0, VALUES), "t", 0),
        (batch_of(7, VALUES[::-1], timestamp_type=TimestampType.LOG_APPEND_TIME), "u", 3),
        (batch_of(5, [None, None]), "t", 0),
    ]
    parts = [
        columns_of(batch, loops if fast else None, topic, partition)
        for (batch, topic, partition), fast in zip(batches, mix, strict=True)
    ]
    table = to_record_batch(parts, pa.binary(), pa.binary(), headers=True)
    table.validate(full=True)
    assert table.schema == pa.schema(
        [
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestamp_type", pa.int8()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    rows = table.to_pydict()
    assert rows["topic"] == ["t"] * 5 + ["u"] * 5 + ["t"] * 2
    assert rows["partition"] == [0] * 5 + [3] * 5 + [0] * 2
    assert rows["offset"] == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 5, 6]
    assert rows["timestamp_type"] == [0] * 5 + [1] * 5 + [0] * 2
    assert rows["key"] == rows["value"] == [*VALUES, *VALUES[::-1], None, None]
    assert rows["headers"][1] == [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert rows["headers"][0] == []
    assert table["timestamp"].cast(pa.int64())[1].as_py() == 1_700_000_000_001


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_taken_from_the_middle(loops: DecoderKernels, compiled: bool) -> None:
    part = columns_of(batch_of(0, VALUES), loops if compiled else None).rows(1, 4)
    table = to_record_batch([part, part], pa.binary(), pa.binary(), headers=False)
    assert table["value"].to_pylist() == VALUES[1:4] * 2
    assert table["offset"].to_pylist() == [1, 2, 3] * 2


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("name", "layout", "objects"),
    [
        ("string", None, ["a", None, "", "é", "日本"]),
        ("short", ">h", [-1, None, 2**15 - 1]),
        ("int", ">i", [-1, None, 2**31 - 1]),
        ("long", ">q", [-(2**63), None, 5]),
        ("float", ">f", [0.5, None, -2.0]),
        ("double", ">d", [0.1, None, 1e300]),
        ("boolean", ">?", [True, None, False]),
        ("string", None, [None, None]),
        ("long", ">q", [None]),
    ],
)
def test_typed_columns(
    loops: DecoderKernels, compiled: bool, name: str, layout: str | None, objects: list[Any]
) -> None:
    raw = [
        None if each is None else each.encode() if layout is None else struct.pack(layout, each)
        for each in objects
    ]
    how = Deserializers.of(deserializer(name), deserializer(name))
    part, error = deserialize(columns_of(batch_of(0, raw), loops if compiled else None), how)
    assert error is None
    kind = column_type(name, "value_deserializer")
    table = to_record_batch([part, part], kind, kind, headers=False)
    table.validate(full=True)
    assert table["value"].type == kind
    assert table["value"].to_pylist() == table["key"].to_pylist() == objects * 2


def test_no_records_at_all() -> None:
    table = to_record_batch([], pa.string(), pa.int64(), headers=True)
    assert table.num_rows == 0
    assert table["key"].type == pa.string() and table["value"].type == pa.int64()


def test_a_format_without_a_column_type_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"poll_arrow.*value_deserializer=json.*use bytes"):
        column_type("json", "value_deserializer")


def test_a_batch_without_records(loops: DecoderKernels) -> None:
    empty = batch_of(0, [b"a"])
    empty = empty[:8] + (49).to_bytes(4, "big") + empty[12:57] + bytes(4)
    columns = decode_columns(
        memoryview(empty), read_header(empty), TopicPartition("t", 0), max_decompressed_bytes=10
    )
    assert len(columns) == 0


def test_pandas_is_not_imported_by_a_first_poll() -> None:
    """It takes longer than all the rest; pyarrow would do it for any list or array, if it is installed."""
    program = """
import sys
import numpy as np
import pyarrow as pa
from millstream.consumer.decoding.arrow import to_record_batch
from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.fields import Numbers
numbers = Numbers(np.arange(2)), Numbers(np.arange(2))
plain = [0, 1], [5, 6]
for offsets, times in (plain, numbers):
    part = Columns("t", 0, 0, None, offsets, times, [None, b"k"], ["v", None], [(), ()])
    batch = to_record_batch([part], pa.binary(), pa.string(), headers=False)
    assert batch.num_rows == 2 and batch.column("key").null_count == 1
    assert [each.as_py() for each in batch.column("value")] == ["v", None]
    assert [each.as_py() for each in batch.column("offset")] == [0, 1]
print("pandas" in sys.modules)
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_batches_share_cannot_be_written_to() -> None:
    """Columns of one number lie in memory of many batches."""
    part = Columns(
        "t", 7, TimestampType.CREATE_TIME, None, [1, 2], [3, 4], [None, None], [b"a", b"b"], [(), ()]
    )
    first, second = (to_record_batch([part], pa.binary(), pa.binary(), headers=False) for _ in range(2))
    for name in ("partition", "timestamp_type"):
        assert first.column(name).buffers()[1].address == second.column(name).buffers()[1].address
        assert not first.column(name).buffers()[1].is_mutable
    assert not first.column("topic").indices.buffers()[1].is_mutable
    first.validate(full=True)
    assert first.nbytes < 1000


def test_batches_with_more_rows_than_are_shared() -> None:
    rows = (1 << 16) + 1
    numbers = list(range(rows))
    nothing: list[None] = [None] * rows
    part = Columns("t", 7, TimestampType.CREATE_TIME, None, numbers, numbers, nothing, nothing, [()] * rows)
    batch = to_record_batch([part], pa.binary(), pa.binary(), headers=False)
    assert batch.num_rows == rows and set(batch.column("partition").to_pylist()) == {7}
