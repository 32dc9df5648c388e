"""Reading record batches, with incremental fetch sessions (KIP-227) and topic ids (KIP-516)."""

from __future__ import annotations

from typing import Any

from millstream.wire.schema import (
    ZERO_UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)

FETCH = Api(1, "Fetch", 4, 18, flexible=12)


class ReplicaState(Struct):
    """The replicating broker and its epoch; not set by consumers."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    """Where to read a partition, and the leader epoch that the reader knows."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0, default=ZERO_UUID)
    high_watermark: int = int64("18+", tag=1, default=9223372036854775807)


class FetchTopic(Struct):
    topic: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = string("7-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[int] = array(int32(), "7+", default=[])


class FetchRequest(Request, api=FETCH):
    """Read from many partitions, waiting up to ``max_wait_ms`` for ``min_bytes`` of records."""

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = nested(ReplicaState, "15+", tag=1, default=None)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8(default=0)
    session_id: int = int32("7+", default=0)
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=[])
    rack_id: str = string("11+", default="")


class EpochEndOffset(Struct):
    """The last epoch that reader and leader share, and where it ends in the leader's log."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """The current leader of the partition, for a reader that asked another broker (KIP-951)."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    """The snapshot to load instead, when the log starts after the offset; for the metadata quorum."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """The offset from which the records of a producer must be skipped."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """A partition's records from the requested offset on, as stored in the log, or its error."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, "12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = nested(SnapshotId, "12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Any = records(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of a new leader."""

    node_id: int = int32("16+", default=0)
    host: str = string("16+", default="")
    port: int = int32("16+", default=0)
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Response, api=FETCH):
    """The records of each partition. In a session, partitions without changes are left out."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("7+", default=0)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, default=[])
