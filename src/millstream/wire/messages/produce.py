"""Appending record batches, the producer ids that make it idempotent, and the producers of a partition."""

from __future__ import annotations

from typing import Any

from millstream.wire.schema import (
    ZERO_UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uuid,
)

PRODUCE = Api(0, "Produce", 3, 13, flexible=9)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 5, flexible=2)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, flexible=0, since="2.8")


class PartitionProduceData(Struct):
    """Record batches for one partition."""

    index: int = int32()
    records: Any = records(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, api=PRODUCE):
    """Append record batches. ``acks`` is -1 for all replicas, 1 for the leader, 0 for no answer."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A refused record, by its position in the batch."""

    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    """The current leader of the partition, for a producer that asked another broker (KIP-951)."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    """The offset of the first record, or the error."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", default=[])
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, "10+", tag=0, default=None)


class TopicProduceResponse(Struct):
    name: str = string("0-12", default="")
    topic_id: bytes = uuid("13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """The address of a new leader."""

    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Response, api=PRODUCE):
    """The offsets of the records in each partition. It is not sent with ``acks`` 0."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, default=[])


class InitProducerIdRequest(Request, api=INIT_PRODUCER_ID):
    """Request a producer id, with which retries leave no duplicates."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1, ignorable=False)
    producer_epoch: int = int16("3+", default=-1, ignorable=False)


class InitProducerIdResponse(Response, api=INIT_PRODUCER_ID):
    """The producer id, and the epoch that fences older producers with it."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


class DescribeProducersTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


class DescribeProducersRequest(Request, api=DESCRIBE_PRODUCERS):
    """Request the producers that a partition's leader remembers (KIP-664)."""

    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


class ActiveProducer(Struct):
    """A producer's last batch, and the start of its open transaction: -1 without one."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class DescribeProducersPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ActiveProducer] = array(ActiveProducer)


class DescribeProducersTopicResponse(Struct):
    name: str = string()
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


class DescribeProducersResponse(Response, api=DESCRIBE_PRODUCERS):
    """The producers of each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
