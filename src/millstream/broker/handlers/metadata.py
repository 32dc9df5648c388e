"""Handles Metadata, DescribeCluster and DescribeTopicPartitions.

This broker is the only one of its cluster: it leads every partition, and is its only replica.
"""

from __future__ import annotations

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Topic
from millstream.broker.services import Services
from millstream.errors import BrokerError, ConfigError, ErrorCode
from millstream.wire.messages.metadata import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.wire.schema import ZERO_UUID

_NO_AUTHORIZER_CLUSTER = 0b0001_1111_1010_0000
"""All operations that Kafka knows on a cluster: without an authorizer, all are allowed."""
_NO_AUTHORIZER_TOPIC = 0b0000_1101_1111_1000
_DESCRIBE_LIMIT = 2000


@handles(METADATA)
def metadata(broker: Services, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the requested topics, or all; create missing ones if client and settings allow it."""
    host, port = broker.advertised(context)
    all_topics = request.topics is None or (context.version == 0 and not request.topics)
    if all_topics:
        topics = [_described(broker, topic, request) for topic in broker.topics]
    else:
        assert request.topics is not None, "checked just above"
        once = {(wanted.name, wanted.topic_id): wanted for wanted in request.topics}
        topics = [_one_topic(broker, wanted, request) for wanted in once.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack),
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=_NO_AUTHORIZER_CLUSTER
        if request.include_cluster_authorized_operations
        else -(2**31),
    )


def _one_topic(
    broker: Services, wanted: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_UUID:
        topic = broker.topics.get_by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id, partitions=[]
            )
        return _described(broker, topic, request)
    name = wanted.name or ""
    topic = broker.topics.get(name)
    if topic is None:
        try:
            topic = broker.topics.auto_create(name, allowed=request.allow_auto_topic_creation)
        except (BrokerError, ConfigError) as error:
            return _failed(name, getattr(error, "code", ErrorCode.INVALID_CONFIG), request)
    return _described(broker, topic, request)


def _described(broker: Services, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    me = [broker.node_id]
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=_topic_operations(request),
    )


def _failed(name: str, code: int, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        partitions=[],
        topic_authorized_operations=_topic_operations(request),
    )


def _topic_operations(request: MetadataRequest) -> int:
    return _NO_AUTHORIZER_TOPIC if request.include_topic_authorized_operations else -(2**31)


@handles(DESCRIBE_CLUSTER)
def describe_cluster(
    broker: Services, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Describe the cluster: this broker."""
    host, port = broker.advertised(context)
    operations = _NO_AUTHORIZER_CLUSTER if request.include_cluster_authorized_operations else -(2**31)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=request.endpoint_type,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=broker.rack)],
        cluster_authorized_operations=operations,
    )


@handles(DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(
    broker: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe topics in pages; ``next_cursor`` says where the next page begins (KIP-966)."""
    asked = {topic.name for topic in request.topics}
    if request.cursor is not None and asked and request.cursor.topic_name not in asked:
        return _page([_invalid(name) for name in sorted(asked)], None)
    names = sorted(asked or {topic.name for topic in broker.topics})
    start = max(0, request.cursor.partition_index) if request.cursor else 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        start = start if names and names[0] == request.cursor.topic_name else 0
    left = max(1, min(request.response_partition_limit, _DESCRIBE_LIMIT))
    topics: list[DescribedTopic] = []
    for name in names:
        if left <= 0:
            return _page(topics, Cursor(topic_name=name, partition_index=0))
        described = _describe(broker, name, start, left)
        topics.append(described)
        end = start + len(described.partitions)
        topic = broker.topics.get(name)
        if topic is not None and end < len(topic.partitions):
            return _page(topics, Cursor(topic_name=name, partition_index=end))
        left -= len(described.partitions)
        start = 0
    return _page(topics, None)


def _page(topics: list[DescribedTopic], cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _invalid(name: str) -> DescribedTopic:
    """Answer for a cursor that names a topic which was not requested."""
    return DescribedTopic(error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=ZERO_UUID, partitions=[])


def _describe(broker: Services, name: str, start: int, limit: int) -> DescribedTopic:
    topic = broker.topics.get(name)
    if topic is None:
        return DescribedTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            topic_id=ZERO_UUID,
            partitions=[],
            topic_authorized_operations=_NO_AUTHORIZER_TOPIC,
        )
    me = [broker.node_id]
    return DescribedTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribedPartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for partition in topic.partitions[start : start + limit]
        ],
        topic_authorized_operations=_NO_AUTHORIZER_TOPIC,
    )
