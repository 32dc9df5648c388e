"""Subscriptions and assignments as bytes: what members of a group of type ``consumer`` send each other.

Each starts with its version. Newer versions only add to the end, so a reader takes what it knows of a version
from the future and ignores the rest. Truncated or invalid bytes raise CorruptMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from millstream.consumer.assignors.base import Assignment, Subscription
from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from millstream.wire import consumer_protocol as messages
from millstream.wire.schema import Message

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of JoinGroup under which all this is understood."""

Buffer = bytes | bytearray | memoryview
_VERSION: Final = struct.Struct(">h")
_M = TypeVar("_M", bound=Message)


def encode_subscription(subscription: Subscription, version: int = 3) -> bytes:
    """What a member sends when it joins. Its group instance id is not part of it: JoinGroup carries that."""
    message = messages.ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            messages.OwnedTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(sorted(subscription.owned_partitions)).items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return _VERSION.pack(version) + message.encode(version)


def decode_subscription(data: Buffer, group_instance_id: str | None = None) -> Subscription:
    """What a member sent, of any version. The leader learns the instance id from JoinGroup."""
    message = _decode(messages.ConsumerProtocolSubscription, data)
    return Subscription(
        topics=tuple(message.topics),
        user_data=message.user_data,
        owned_partitions=_flat(message.owned_partitions),
        generation_id=message.generation_id,
        rack_id=message.rack_id or None,
        group_instance_id=group_instance_id,
    )


def encode_assignment(assignment: Assignment, version: int = 3) -> bytes:
    """What the leader sends to one member."""
    message = messages.ConsumerProtocolAssignment(
        assigned_partitions=[
            messages.AssignedTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + message.encode(version)


def decode_assignment(data: Buffer) -> Assignment:
    """What the leader sent, of any version. A member that it left out gets no bytes at all."""
    if not data:
        return Assignment()
    message = _decode(messages.ConsumerProtocolAssignment, data)
    return Assignment(partitions=_flat(message.assigned_partitions), user_data=message.user_data)


def _decode(message_type: type[_M], data: Buffer) -> _M:
    view = memoryview(data)
    if len(view) < _VERSION.size:
        raise CorruptMessage(f"{message_type.__name__} of {len(view)} bytes is too short for a version")
    (version,) = _VERSION.unpack_from(view)
    lowest, highest = message_type.versions
    if version < lowest:
        raise CorruptMessage(f"{message_type.__name__} has the impossible version {version}")
    message, _ = message_type.decode_from(view, _VERSION.size, min(version, highest))
    return message


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return by_topic


class _TopicPartitions(Protocol):
    topic: str
    partitions: list[int]


def _flat(entries: Iterable[_TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry.topic, number) for entry in entries for number in entry.partitions)
