"""Subscriptions and assignments, which members exchange through the coordinator as opaque bytes."""

from __future__ import annotations

from millstream.wire.schema import Data, Struct, array, data, int32, string


class OwnedTopicPartition(Struct):
    """The partitions of one topic that a member owns when it joins."""

    topic: str = string("1+", default="")
    partitions: list[int] = array(int32(), "1+", default=[])


class ConsumerProtocolSubscription(Data, versions=(0, 3)):
    """A member's topics, and the partitions that it owns already (KIP-429, KIP-792, KIP-881)."""

    topics: list[str] = array(string())
    user_data: bytes | None = data(nullable="0+", default=None)
    owned_partitions: list[OwnedTopicPartition] = array(OwnedTopicPartition, "1+", default=[])
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class AssignedTopicPartition(Struct):
    """The partitions of one topic that are assigned to a member."""

    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolAssignment(Data, versions=(0, 3)):
    """The partitions that the leader assigned to a member."""

    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition)
    user_data: bytes | None = data(nullable="0+", default=None)
