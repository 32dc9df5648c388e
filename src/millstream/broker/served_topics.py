"""The topics that the broker serves: finding, creating, growing and deleting them.

The data directory makes each change durable; what is here is in memory, by name and by id.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from millstream.broker.log.config import LogConfig
from millstream.broker.log.directory import LogDirectory
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.topic_store import StoredTopic, check_topic_name
from millstream.broker.settings import BrokerSettings
from millstream.errors import (
    ErrorCode,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.wire.schema import ZERO_UUID

log = logging.getLogger("millstream.broker")

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MAX_GROUP_RECORD_BYTES: Final = 64 << 20
"""The generation of a large group is one record: the subscriptions and assignments of all members."""


class Watcher(Protocol):
    """A reader of a partition that is told when it has changed. It may stop watching then."""

    def appended(self, size: int) -> None: ...

    def changed(self) -> None: ...


@dataclass(slots=True, eq=False)
class Partition:
    """One partition: its log, and the readers that want to know of changes."""

    topic: str
    index: int
    log: PartitionLog
    leader_id: int
    watchers: set[Watcher] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.log.on_change = self.notify_changed

    def append(self, batches: Any, epoch_ms: int, **options: Any) -> Any:
        """Append to the log and wake the fetches that wait for it. Raises as ``PartitionLog.append`` does."""
        result = self.log.append(batches, epoch_ms, **options)
        for watcher in tuple(self.watchers):
            watcher.appended(len(batches))
        return result

    def notify_changed(self) -> None:
        """Wake the waiting fetches after anything but an append: records or the topic were deleted."""
        for watcher in tuple(self.watchers):
            watcher.changed()

    def epoch_problem(self, client_epoch: int) -> int:
        """Compare a client's leader epoch with the log's (KIP-320); return an error code, 0 if they match."""
        if client_epoch < 0 or client_epoch == self.log.leader_epoch:
            return ErrorCode.NONE
        if client_epoch < self.log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH


@dataclass(slots=True, eq=False)
class Topic:
    """One topic: its name and id, its partitions in order, and the settings it does not inherit."""

    name: str
    topic_id: bytes
    partitions: list[Partition]
    configs: dict[str, str]

    @property
    def is_internal(self) -> bool:
        return self.name == OFFSETS_TOPIC

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class ServedTopics:
    """All topics of the broker, by name and by id. Usable after ``open``."""

    def __init__(self, settings: BrokerSettings, epoch_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._epoch_ms = epoch_ms
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def open(self, directory: LogDirectory) -> None:
        """Serve the topics of a data directory."""
        self._directory = directory
        for stored in directory.topics:
            self._serve(stored)

    # --- finding

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        return topic.partition(index) if topic is not None else None

    def resolve(self, name: str, topic_id: bytes, *, by_id: bool) -> tuple[Topic | None, int]:
        """Find a topic by name or id, as a request names it; return the topic, or None and an error code."""
        if not by_id:
            topic = self._by_name.get(name)
            return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = self._by_id.get(topic_id) if topic_id != ZERO_UUID else None
        return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID

    # --- changing

    def create(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        """Create a topic durably. Raises BrokerError or ConfigError."""
        self.validate_new(name, configs)
        stored = StoredTopic(name, uuid.uuid4().bytes, partitions, configs)
        self._directory.create_topics([stored], self._epoch_ms())
        log.info("created topic %s with %d partitions", name, partitions)
        return self._serve(stored)

    def validate_new(self, name: str, configs: dict[str, str]) -> None:
        """Check whether a topic can be created. Raises BrokerError or ConfigError."""
        check_topic_name(name)
        if name in self._by_name:
            raise TopicAlreadyExistsError(f"topic {name} exists already")
        # Kafka refuses names that differ only in '.' and '_', because they collide in its metrics.
        twin = name.replace(".", "_")
        for topic in self:
            if topic.name.replace(".", "_") == twin:
                raise InvalidTopicError(f"{name} and {topic.name} differ only in '.' and '_'")
        LogConfig.from_properties(configs, self._settings.topic_defaults)

    def would_create(self, name: str, *, allowed: bool) -> bool:
        """Whether ``auto_create`` would create this topic, if its name is legal."""
        return allowed and name not in self._by_name and self._settings.auto_create_topics_enable

    def auto_create(self, name: str, *, allowed: bool) -> Topic:
        """Create a topic that a client named, if the client and the settings allow it."""
        check_topic_name(name)
        if name == OFFSETS_TOPIC and allowed:
            return self.create_offsets_topic()
        if not allowed or not self._settings.auto_create_topics_enable:
            raise UnknownTopicOrPartitionError(f"there is no topic {name}")
        return self.create(name, self._settings.num_partitions, {})

    def create_offsets_topic(self) -> Topic:
        """Create ``__consumer_offsets``."""
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self._settings.offsets_topic_segment_bytes),
            "max.message.bytes": str(_MAX_GROUP_RECORD_BYTES),
        }
        return self.create(OFFSETS_TOPIC, self._settings.offsets_topic_num_partitions, configs)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow a topic to ``count`` partitions, durably."""
        self._directory.add_partitions(topic.name, count, self._epoch_ms())
        self._serve_partitions(topic, count)

    def set_configs(self, topic: Topic, configs: dict[str, str]) -> None:
        """Replace a topic's own settings, durably. Raises ConfigError."""
        self._directory.update_configs(topic.name, configs)
        topic.configs = configs

    def delete(self, topic: Topic) -> list[str]:
        """Delete a topic durably; return the directories of its logs, to be removed on any thread."""
        trash = self._directory.delete_topic(topic.name)
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        return trash

    def _serve(self, stored: StoredTopic) -> Topic:
        topic = Topic(stored.name, stored.topic_id, [], dict(stored.configs))
        self._serve_partitions(topic, stored.partitions)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        return topic

    def _serve_partitions(self, topic: Topic, count: int) -> None:
        """Add the partitions that the directory has and the topic does not have yet."""
        for index in range(len(topic.partitions), count):
            where = TopicPartition(topic.name, index)
            if where in self._directory.failed:
                raise self._directory.failed[where]
            partition_log = self._directory.logs[where]
            topic.partitions.append(Partition(topic.name, index, partition_log, self._settings.node_id))
