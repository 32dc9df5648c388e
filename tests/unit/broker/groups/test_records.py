"""The records of __consumer_offsets: Kafka's bytes, old and new, and bytes that are nothing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.groups.state.records import (
    CommittedOffset,
    GenerationRecord,
    GroupRecord,
    GroupSnapshot,
    MemberSnapshot,
    OffsetRecord,
    decode_record,
    encode_record,
    partition_for,
)
from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from millstream.wire.messages.group_records import GroupMetadataValue, MemberMetadata, OffsetCommitValue

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2**62)
timeouts = st.integers(0, 2**31 - 1)

committed = st.builds(CommittedOffset, int64s, names, int32s, int64s, st.none()) | st.builds(
    CommittedOffset, int64s, names, st.just(-1), int64s, times
)
members = st.builds(
    MemberSnapshot,
    names,
    st.none() | names,
    names,
    names,
    timeouts,
    timeouts,
    st.binary(max_size=30),
    st.binary(max_size=30),
)
groups = st.builds(
    GroupSnapshot,
    names,
    int32s,
    st.none() | names,
    st.none() | names,
    st.none() | times,
    st.lists(members, max_size=3).map(tuple),
)
records: st.SearchStrategy[GroupRecord] = st.builds(
    OffsetRecord, names, st.builds(TopicPartition, names, int32s), st.none() | committed
) | st.builds(GenerationRecord, names, st.none() | groups)


@given(records)
def test_what_is_written_is_read_back(record: GroupRecord) -> None:
    assert decode_record(*encode_record(record)) == record


def test_the_bytes_are_kafkas() -> None:
    offset = OffsetRecord("g", TopicPartition("t", 7), CommittedOffset(5, "m", 3, 1_000))
    assert encode_record(offset) == (
        bytes.fromhex("0001 0001 67 0001 74 00000007"),
        bytes.fromhex("0003 0000000000000005 00000003 0001 6d 00000000000003e8"),
    )
    expiring = OffsetRecord("g", TopicPartition("t", 7), CommittedOffset(5, "m", -1, 1_000, 2_000))
    assert encode_record(expiring)[1] == bytes.fromhex(
        "0001 0000000000000005 0001 6d 00000000000003e8 00000000000007d0"
    )
    member = MemberSnapshot("m", "i", "c", "/h", 2, 1, b"s", b"a")
    group = GenerationRecord("g", GroupSnapshot("consumer", 4, "range", "m", 1_000, (member,)))
    assert encode_record(group) == (
        bytes.fromhex("0002 0001 67"),
        bytes.fromhex(
            "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 00000000000003e8 00000001"
            "0001 6d 0001 69 0001 63 0002 2f68 00000002 00000001 00000001 73 00000001 61"
        ),
    )
    assert encode_record(GenerationRecord("g", None))[1] is None


@pytest.mark.parametrize("key_type", [0, 1])
@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(key_type: int, version: int) -> None:
    message = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="m", commit_timestamp=1_000, expire_timestamp=2_000
    )
    key = struct.pack(">h", key_type) + encode_record(OffsetRecord("g", TopicPartition("t", 7), None))[0][2:]
    value = struct.pack(">h", version) + message.encode(version)
    record = decode_record(key, value)
    expected = CommittedOffset(5, "m", 3 if version >= 3 else -1, 1_000, 2_000 if version == 1 else None)
    assert record == OffsetRecord("g", TopicPartition("t", 7), expected)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=2,
        session_timeout=1,
        subscription=b"s",
        assignment=b"a",
    )
    message = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=1_000,
        members=[member],
    )
    key = encode_record(GenerationRecord("g", None))[0]
    record = decode_record(key, struct.pack(">h", version) + message.encode(version))
    stored = MemberSnapshot(
        "m", "i" if version >= 3 else None, "c", "/h", 2 if version >= 1 else 1, 1, b"s", b"a"
    )
    expected = GroupSnapshot("consumer", 4, "range", "m", 1_000 if version >= 2 else None, (stored,))
    assert record == GenerationRecord("g", expected)


@pytest.mark.parametrize("kind", [3, 8, 15, 32_767, -1])
def test_records_of_other_kinds_of_group_are_passed_over(kind: int) -> None:
    assert decode_record(struct.pack(">h", kind) + b"whatever", b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (b"\0\1", None),
        (b"\0\1\0\1g\0\1t\0\0\0\7extra", None),
        (b"\0\2\0\1g", b""),
        (b"\0\2\0\1g", b"\0\3"),
        (b"\0\2\0\1g", b"\0\5\0\0"),
        (b"\0\2\0\1g", b"\xff\xff\0\0"),
        (b"\0\1\0\1g\0\1t\0\0\0\7", b"\0\3\0\0\0\0\0\0\0\5\0\0\0\3\0\1m\0\0\0\0\0\0\3\xe8\0"),
        (b"\0\2\0\1g", b"\0\3\0\1c\0\0\0\4\xff\xff\xff\xff\0\0\0\0\0\0\3\xe8\x7f\xff\xff\xff"),
    ],
)
def test_bytes_that_are_no_record_say_so(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        decode_record(key, value)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes | None) -> None:
    try:
        record = decode_record(key, value)
    except CorruptMessage:
        return
    assert record is None or decode_record(*encode_record(record)) == record


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("test-group", 12),
        ("consumer-group-1", 20),
        ("CountryCounter", 38),
        ("polygenelubricants", 0),  # its hash is the one number that has no absolute value
        ("\u4f60\U0001f600", 19),
    ],
)
def test_a_group_lives_where_kafka_puts_it(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition
