"""Committing, reading and deleting the offsets of groups."""

from __future__ import annotations

from millstream.wire.schema import (
    ZERO_UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)

# Version 10 names topics by id, for the groups of KIP-848. Members of classic groups use names, also in Java.
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 10, flexible=8, client_max_version=9)
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 10, flexible=6, client_max_version=9)
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0, since="2.4")


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, api=OFFSET_COMMIT):
    """Commit offsets for a group. A generation of -1 commits from outside the group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="7+", default=None, ignorable=False)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, api=OFFSET_COMMIT):
    """The result for each partition."""

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetFetchRequestTopic(Struct):
    """Up to version 7, which is for one group."""

    name: str = string("0-7", default="", ignorable=False)
    partition_indexes: list[int] = array(int32(), "0-7", default=[], ignorable=False)


class OffsetFetchRequestTopics(Struct):
    """From version 8 on, inside a group."""

    name: str = string("8-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partition_indexes: list[int] = array(int32(), "8+", default=[], ignorable=False)


class OffsetFetchRequestGroup(Struct):
    """The requested topics of one group; null means all that it has committed."""

    group_id: str = string("8+", default="", ignorable=False)
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable="8+", default=[], ignorable=False
    )


class OffsetFetchRequest(Request, api=OFFSET_FETCH):
    """Read committed offsets: of one group up to version 7, of several from version 8 on."""

    group_id: str = string("0-7", default="", ignorable=False)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", default=[], ignorable=False
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=[], ignorable=False)
    require_stable: bool = boolean("7+", default=False, ignorable=False)


class OffsetFetchResponsePartition(Struct):
    """Up to version 7. An offset of -1 means that nothing is committed."""

    partition_index: int = int32("0-7", default=0)
    committed_offset: int = int64("0-7", default=0)
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = string("0-7", nullable="0-7", default="")
    error_code: int = int16("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", default=[])


class OffsetFetchResponsePartitions(Struct):
    """From version 8 on. An offset of -1 means that nothing is committed."""

    partition_index: int = int32("8+", default=0)
    committed_offset: int = int64("8+", default=0)
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = string("8+", nullable="8+", default="")
    error_code: int = int16("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", default="")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", default=[])


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+", default="")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", default=[])
    error_code: int = int16("8+", default=0)


class OffsetFetchResponse(Response, api=OFFSET_FETCH):
    """Committed offsets: of one group up to version 7, of several from version 8 on."""

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=[])
    error_code: int = int16("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=[])


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, api=OFFSET_DELETE):
    """Delete committed offsets of topics to which the group does not subscribe."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, api=OFFSET_DELETE):
    """The result for each partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
