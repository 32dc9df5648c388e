"""Finding offsets: by time, earliest, latest, and the end of a leader epoch."""

from __future__ import annotations

from millstream.wire.schema import Api, Request, Response, Struct, array, int8, int16, int32, int64, string

LIST_OFFSETS = Api(2, "ListOffsets", 1, 11, flexible=6)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 2, 4, flexible=4)


class ListOffsetsPartition(Struct):
    """A time in epoch milliseconds, or -1 latest, -2 earliest, -3 of the largest timestamp.

    -4 to -6 are about tiered storage: the local start, the last tiered offset, the next one to upload.
    """

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, api=LIST_OFFSETS):
    """Find the first offset at or after a time, for many partitions."""

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0, ignorable=False)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    """The offset and its timestamp; -1 if there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, api=LIST_OFFSETS):
    """The offset that was found in each partition."""

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, api=OFFSET_FOR_LEADER_EPOCH):
    """Request the end offsets of leader epochs, to detect a truncated log (KIP-320)."""

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The largest epoch up to the requested one, and its end offset."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, api=OFFSET_FOR_LEADER_EPOCH):
    """The end of the requested epoch in each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
