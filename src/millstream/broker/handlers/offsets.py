"""Handles ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Final

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Partition
from millstream.broker.services import Services
from millstream.errors import BrokerError, CorruptBatch, ErrorCode
from millstream.wire.messages.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_TIERED: Final = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version that has each special timestamp."""


@handles(LIST_OFFSETS)
def list_offsets(
    broker: Services, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    """Find each partition's offset for a timestamp, or for one of the special timestamps below zero."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list_offset(broker, topic.name, wanted, context.version) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offset(
    broker: Services, topic: str, wanted: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, version + 1):
        return _no_offset(wanted, ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.topics.partition(topic, wanted.partition_index)
    if partition is None:
        return _no_offset(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    problem = partition.epoch_problem(wanted.current_leader_epoch)
    if problem:
        return _no_offset(wanted, problem)
    found = None
    try:
        found = _find(partition, wanted.timestamp)
    except CorruptBatch:
        problem = ErrorCode.CORRUPT_MESSAGE
    except BrokerError as error:
        problem = error.code
    except OSError:
        problem = ErrorCode.KAFKA_STORAGE_ERROR
    if found is None:
        return _no_offset(wanted, problem)
    offset, timestamp = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=partition.log.leader_epoch,
    )


def _find(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Return offset and timestamp; the timestamp of the log's ends is -1, as in Kafka."""
    log = partition.log
    if timestamp == LATEST:
        return log.end_offset, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp()
    if timestamp in _TIERED:  # there is no tiered storage
        return None
    return log.offset_for_timestamp(timestamp)


def _no_offset(wanted: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=code, offset=-1, timestamp=-1
    )


@handles(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(
    broker: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Return where each epoch ended, so that a consumer detects a truncated log (KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(broker, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(broker: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.topics.partition(topic, wanted.partition)
    problem: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition is not None:
        problem = partition.epoch_problem(wanted.current_leader_epoch)
        if not problem:
            epoch, end = partition.log.end_offset_for_epoch(wanted.leader_epoch)
            return EpochEndOffset(
                error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end
            )
    return EpochEndOffset(error_code=problem, partition=wanted.partition, leader_epoch=-1, end_offset=-1)
