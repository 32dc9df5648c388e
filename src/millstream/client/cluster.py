"""A client's metadata of the cluster: brokers, topics, and the leader of each partition.

A ``Cluster`` is an immutable snapshot, so that any thread may read it without a lock. ``updated`` makes the
next one from a metadata response. A partition never goes back to an older leader epoch: brokers learn of
elections at different times, and a slow broker must not send us back to a former leader (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from millstream.errors import BrokerError, ErrorCode, for_code
from millstream.model import TopicPartition
from millstream.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.wire.schema import ZERO_UUID

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        # A bootstrap server has a negative id until metadata give its own.
        name = f"broker {self.node_id}" if self.node_id >= 0 else "the broker"
        return f"{name} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: the node ids of its leader (None: no leader now) and of its replicas."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic and its partitions, in order. ``topic_id`` is all zeros if the broker gives none."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def partition(self, index: int) -> PartitionInfo | None:
        if 0 <= index < len(self.partitions):
            return self.partitions[index]
        return None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot. ``errors`` holds the error of each topic whose last answer had one."""

    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    errors: Mapping[str, BrokerError]
    cluster_id: str | None = None
    controller_id: int | None = None

    @classmethod
    def empty(cls) -> Cluster:
        return cls({}, {}, {})

    # -- reading

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        found = self.topics.get(topic)
        return None if found is None else found.partition(partition)

    def leader(self, topic: str, partition: int) -> BrokerInfo | None:
        """The leader of a partition; None if there is none, or its address is unknown."""
        found = self.partition(topic, partition)
        if found is None or found.leader is None:
            return None
        return self.brokers.get(found.leader)

    @property
    def controller(self) -> BrokerInfo | None:
        return None if self.controller_id is None else self.brokers.get(self.controller_id)

    # -- the next snapshot

    def updated(self, response: MetadataResponse, requested: Iterable[str] | None) -> Cluster:
        """The metadata after a response. ``requested`` are the topics of the request; None: all.

        Other topics stay as they are. A response without brokers changes only topics. What has not changed
        stays the same object: a topic, a partition, or all of it.
        """
        topics: dict[str, TopicInfo] = {} if requested is None else dict(self.topics)
        errors: dict[str, BrokerError] = {} if requested is None else dict(self.errors)
        for answer in response.topics:
            if answer.name is not None:
                self._take(answer, answer.name, topics, errors)
        brokers = {b.node_id: BrokerInfo(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        controller_id = response.controller_id if response.controller_id >= 0 else None
        cluster = Cluster(
            brokers=brokers or self.brokers,
            topics=topics,
            errors=errors,
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=controller_id if brokers else self.controller_id,
        )
        return self if not errors and cluster == self else cluster

    def _take(
        self,
        answer: MetadataResponseTopic,
        name: str,
        topics: dict[str, TopicInfo],
        errors: dict[str, BrokerError],
    ) -> None:
        known = self.topics.get(name)
        errors.pop(name, None)
        if answer.error_code == ErrorCode.NONE:
            topics[name] = _merged(name, answer, known)
            return
        errors[name] = for_code(answer.error_code)(f"topic {name}")
        if known is not None and _is_temporary(answer.error_code):
            topics[name] = known
        else:
            topics.pop(name, None)

    def without_topics(self, names: Iterable[str]) -> Cluster:
        """Drop topics that are no longer used."""
        gone = frozenset(names)
        return replace(
            self,
            topics={name: topic for name, topic in self.topics.items() if name not in gone},
            errors={name: error for name, error in self.errors.items() if name not in gone},
        )

    def with_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], brokers: Iterable[BrokerInfo]
    ) -> Cluster:
        """Take over newer leaders (node id, epoch) from a produce or fetch response (KIP-951)."""
        known_brokers = {**self.brokers, **{broker.node_id: broker for broker in brokers}}
        topics = dict(self.topics)
        for (topic, index), (leader, epoch) in leaders.items():
            info = topics.get(topic)
            partition = None if info is None else info.partition(index)
            if info is None or partition is None or leader not in known_brokers:
                continue
            if epoch > (-1 if partition.leader_epoch is None else partition.leader_epoch):
                partitions = list(info.partitions)
                partitions[index] = replace(partition, leader=leader, leader_epoch=epoch)
                topics[topic] = replace(info, partitions=tuple(partitions))
        return replace(self, topics=topics, brokers=known_brokers)

    def partitions_without_leader(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        """Partitions without a leader, or whose leader's address is unknown."""
        for name in topics:
            info = self.topics.get(name)
            for partition in () if info is None else info.partitions:
                if partition.leader is None or partition.leader not in self.brokers:
                    yield partition.topic_partition


def _is_temporary(code: int) -> bool:
    """Whether a topic's error is temporary, so that its last metadata stay."""
    error = for_code(code)
    return error.action.retriable and code not in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


def _merged(name: str, answer: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    """The topic as answered, except for partitions whose newer leader is known."""
    if known is not None and ZERO_UUID not in (ids := {answer.topic_id, known.topic_id}) and len(ids) > 1:
        known = None  # another topic of the same name
    partitions = []
    for index, partition in enumerate(_in_order(answer)):
        fresh = _partition(name, index, partition)
        old = None if known is None else known.partition(index)
        partitions.append(old if old is not None and (fresh == old or _is_older(fresh, old)) else fresh)
    topic = TopicInfo(name, answer.topic_id, answer.is_internal, tuple(partitions))
    return known if known is not None and topic == known else topic


def _in_order(answer: MetadataResponseTopic) -> Iterator[MetadataResponsePartition | None]:
    """The partitions from 0 on; None for one that the answer leaves out."""
    by_index = {partition.partition_index: partition for partition in answer.partitions}
    return (by_index.get(index) for index in range(max(by_index, default=-1) + 1))


def _partition(topic: str, index: int, answer: MetadataResponsePartition | None) -> PartitionInfo:
    if answer is None:
        return PartitionInfo(topic, index, None, None)
    return PartitionInfo(
        topic=topic,
        partition=index,
        leader=answer.leader_id if answer.leader_id != NO_LEADER else None,
        leader_epoch=answer.leader_epoch if answer.leader_epoch >= 0 else None,
        replicas=tuple(answer.replica_nodes),
        in_sync_replicas=tuple(answer.isr_nodes),
        offline_replicas=tuple(answer.offline_replicas),
    )


def _is_older(fresh: PartitionInfo, old: PartitionInfo) -> bool:
    return (
        fresh.leader_epoch is not None
        and old.leader_epoch is not None
        and fresh.leader_epoch < old.leader_epoch
    )
