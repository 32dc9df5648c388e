"""Brokers and a sink in memory, for the parts of a load that only ask questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from millstream.admin import LogDirDescription, ReplicaSize, TopicDescription
from millstream.client.cluster import PartitionInfo
from millstream.errors import ClusterAuthorizationFailedError, UnknownTopicOrPartitionError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.spark.sinks.base import LostRange, Progress, Sink, Standing

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ID_HEX = "00000000000000000000000000000001"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


class FakeBrokers:
    """Topics as ``{name: (id, [(start, end), …])}``. ``glitches`` are shown first, once each."""

    def __init__(self, topics: dict[str, tuple[str, list[tuple[int, int]]]]) -> None:
        self.topics = topics
        self.glitches: list[dict[str, tuple[str, list[tuple[int, int]]]]] = []
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.stable: dict[TopicPartition, int] = {}
        """Where open transactions begin."""
        self.sizes: dict[TopicPartition, int] | None = {}
        """Bytes of logs; None where nobody may ask."""
        self.measured = 0
        self._shown = topics

    def list_topics(self) -> list[str]:
        return sorted(self.topics)

    def describe_topics(self, topics: list[str]) -> dict[str, TopicDescription]:
        self._shown = self.glitches.pop(0) if self.glitches else self.topics
        found = {}
        for name in topics:
            if name not in self._shown:
                raise UnknownTopicOrPartitionError(f"topic {name}")
            topic_id, logs = self._shown[name]
            infos = tuple(_info(name, number) for number in range(len(logs)))
            found[name] = TopicDescription(name, topic_id, False, infos)
        return found

    def list_offsets(
        self, partitions: list[TopicPartition], spec: str, *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        which = 0 if spec == "earliest" else 1
        if which and isolation_level == "read_committed" and self.stable:
            return {one: OffsetAndTimestamp(self.stable[one], -1) for one in partitions}
        return {
            one: OffsetAndTimestamp(self._shown[one.topic][1][one.partition][which], -1) for one in partitions
        }

    def group_offsets(
        self, group: str, partitions: list[TopicPartition] | None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {one: self.group[one] for one in (partitions or self.group) if one in self.group}

    def describe_log_dirs(self, *, timeout: float | None = None) -> list[LogDirDescription]:
        self.measured += 1
        if self.sizes is None:
            raise ClusterAuthorizationFailedError
        replicas = [ReplicaSize(*where, size, 0, False) for where, size in self.sizes.items()]
        return [LogDirDescription(1, "/data", tuple(replicas))]


def _info(topic: str, partition: int) -> PartitionInfo:
    return PartitionInfo(topic, partition, 1, 0, (1,), (1,), ())


class FakeSink:
    """A sink that only stands somewhere."""

    name = "fake:sink"

    def __init__(self) -> None:
        self.progress: dict[TopicPartition, Standing] = {}
        self.others: dict[str, frozenset[str]] = {}

    def stand(self, topic: str, partition: int, offset: int, high: int | None = None) -> None:
        progress = Progress(offset, offset if high is None else high, ID_HEX)
        self.progress[TopicPartition(topic, partition)] = Standing(progress, progress)

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        return {one: self.progress.get(one, Standing(None, None)) for one in partitions}

    def lost(self, group_id: str) -> list[LostRange]:
        return []

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        return {topic: self.others.get(topic, frozenset()) for topic in topics}


def as_sink(sink: FakeSink) -> Sink:
    return cast("Any", sink)  # type: ignore[no-any-return]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
