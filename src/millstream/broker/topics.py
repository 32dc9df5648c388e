"""The topics that the broker serves: by name and by id, each with its partitions and their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import ErrorCode
from millstream.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from millstream.broker.log.partition import PartitionLog

OFFSETS_TOPIC: Final = "__consumer_offsets"


class Waiter(Protocol):
    """A parked fetch."""

    def appended(self, size: int) -> None: ...

    def changed(self) -> None: ...


class Partition:
    """One partition: its log, and the fetches that wait for more of it."""

    __slots__ = ("index", "leader_id", "log", "topic", "waiters")

    def __init__(self, topic: str, index: int, log: PartitionLog, leader_id: int) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.waiters: set[Waiter] = set()

    def append(self, batches: Any, epoch_ms: int, **options: Any) -> Any:
        """Append to the log and wake who waits for it; raises as ``PartitionLog.append`` does."""
        result = self.log.append(batches, epoch_ms, **options)
        if self.waiters:
            for waiter in self.waiters:
                waiter.appended(len(batches))
        return result

    def notify_changed(self) -> None:
        """Tell the waiting fetches that something else than an append happened: a cut, or the end."""
        for waiter in list(self.waiters):
            waiter.changed()

    def epoch_problem(self, client_epoch: int) -> int:
        """Compare the leader epoch that a client believes in with ours (KIP-320); 0 is no problem."""
        if client_epoch < 0 or client_epoch == self.log.leader_epoch:
            return ErrorCode.NONE
        if client_epoch < self.log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH


class Topic:
    """One topic: its name and id, its partitions in order, and the settings of its own."""

    __slots__ = ("configs", "name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, partitions: list[Partition], configs: dict[str, str]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.configs = configs

    @property
    def is_internal(self) -> bool:
        return self.name == OFFSETS_TOPIC

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicIndex:
    """Topics by name and by id."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        return topic.partition(index) if topic is not None else None

    def resolve(self, name: str, topic_id: bytes, *, by_id: bool) -> tuple[Topic | None, int]:
        """Find a topic as a request names it: the topic, or None and the error code for it."""
        if not by_id:
            topic = self._by_name.get(name)
            return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = self._by_id.get(topic_id) if topic_id != ZERO_UUID else None
        return topic, ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID
