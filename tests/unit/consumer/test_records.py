"""Records as a lazy sequence over columns."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumer.decoding.columns import Columns, decode_columns
from millstream.consumer.decoding.records import Record, Records
from millstream.model import TimestampType, TopicPartition
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import RecordData, encode_batch


def columns(topic: str, partition: int, first: int, count: int) -> Columns:
    offsets = list(range(first, first + count))
    return Columns(
        topic=topic,
        partition=partition,
        timestamp_type=TimestampType.CREATE_TIME,
        leader_epoch=3,
        offsets=offsets,
        timestamps=[1_000 + offset for offset in offsets],
        keys=[None] * count,
        values=[f"{topic}{offset}".encode() for offset in offsets],
        headers=[()] * count,
    )


def test_a_batch_becomes_columns() -> None:
    records = [
        RecordData(7, 1_700, b"k", b"v", (("h", b"x"), ("n", None))),
        RecordData(9, 1_699, None, None),
        RecordData(10, 1_800, b"", b""),
    ]
    batch = encode_batch(
        records, base_offset=7, partition_leader_epoch=4, timestamp_type=TimestampType.CREATE_TIME
    )
    found = decode_columns(
        memoryview(batch), read_header(batch), TopicPartition("t", 2), max_decompressed_bytes=1_000
    )
    assert list(Records([found])) == [
        Record("t", 2, 7, 1_700, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"), ("n", None)), 4),
        Record("t", 2, 9, 1_699, TimestampType.CREATE_TIME, None, None, (), 4),
        Record("t", 2, 10, 1_800, TimestampType.CREATE_TIME, b"", b"", (), 4),
    ]


def test_a_log_without_epochs_gives_none() -> None:
    batch = encode_batch([RecordData(0, 0, None, None)])
    found = decode_columns(
        memoryview(batch), read_header(batch), TopicPartition("t", 0), max_decompressed_bytes=1_000
    )
    assert found.leader_epoch is None


def test_no_records() -> None:
    records = Records()
    assert not records
    assert len(records) == 0
    assert list(records) == []
    assert records.by_partition() == {}
    assert records == Records([columns("t", 0, 0, 0)])
    assert repr(records) == "<Records none>"
    with pytest.raises(IndexError):
        records[0]


def test_by_partition_keeps_order_and_is_indexable() -> None:
    records = Records([columns("a", 0, 0, 2), columns("b", 1, 5, 3), columns("a", 0, 2, 1)])
    parts = records.by_partition()
    assert list(parts) == [TopicPartition("a", 0), TopicPartition("b", 1)]
    assert [record.offset for record in parts[TopicPartition("a", 0)]] == [0, 1, 2]
    assert parts[TopicPartition("b", 1)][-1].value == b"b7"
    assert repr(records) == "<Records a-0: 3, b-1: 3>"


def test_a_record_names_its_partition_and_can_be_pickled() -> None:
    record = Records([columns("a", 4, 0, 1)])[0]
    assert record.topic_partition == TopicPartition("a", 4)
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.offset = 3  # type: ignore[misc]


@given(
    sizes=st.lists(st.integers(0, 4), max_size=5),
    start=st.none() | st.integers(-20, 20),
    stop=st.none() | st.integers(-20, 20),
    step=st.none() | st.integers(-3, 3).filter(bool),
)
def test_records_index_and_slice_as_a_list_does(
    sizes: list[int], start: int | None, stop: int | None, step: int | None
) -> None:
    records: Sequence[Record] = Records([columns("t", i, i * 10, size) for i, size in enumerate(sizes)])
    plain = list(records)
    assert len(records) == len(plain) == sum(sizes)
    assert [records[index] for index in range(len(plain))] == plain
    assert [records[index] for index in range(-len(plain), 0)] == plain
    assert list(records[start:stop:step]) == plain[start:stop:step]
    assert list(reversed(records)) == plain[::-1]
    for index in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            records[index]
