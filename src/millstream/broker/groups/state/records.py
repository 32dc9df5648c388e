"""The records of ``__consumer_offsets``, in Kafka's formats.

Two kinds of record are used, which the number in front of the key distinguishes:

- ``OffsetRecord`` (key types 0 and 1): one group's committed offset for one partition;
- ``GenerationRecord`` (key type 2): one generation of a group, with its members and their assignments.

A record without a value is a tombstone. The topic is compacted: only the latest record of each key counts, so
the state of the coordinator is a function of the records alone.

Older value versions are read; the versions written are those that Kafka writes. Records of other group types
(KIP-848 and later) are skipped: ``decode_record`` returns None for them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from millstream.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.wire.schema import Data

_LEGACY_OFFSET_KEY_TYPE: Final = 0  # the same key, as very old brokers wrote it
_OFFSET_KEY_TYPE: Final = 1
_GROUP_KEY_TYPE: Final = 2
_OFFSET_VALUE_VERSION: Final = 3
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1  # the only version that can say when the offset expires
_GROUP_VALUE_VERSION: Final = 3
_NUMBER: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")

Buffer = bytes | bytearray | memoryview
_Message = TypeVar("_Message", bound=Data)


class CommittedOffset(NamedTuple):
    """A committed offset as stored. Times are epoch milliseconds. ``expires_ms`` is set if the client
    requested a retention time (OffsetCommit versions 2 to 4)."""

    offset: int
    metadata: str
    leader_epoch: int
    committed_ms: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member of a generation as stored: its subscription in the chosen protocol, and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A generation of a group as stored. ``state_since_ms`` (epoch) is when the group entered its state."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int | None
    members: tuple[MemberSnapshot, ...] = ()


class OffsetRecord(NamedTuple):
    """A group's offset for a partition; None deletes it."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """A generation of a group; None deletes the group."""

    group_id: str
    value: GroupSnapshot | None


GroupRecord = OffsetRecord | GenerationRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the record's key and value for the log; the value of a tombstone is None."""
    if isinstance(record, OffsetRecord):
        topic, partition = record.partition
        key = _offset_key_start(record.group_id, topic) + _PARTITION.pack(partition)
        return key, None if record.value is None else _encode_offset(record.value)
    group_value = None if record.value is None else _encode_group(record.value)
    return _numbered(_GROUP_KEY_TYPE, GroupMetadataKey(group=record.group_id), 0), group_value


def decode_record(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """Read a record of the log; return None for a kind that the classic coordinator does not use.

    Raises CorruptMessage if the bytes do not match the number in front of them.
    """
    if key is None:
        raise CorruptMessage("a record of __consumer_offsets has no key")
    kind, body = _split_number(key, "key")
    if kind in (_LEGACY_OFFSET_KEY_TYPE, _OFFSET_KEY_TYPE):
        offset_key = _decode(OffsetCommitKey, body, 0)
        partition = TopicPartition(offset_key.topic, offset_key.partition)
        return OffsetRecord(offset_key.group, partition, None if value is None else _decode_offset(value))
    if kind == _GROUP_KEY_TYPE:
        group_key = _decode(GroupMetadataKey, body, 0)
        return GenerationRecord(group_key.group, None if value is None else _decode_group(value))
    return None


@lru_cache(maxsize=1024)
def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` of a group: Java's hash of its name, as in Kafka."""
    code = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (code * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if code >= 0x80000000:
        code = 0x100000000 - code
    return 0 if code == 0x80000000 else code % partition_count


# The records of one commit differ in partition and offset only: the last field of the key, and the first one
# of the value. The rest is encoded once.


@lru_cache(maxsize=256)
def _offset_key_start(group_id: str, topic: str) -> bytes:
    """The key of an offset up to the partition."""
    whole = _numbered(_OFFSET_KEY_TYPE, OffsetCommitKey(group=group_id, topic=topic, partition=0), 0)
    return whole[: -_PARTITION.size]


def _encode_offset(value: CommittedOffset) -> bytes:
    start, end = _around_offset(*value[1:])
    return start + _OFFSET.pack(value.offset) + end


@lru_cache(maxsize=256)
def _around_offset(
    metadata: str, leader_epoch: int, committed_ms: int, expires_ms: int | None
) -> tuple[bytes, bytes]:
    """The value of an offset before and after the offset itself."""
    message = OffsetCommitValue(
        offset=0,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=committed_ms,
        expire_timestamp=-1 if expires_ms is None else expires_ms,
    )
    version = _OFFSET_VALUE_VERSION if expires_ms is None else _EXPIRING_OFFSET_VALUE_VERSION
    whole = _numbered(version, message, version)
    return whole[: _NUMBER.size], whole[_NUMBER.size + _OFFSET.size :]


def _decode_offset(buffer: Buffer) -> CommittedOffset:
    version, body = _split_number(buffer, "offset")
    message = _decode(OffsetCommitValue, body, version)
    return CommittedOffset(
        offset=message.offset,
        metadata=message.metadata,
        leader_epoch=message.leader_epoch,
        committed_ms=message.commit_timestamp,
        expires_ms=None if message.expire_timestamp == -1 else message.expire_timestamp,
    )


def _encode_group(value: GroupSnapshot) -> bytes:
    message = GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=-1 if value.state_since_ms is None else value.state_since_ms,
        members=[_encode_member(member) for member in value.members],
    )
    return _numbered(_GROUP_VALUE_VERSION, message, _GROUP_VALUE_VERSION)


def _encode_member(member: MemberSnapshot) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _decode_group(buffer: Buffer) -> GroupSnapshot:
    version, body = _split_number(buffer, "group")
    message = _decode(GroupMetadataValue, body, version)
    since = message.current_state_timestamp
    return GroupSnapshot(
        protocol_type=message.protocol_type,
        generation=message.generation,
        protocol=message.protocol,
        leader=message.leader,
        state_since_ms=None if since == -1 else since,
        members=tuple(_decode_member(member) for member in message.members),
    )


def _decode_member(member: MemberMetadata) -> MemberSnapshot:
    # Version 0 had one timeout for both purposes.
    rebalance_timeout_ms = (
        member.rebalance_timeout if member.rebalance_timeout != -1 else member.session_timeout
    )
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def _numbered(number: int, message: Data, version: int) -> bytes:
    return _NUMBER.pack(number) + message.encode(version)


def _split_number(buffer: Buffer, what: str) -> tuple[int, memoryview]:
    view = memoryview(buffer)
    if len(view) < _NUMBER.size:
        raise CorruptMessage(f"the {what} of a __consumer_offsets record has {len(view)} bytes: too few")
    (number,) = _NUMBER.unpack_from(view)
    return number, view[_NUMBER.size :]


def _decode(message: type[_Message], body: memoryview, version: int) -> _Message:
    lowest, highest = message.versions
    if not lowest <= version <= highest:
        raise CorruptMessage(f"{message.__name__} has no version {version}, only {lowest} to {highest}")
    decoded, end = message.decode_from(body, 0, version)
    if end != len(body):
        raise CorruptMessage(f"{message.__name__} version {version} ends {len(body) - end} bytes early")
    return decoded
