"""The records of ``__consumer_offsets``: keys and values of the group coordinator's state."""

from __future__ import annotations

from millstream.wire.schema import ZERO_UUID, Data, Struct, array, data, int32, int64, string, uuid


class OffsetCommitKey(Data, versions=(0, 0)):
    """The key of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Data, versions=(0, 4), flexible=4):
    """A committed offset. A record with this key and no value deletes it."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0, default=ZERO_UUID)


class GroupMetadataKey(Data, versions=(0, 0)):
    """The key of a group's state."""

    group: str = string()


class MemberMetadata(Struct):
    """One member of the generation."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = data()
    assignment: bytes = data()


class GroupMetadataValue(Data, versions=(0, 4), flexible=4):
    """A group's generation: its leader, its protocol, and its members with their assignments."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)
