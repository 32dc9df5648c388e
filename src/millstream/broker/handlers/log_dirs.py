"""Handles DescribeLogDirs and AlterReplicaLogDirs for the one data directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Topic
from millstream.broker.services import Services
from millstream.errors import ErrorCode
from millstream.wire.messages.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
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


@handles(DESCRIBE_LOG_DIRS)
def describe_log_dirs(
    broker: Services, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe the data directory: the sizes of its partitions, and the space on its disk."""
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
    broker: Services, request: DescribeLogDirsRequest
) -> Iterable[tuple[Topic, Iterable[int]]]:
    if request.topics is None:
        for topic in broker.topics:
            yield topic, range(len(topic.partitions))
        return
    for wanted in request.topics:
        found = broker.topics.get(wanted.topic)
        if found is not None:
            yield found, [index for index in wanted.partitions if found.partition(index) is not None]


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


@handles(ALTER_REPLICA_LOG_DIRS, note="one directory: refused")
def alter_replica_log_dirs(
    broker: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Accept moves to the data directory, where every partition is already, and refuse all others."""
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


def _log_dir_error(broker: Services, topic: str, index: int, *, here: bool) -> int:
    if not here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    found = broker.topics.partition(topic, index)
    return ErrorCode.NONE if found is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
