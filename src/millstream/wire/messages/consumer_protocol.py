"""What members of a consumer group tell each other through the coordinator, which does not look inside."""

from __future__ import annotations

from millstream.wire.schema import Data, Struct, array, data, int32, string


class OwnedTopicPartition(Struct):
    """What a member holds of one topic as it joins."""

    topic: str = string("1+", default="")
    partitions: list[int] = array(int32(), "1+", default=[])


class ConsumerProtocolSubscription(Data, versions=(0, 3)):
    """What a member wants to read, and what it holds already (KIP-429, KIP-792, KIP-881)."""

    topics: list[str] = array(string())
    user_data: bytes | None = data(nullable="0+", default=None)
    owned_partitions: list[OwnedTopicPartition] = array(OwnedTopicPartition, "1+", default=[])
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class AssignedTopicPartition(Struct):
    """What a member is given of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32())


class ConsumerProtocolAssignment(Data, versions=(0, 3)):
    """What a member is given to read, as the group's leader decided."""

    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition)
    user_data: bytes | None = data(nullable="0+", default=None)
