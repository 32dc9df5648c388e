"""What only a cluster of many needs, answered as a cluster of one can: leaders, replicas, log directories."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from millstream.errors import ErrorCode
from millstream.wire.messages.cluster import (
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
from millstream.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.broker.server import RequestContext
    from millstream.broker.topics import Topic

METADATA_TOPIC: Final = "__cluster_metadata"


def handle_describe_log_dirs(
    broker: Broker, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """The one data directory: its partitions with their sizes, and the disk's room."""
    disk = shutil.disk_usage(broker.data_directory)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=str(broker.data_directory),
                topics=[_sizes(topic, indexes) for topic, indexes in _wanted_partitions(broker, request)],
                total_bytes=disk.total,
                usable_bytes=disk.free,
            )
        ]
    )


def _wanted_partitions(
    broker: Broker, request: DescribeLogDirsRequest
) -> Iterable[tuple[Topic, Iterable[int]]]:
    if request.topics is None:
        for topic in broker.topics:
            yield topic, range(len(topic.partitions))
        return
    for wanted in request.topics:
        topic = broker.topics.get(wanted.topic)
        if topic is not None:
            yield topic, [index for index in wanted.partitions if topic.partition(index) is not None]


def _sizes(topic: Topic, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=topic.partitions[index].log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for index in indexes
        ],
    )


def handle_alter_replica_log_dirs(
    broker: Broker, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Moving to the directory where a partition lies is done already; there is no other."""
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=_log_dir_error(
                        broker, topic.name, index, here=wanted.path == str(broker.data_directory)
                    ),
                )
                for index in topic.partitions
            ],
        )
        for wanted in request.dirs
        for topic in wanted.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _log_dir_error(broker: Broker, topic: str, index: int, *, here: bool) -> int:
    if not here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    found = broker.topics.partition(topic, index)
    return ErrorCode.NONE if found is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def handle_elect_leaders(
    broker: Broker, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Every partition has its leader already: no election is needed."""
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


def _election(broker: Broker, topic: str, index: int) -> PartitionResult:
    if broker.topics.partition(topic, index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {topic}"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "the only broker leads it already"
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def handle_alter_partition_reassignments(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """A partition may be moved to the one broker, where it is; there is nothing to cancel."""
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
    broker: Broker, topic: str, index: int, replicas: list[int] | None
) -> ReassignablePartitionResponse:
    code, message = int(ErrorCode.NONE), None
    if broker.topics.partition(topic, index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {topic}"
    elif replicas is None:
        code, message = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way"
    elif replicas != [broker.node_id]:
        code, message = ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is number {broker.node_id}"
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)


def handle_list_partition_reassignments(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """None is ever under way."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])


def handle_describe_quorum(
    broker: Broker, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """A quorum of one voter: this broker."""
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


def _quorum(broker: Broker, topic: str, index: int) -> QuorumPartitionState:
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
