"""User data of Kafka's two sticky assignors: what a member had before, for the leader."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.consumer.assignors.base import NO_GENERATION
from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from millstream.wire.schema import Data, Struct, array, int32, string


class TopicAssignment(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32())


class StickyUserData(Data, versions=(0, 1)):
    """Version 1 added the generation (KIP-341). The bytes do not say their version."""

    previous_assignment: list[TopicAssignment] = array(TopicAssignment)
    generation: int = int32("1+", default=NO_GENERATION)


class CooperativeStickyUserData(Data, versions=(0, 0)):
    """Without the partitions, which the subscription itself has."""

    generation: int = int32()


_GENERATION_SIZE = 4

Claim = tuple[tuple[TopicPartition, ...], int]
"""The partitions that a member says it has, and the generation in which it got them."""


def encode_sticky(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """What a member of ``sticky`` sends: the partitions that it got in this generation."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    previous = [TopicAssignment(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return StickyUserData(previous_assignment=previous, generation=generation).encode(1)


def decode_sticky(user_data: bytes | None) -> Claim:
    """What a member had. As in Kafka, unreadable data counts as nothing: it only costs stickiness."""
    if not user_data:
        return (), NO_GENERATION
    for version in (1, 0):
        try:
            message = StickyUserData.decode(user_data, version)
        except CorruptMessage:
            continue
        partitions = (
            TopicPartition(entry.topic, number)
            for entry in message.previous_assignment
            for number in entry.partitions
        )
        return tuple(partitions), message.generation
    return (), NO_GENERATION


def encode_cooperative(generation: int) -> bytes:
    """What a member of ``cooperative-sticky`` sends."""
    return CooperativeStickyUserData(generation=generation).encode(0)


def decode_cooperative(user_data: bytes | None) -> int:
    """The member's generation; that of a newcomer when there is none to read.

    librdkafka sends what it would send for ``sticky``, Java the generation alone.
    """
    if user_data is None or len(user_data) != _GENERATION_SIZE:
        _, generation = decode_sticky(user_data)
        return generation
    return CooperativeStickyUserData.decode(user_data, 0).generation
