"""Leader elections, reassignments and the controller quorum, answered for a cluster of one broker."""

from __future__ import annotations

from typing import Final

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.services import Services
from millstream.errors import ErrorCode
from millstream.wire.messages.cluster import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    Listener,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    Node,
    PartitionResult,
    QuorumPartitionState,
    QuorumTopicState,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
    ReplicaState,
)

METADATA_TOPIC: Final = "__cluster_metadata"


@handles(ELECT_LEADERS, note="the only replica leads already")
def elect_leaders(
    broker: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Answer that no election is needed: every partition has its leader."""
    if request.topic_partitions is None:
        return ElectLeadersResponse(replica_election_results=[])
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=[_election(broker, wanted.topic, index) for index in wanted.partitions],
            )
            for wanted in request.topic_partitions
        ]
    )


def _election(broker: Services, topic: str, index: int) -> PartitionResult:
    if broker.topics.partition(topic, index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {topic}"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "the only broker leads it already"
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


@handles(ALTER_PARTITION_REASSIGNMENTS, note="one broker has nowhere to move a partition: refused")
def alter_partition_reassignments(
    broker: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Accept moves to this broker, where every partition is already, and refuse all others."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassignment(broker, topic.name, partition.partition_index, partition.replicas)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassignment(
    broker: Services, topic: str, index: int, replicas: list[int] | None
) -> ReassignablePartitionResponse:
    code, message = int(ErrorCode.NONE), None
    if broker.topics.partition(topic, index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {topic}"
    elif replicas is None:
        code, message = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress"
    elif replicas != [broker.node_id]:
        code, message = ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is number {broker.node_id}"
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)


@handles(LIST_PARTITION_REASSIGNMENTS, note="none is ever under way")
def list_partition_reassignments(
    broker: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Answer that no reassignment is in progress."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])


@handles(DESCRIBE_QUORUM, note="a quorum of one")
def describe_quorum(
    broker: Services, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """Describe a quorum of one voter, this broker."""
    host, port = broker.advertised(context)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            QuorumTopicState(
                topic_name=topic.topic_name,
                partitions=[
                    _quorum(broker, topic.topic_name, partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[Node(node_id=broker.node_id, listeners=[Listener(name="PLAINTEXT", host=host, port=port)])],
    )


def _quorum(broker: Services, topic: str, index: int) -> QuorumPartitionState:
    known = topic == METADATA_TOPIC and index == 0
    now_ms = broker.epoch_ms()
    voter = ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=0,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return QuorumPartitionState(
        partition_index=index,
        error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=None,
        leader_id=broker.node_id if known else -1,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[voter] if known else [],
        observers=[],
    )
