"""ListOffsets requests: the first offset of a log, its end, and the offset of a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from millstream.client.targets import Node
from millstream.config import ConsumerConfig
from millstream.consumer.sends import Send
from millstream.model import TopicPartition
from millstream.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
UNKNOWN_OFFSET = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_CONSUMER_REPLICA_ID = -1


class OffsetQuery(NamedTuple):
    """What to find in a partition: a time in epoch milliseconds, or one of the two special timestamps."""

    timestamp: int
    leader_epoch: int | None


def ask_offsets(
    token: int, node_id: int, questions: Mapping[TopicPartition, OffsetQuery], config: ConsumerConfig
) -> Send:
    """The request to send to the leader of these partitions."""
    build = partial(_build, questions, config)
    return Send(token, Node(node_id), build, ListOffsetsRequest, config.request_timeout_ms)


def _build(
    questions: Mapping[TopicPartition, OffsetQuery], config: ConsumerConfig, version: int
) -> ListOffsetsRequest:
    topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for (topic, index), question in questions.items():
        epoch = -1 if question.leader_epoch is None else question.leader_epoch
        topics[topic].append(
            ListOffsetsPartition(
                partition_index=index, current_leader_epoch=epoch, timestamp=question.timestamp
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER_REPLICA_ID,
        isolation_level=READ_COMMITTED if config.read_committed else READ_UNCOMMITTED,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=config.request_timeout_ms,
    )


def read_offsets(
    response: ListOffsetsResponse,
) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    """The answer of each partition that the response speaks of."""
    for topic in response.topics:
        for answer in topic.partitions:
            yield TopicPartition(topic.name, answer.partition_index), answer
