"""The topics' logs, as far as a consumer sees them: what brokers answer to Metadata and ListOffsets.

Every partition gets a batch of five records every 800 ms, until production ends. All brokers have all of
them; the leader of a partition is the first of them that is up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from millstream.wire.schema import ZERO_UUID, Request, Response
from tests.sim.network import FIRST_PORT, Slot
from tests.sim.wire import ranges
from tests.sim.world import World

BATCH: Final = 5
EVERY_MS: Final = 800
_LATEST: Final = -1


class Logs:
    """The partitions' records, and who leads them."""

    def __init__(self, world: World, nodes: list[int], versions: Mapping[int, int], has_ids: bool) -> None:
        self.world = world
        self.topics: dict[str, int] = {}
        self._nodes = nodes
        self._versions = versions
        self._has_ids = has_ids
        self.names: dict[bytes, str] = {}
        self._ends_ms: int | None = None
        self.elections = 0
        """How often leaders have moved without a crash."""

    # ---- what there is ----

    def end_offset(self) -> int:
        """Where each of the logs ends."""
        now_ms = self.world.now_ms
        return (now_ms if self._ends_ms is None else min(now_ms, self._ends_ms)) // EVERY_MS * BATCH

    @property
    def has_ended(self) -> bool:
        return self._ends_ms is not None

    def end_production(self) -> None:
        self._ends_ms = self.world.now_ms

    def _has(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < self.topics.get(partition.topic, 0)

    def leader(self, partition: TopicPartition) -> int:
        """The first broker that is up, beginning with another one for each partition."""
        count = len(self._nodes)
        first = partition.partition + self.elections
        order = [(first + place) % count for place in range(count)]
        return next((node_id for node_id in order if self._nodes[node_id] % 2), order[0])

    @property
    def leader_epoch(self) -> int:
        return sum(self._nodes) + self.elections

    def _topic_id(self, topic: str) -> bytes:
        if not self._has_ids:
            return ZERO_UUID
        topic_id = hashlib.md5(topic.encode(), usedforsecurity=False).digest()
        self.names[topic_id] = topic
        return topic_id

    def elect(self) -> None:
        """All partitions get other leaders, or the same ones in a new epoch."""
        self.elections += 1

    # ---- requests ----

    def answer(self, node_id: int, request: Request, slot: Slot) -> bool:
        """Answer what concerns no group; False if it does."""
        handler = _HANDLERS.get(type(request))
        if handler is None:
            return False
        slot.reply(handler(self, node_id, request))
        return True

    def _api_versions(self, node_id: int, request: Request) -> Response:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in ranges(self._versions).items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self, node_id: int, request: MetadataRequest) -> Response:
        wanted = list(self.topics) if request.topics is None else [each.name or "" for each in request.topics]
        brokers = [
            MetadataResponseBroker(node_id=number, host="sim", port=number + FIRST_PORT)
            for number in range(len(self._nodes))
        ]
        return MetadataResponse(
            brokers=brokers, cluster_id="sim", controller_id=0, topics=[self._topic(name) for name in wanted]
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        count = self.topics.get(name)
        if count is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=unknown, name=name, partitions=[])
        nodes = list(range(len(self._nodes)))
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=self.leader(TopicPartition(name, number)),
                leader_epoch=self.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for number in range(count)
        ]
        return MetadataResponseTopic(
            error_code=0, name=name, topic_id=self._topic_id(name), partitions=partitions
        )

    def _list_offsets(self, node_id: int, request: ListOffsetsRequest) -> Response:
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                error = self.error(node_id, TopicPartition(topic.name, each.partition_index))
                offset = self.end_offset() if each.timestamp == _LATEST else 0
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=error, offset=offset, leader_epoch=0
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, node_id: int, request: OffsetForLeaderEpochRequest) -> Response:
        topics = []
        for topic in request.topics:
            answers = [
                EpochEndOffset(
                    error_code=self.error(node_id, TopicPartition(topic.topic, each.partition)),
                    partition=each.partition,
                    leader_epoch=each.leader_epoch,
                    end_offset=self.end_offset(),
                )
                for each in topic.partitions
            ]
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    def error(self, node_id: int, partition: TopicPartition) -> int:
        if not self._has(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if self.leader(partition) == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER


_HANDLERS: Final[Mapping[type[Request], Callable[..., Response]]] = {
    ApiVersionsRequest: Logs._api_versions,
    MetadataRequest: Logs._metadata,
    ListOffsetsRequest: Logs._list_offsets,
    OffsetForLeaderEpochRequest: Logs._epoch_ends,
}
