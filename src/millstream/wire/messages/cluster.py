"""Moving leaders and replicas, and the state of the controller quorum."""

from __future__ import annotations

from millstream.wire.schema import (
    ZERO_UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

ELECT_LEADERS = Api(43, "ElectLeaders", 0, 2, flexible=2, since="2.2")
ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", 0, 1, flexible=0)
LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", 0, 0, flexible=0)
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", 0, 2, flexible=0, since="3.3")


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class ElectLeadersRequest(Request, api=ELECT_LEADERS):
    """Elect the preferred leader of partitions, or any leader. Null means all partitions."""

    election_type: int = int8("1+", default=0, ignorable=False)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, api=ELECT_LEADERS):
    """The result of each election."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, api=ALTER_PARTITION_REASSIGNMENTS):
    """Move partitions to other brokers; null replicas cancel the move of a partition."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=False)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, api=ALTER_PARTITION_REASSIGNMENTS):
    """Which moves were accepted."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


class ListPartitionReassignmentsRequest(Request, api=LIST_PARTITION_REASSIGNMENTS):
    """Request the partitions that are being moved. Null means all topics."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """All replicas of a partition, those that it is gaining, and those that it is losing."""

    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response, api=LIST_PARTITION_REASSIGNMENTS):
    """The moves in progress."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


class QuorumPartition(Struct):
    partition_index: int = int32()


class QuorumTopic(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


class DescribeQuorumRequest(Request, api=DESCRIBE_QUORUM):
    """Request the state of the metadata quorum."""

    topics: list[QuorumTopic] = array(QuorumTopic)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+", default=ZERO_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class QuorumPartitionState(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class QuorumTopicState(Struct):
    topic_name: str = string()
    partitions: list[QuorumPartitionState] = array(QuorumPartitionState)


class Listener(Struct):
    name: str = string("2+", default="")
    host: str = string("2+", default="")
    port: int = uint16("2+", default=0)


class Node(Struct):
    node_id: int = int32("2+", default=0)
    listeners: list[Listener] = array(Listener, "2+", default=[])


class DescribeQuorumResponse(Response, api=DESCRIBE_QUORUM):
    """The leader of the quorum, and how far its voters and observers have read."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[QuorumTopicState] = array(QuorumTopicState)
    nodes: list[Node] = array(Node, "2+", default=[])
