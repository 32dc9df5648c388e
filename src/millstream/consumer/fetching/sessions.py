"""Fetch sessions (KIP-227): a broker remembers what a consumer fetches, and requests name only what changed.

A session belongs to one node. Its first request is a full one, with epoch 0; the answer names the session,
and each later request raises the epoch by one. Whatever goes wrong, the next request is a full one again.
Brokers that keep no session answer with the id 0, and always get full requests; so do old ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.config import ConsumerConfig
from millstream.consumer.fetching.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from millstream.wire.records.primitives import INT32_MAX
from millstream.wire.schema import ZERO_UUID

NO_SESSION = 0
FULL_EPOCH = 0
"""Starts a session, and ends the one that the request names."""
FINAL_EPOCH = -1
"""Ends the session that the request names."""
FIRST_SESSION_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13


class PartitionFetch(NamedTuple):
    """What to fetch of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int | None
    max_bytes: int
    generation: int = 0
    """The partition's generation: what is fetched for an older one is stale."""


Forgotten = tuple[TopicPartition, bytes]
"""A partition to drop from a session, with the topic id under which it was added."""


@dataclass(frozen=True, slots=True)
class FetchRequestData:
    """One request of a session. ``fetches`` is all that it fetches, ``named`` what it must name for that.

    ``fetches`` and ``names`` belong to the session, and change only when the request has ended.
    """

    session_id: int
    epoch: int
    fetches: Mapping[TopicPartition, PartitionFetch]
    named: Mapping[TopicPartition, PartitionFetch]
    names: Mapping[bytes, str]
    """The topics of the session by their ids."""
    forgotten: tuple[Forgotten, ...] = ()
    replaced: tuple[Forgotten, ...] = ()
    """Partitions that are also named, under the new id of a topic that was created again."""

    max_version: int | None = None
    """The newest version to use: where a topic has no id, the last one that names topics."""

    @property
    def is_full(self) -> bool:
        return self.epoch in (FULL_EPOCH, FINAL_EPOCH)

    def build(self, config: ConsumerConfig, max_bytes: int, version: int) -> FetchRequest:
        """The request in this version: full before fetch sessions, with topic names before topic ids."""
        sessions = version >= FIRST_SESSION_VERSION
        by_id = version >= FIRST_TOPIC_ID_VERSION
        forgotten = self.forgotten + self.replaced if by_id else self.forgotten
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED if config.read_committed else READ_UNCOMMITTED,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=_topics(self.named if sessions else self.fetches),
            forgotten_topics_data=_forgotten_topics(forgotten) if sessions else [],
            rack_id=config.client_rack,
        )

    def answers(self, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """The response of each partition; None if the broker names a partition that was not requested."""
        found: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            by_id = topic.topic_id != ZERO_UUID
            name = self.names.get(topic.topic_id, "") if by_id else topic.topic
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                fetch = self.fetches.get(partition)
                if fetch is None or partition in found or (by_id and fetch.topic_id != topic.topic_id):
                    return None
                found[partition] = answer
        return found


def _topics(fetches: Mapping[TopicPartition, PartitionFetch]) -> list[FetchTopic]:
    """The partitions by topic, in their order."""
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for partition, fetch in fetches.items():
        topics.setdefault((partition.topic, fetch.topic_id), []).append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=-1 if fetch.leader_epoch is None else fetch.leader_epoch,
                fetch_offset=fetch.offset,
                partition_max_bytes=fetch.max_bytes,
            )
        )
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in topics.items()
    ]


def _forgotten_topics(forgotten: Iterable[Forgotten]) -> list[ForgottenTopic]:
    topics: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for partition, topic_id in forgotten:
        topics[partition.topic, topic_id].append(partition.partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in topics.items()
    ]


class FetchSessionHandler:
    """The session with one node, as far as both sides agree on it. One request is in flight at a time."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self.partitions: dict[TopicPartition, PartitionFetch] = {}
        """What the next request fetches."""
        self._known: dict[TopicPartition, PartitionFetch | None] = {}
        """What the broker knows of the partitions that have changed since the last request."""
        self._names: dict[bytes, str] = {}
        self._without_id: set[TopicPartition] = set()
        self._max_version: int | None = None

    def put(self, partition: TopicPartition, fetch: PartitionFetch | None) -> None:
        """Fetch a partition from now on, or no more (None). Not while a request is in flight."""
        known = self.partitions.get(partition)
        if known == fetch:
            return
        self._known.setdefault(partition, known)
        self.partitions.pop(partition, None)  # what was fetched goes to the end
        if fetch is not None:
            self.partitions[partition] = fetch
        if fetch is not None and fetch.topic_id == ZERO_UUID:
            self._without_id.add(partition)
        else:
            self._without_id.discard(partition)
            if fetch is not None:
                self._names[fetch.topic_id] = partition.topic

    def plan(self) -> FetchRequestData:
        """The next request: it names what has changed, or everything."""
        max_version = FIRST_TOPIC_ID_VERSION - 1 if self._without_id else None
        if max_version != self._max_version:  # a session names topics, or their ids: begin another
            self._start_over(self.session_id)
            self._max_version = max_version
        changes, self._known = self._known, {}
        if self.epoch == FULL_EPOCH:
            self._names = {fetch.topic_id: partition.topic for partition, fetch in self.partitions.items()}
            return FetchRequestData(
                self.session_id,
                self.epoch,
                self.partitions,
                self.partitions,
                self._names,
                max_version=max_version,
            )
        named: dict[TopicPartition, PartitionFetch] = {}
        forgotten: list[Forgotten] = []
        replaced: list[Forgotten] = []
        for partition, known in changes.items():
            fetch = self.partitions.get(partition)
            if fetch is not None and fetch != known:
                named[partition] = fetch
                if known is not None and known.topic_id not in (ZERO_UUID, fetch.topic_id):
                    replaced.append((partition, known.topic_id))
            elif fetch is None and known is not None:
                forgotten.append((partition, known.topic_id))
        return FetchRequestData(
            self.session_id,
            self.epoch,
            self.partitions,
            named,
            self._names,
            tuple(forgotten),
            tuple(replaced),
            max_version,
        )

    def answered(self, session_id: int) -> None:
        """The request succeeded; ``session_id`` is the session that exists now, or 0 for none."""
        if session_id == NO_SESSION:
            self._start_over(NO_SESSION)
        elif session_id == self.session_id and self.epoch != FULL_EPOCH:
            self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1
        elif self.epoch == FULL_EPOCH:
            self.session_id, self.epoch = session_id, 1
        else:  # the answer belongs to another session than ours
            self._start_over(self.session_id)

    def refused(self, error_code: int) -> None:
        """The request failed: start over, and end the old session where there may be one."""
        gone = error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._start_over(NO_SESSION if gone else self.session_id)

    def lost(self) -> None:
        """It is unknown whether the broker handled the request, and so which epoch it expects: start over."""
        self._start_over(self.session_id)

    def close(self) -> FetchRequestData | None:
        """The request that ends the session at the broker; None when there is none."""
        if self.session_id == NO_SESSION:
            return None
        plan = FetchRequestData(self.session_id, FINAL_EPOCH, {}, {}, {})
        self._start_over(NO_SESSION)
        return plan

    def _start_over(self, session_id: int) -> None:
        self.session_id, self.epoch = session_id, FULL_EPOCH
