"""Metadata: the brokers of the cluster, the topics, and the leader of each partition."""

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
    nested,
    string,
    uuid,
)

METADATA = Api(3, "Metadata", 0, 13, flexible=9)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, flexible=0, since="2.8")
DESCRIBE_TOPIC_PARTITIONS = Api(75, "DescribeTopicPartitions", 0, 0, flexible=0, since="3.8")


class MetadataRequestTopic(Struct):
    """A topic by its name or, from version 12 on, by its id."""

    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    name: str | None = string(nullable="10+")


class MetadataRequest(Request, api=METADATA):
    """Request brokers and topics. Null means all topics; in version 0 an empty list does."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True, ignorable=False)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False, ignorable=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False, ignorable=False)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    offline_replicas: list[int] = array(int32(), "5+", default=[])


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", default=ZERO_UUID)
    is_internal: bool = boolean("1+", default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Response, api=METADATA):
    """The brokers, and the leaders of the partitions of each topic."""

    throttle_time_ms: int = int32("3+", default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0)


class DescribeClusterRequest(Request, api=DESCRIBE_CLUSTER):
    """Request the brokers only."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1, ignorable=False)
    include_fenced_brokers: bool = boolean("2+", default=False, ignorable=False)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+", default=False)


class DescribeClusterResponse(Response, api=DESCRIBE_CLUSTER):
    """The brokers, or the controllers, and the id of the cluster."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    """Where the next page begins: the first partition that the last answer left out."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request, api=DESCRIBE_TOPIC_PARTITIONS):
    """Request the partitions of topics, a page at a time (KIP-966)."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)


class DescribedPartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32(), nullable="0+", default=None)
    offline_replicas: list[int] = array(int32())


class DescribedTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean(default=False)
    partitions: list[DescribedPartition] = array(DescribedPartition)
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api=DESCRIBE_TOPIC_PARTITIONS):
    """One page of partitions, and where the next begins; null after the last."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribedTopic] = array(DescribedTopic)
    next_cursor: Cursor | None = nested(Cursor, nullable="0+", default=None)
