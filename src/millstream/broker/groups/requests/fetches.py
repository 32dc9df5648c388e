"""Handles OffsetFetch: returns only durable offsets.

With ``require_stable`` a fetch first waits for the commits that are being written when it arrives, so that
the next owner of a partition starts at the last accepted commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.state.records import CommittedOffset
from millstream.broker.groups.state.table import GroupTable
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.wire.schema import ZERO_UUID

_NO_OFFSET: Final = -1
_TOP_LEVEL_ERROR_VERSION: Final = 2
_SEVERAL_GROUPS_VERSION: Final = 8
_TOPIC_IDS_VERSION: Final = 10
_NOT_COMMITTED: Final = CommittedOffset(offset=_NO_OFFSET, metadata="", leader_epoch=-1, committed_ms=-1)

_WantedTopics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None
"""The requested partitions; None for all."""

_FoundTopic = tuple[str, list[tuple[int, CommittedOffset]]]


@dataclass(slots=True)
class _Waiting:
    """A fetch, and the writes that it waits for."""

    request: OffsetFetchRequest
    parked: Parked
    tokens: set[int]


def _refusal(request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
    """Give every group the same error; version 1 has no place for it but in each partition."""
    if version >= _SEVERAL_GROUPS_VERSION:
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error) for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    if version >= _TOP_LEVEL_ERROR_VERSION:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=_NO_OFFSET, error_code=error
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


class OffsetFetchHandler:
    """Handles OffsetFetch."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        """Return how many are parked."""
        return len(self._waiting)

    @answers(OFFSET_FETCH, _refusal)
    def fetch(self, request: OffsetFetchRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        tokens = self._unsettled(request) if request.require_stable else set()
        if tokens:
            self._waiting.append(_Waiting(request, parked, tokens))
        else:
            effects.reply(parked, self._answer(request, parked.version))

    def settled(self, token: int, effects: Effects) -> None:
        """A write is durable or has failed: answer the fetches that waited for nothing else."""
        ready = [waiting for waiting in self._waiting if waiting.tokens == {token}]
        self._waiting = [waiting for waiting in self._waiting if waiting.tokens != {token}]
        for waiting in self._waiting:
            waiting.tokens.discard(token)
        for waiting in ready:
            effects.reply(waiting.parked, self._answer(waiting.request, waiting.parked.version))

    def take_waiting(self) -> list[tuple[OffsetFetchRequest, Parked]]:
        """Remove and return all parked fetches, to be refused."""
        waiting, self._waiting = self._waiting, []
        return [(fetch.request, fetch.parked) for fetch in waiting]

    def _unsettled(self, request: OffsetFetchRequest) -> set[int]:
        names = [group.group_id for group in request.groups] or [request.group_id]
        groups = [self._table.groups[name] for name in names if name in self._table.groups]
        return {token for group in groups if group.uncommitted for token in group.writes_in_flight}

    def _answer(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        if version < _SEVERAL_GROUPS_VERSION:
            found = self._find(request.group_id, request.topics)
            topics = _topics(found, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
            return OffsetFetchResponse(topics=topics)
        groups = []
        for group in request.groups:
            if version >= _TOPIC_IDS_VERSION:
                topics = self._by_id(group)
            else:
                found = self._find(group.group_id, group.topics)
                topics = _topics(found, OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
        return OffsetFetchResponse(groups=groups)

    def _by_id(self, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
        """Answer with topics by their ids. Offsets of topics that are gone are left out, as in Kafka."""
        ids = self._table.topic_ids
        if group.topics is None:
            wanted = None
        else:
            names = {topic.topic_id: ids.name_of(topic.topic_id) for topic in group.topics}
            wanted = [
                OffsetFetchRequestTopics(name=name, partition_indexes=topic.partition_indexes)
                for topic in group.topics
                if (name := names[topic.topic_id]) is not None
            ]
        found = self._find(group.group_id, wanted)
        topics: list[OffsetFetchResponseTopics] = _topics(
            found, OffsetFetchResponseTopics, OffsetFetchResponsePartitions
        )
        for topic in topics:
            topic.topic_id = ids.id_of(topic.name) or ZERO_UUID
        unknown = [topic for topic in group.topics or () if names[topic.topic_id] is None]
        return [topic for topic in topics if topic.topic_id != ZERO_UUID] + [
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in unknown
        ]

    def _find(self, group_id: str, wanted: _WantedTopics) -> Iterable[_FoundTopic]:
        offsets = self._table.store.offsets_of(group_id)
        if wanted is None:
            for topic, partitions in groupby(sorted(offsets), key=lambda partition: partition.topic):
                yield topic, [(found.partition, offsets[found]) for found in partitions]
        else:
            for asked in wanted:
                found = [
                    (index, offsets.get(TopicPartition(asked.name, index), _NOT_COMMITTED))
                    for index in asked.partition_indexes
                ]
                yield asked.name, found


def _topics(found: Iterable[_FoundTopic], topic_type: type[Any], partition_type: type[Any]) -> list[Any]:
    return [
        topic_type(
            name=topic,
            partitions=[
                partition_type(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
                for index, committed in partitions
            ],
        )
        for topic, partitions in found
    ]
