"""The records that wait to be sent: a queue of batches for each partition, within a bounded memory.

Pure: no clock, no threads, no sockets. The producer calls it under its lock, from the threads that send and
from the I/O thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.model import Header
from millstream.producer.batch import Batch
from millstream.producer.partitioner import next_sticky, partition_for_key
from millstream.wire.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NEVER_MS: Final = 1 << 62
AWAKE_MS: Final = -1
"""In place of the time at which the sender wakes: it is at work, and will look before it sleeps."""


class PartitionQueue:
    """The batches of one partition: those that wait, oldest first, and those that were sent and not yet
    settled.

    ``open`` is the last one of those that wait, as long as records may still be added to it. The fields from
    ``identity`` on belong to ``Sequences``.
    """

    __slots__ = (
        "assigned",
        "identity",
        "last_acked",
        "last_acked_offset",
        "next_sequence",
        "on_wire",
        "open",
        "partition",
        "sent",
        "topic",
        "unresolved",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        self.open: Batch | None = None
        self.on_wire = 0
        self.sent: list[Batch] = []
        self.identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self.next_sequence = 0
        self.assigned = 0
        self.last_acked = -1
        self.last_acked_offset = -1
        self.unresolved: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def close_open(self) -> None:
        if self.open is not None:
            self.open.seal()
            self.open = None


class Topic:
    """The queues of one topic, and the partition that records without a key go to at the moment."""

    __slots__ = ("available", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: Sequence[int] = ()
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How large batches become, how long they wait for more records, and how much memory all take."""

    batch_size: int
    linger_ms: int
    buffer_memory: int


class Accumulator:
    """All queues. ``make_delivery(topic, partition, timestamps)`` makes what waits for a new batch's
    outcome.
    """

    def __init__(
        self,
        limits: Limits,
        make_delivery: Callable[[str, int, list[int]], Any],
        chance: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.topics: dict[str, Topic] = {}
        self.active: dict[PartitionQueue, None] = {}
        """Queues with batches that wait; those that were served come last."""
        self.incomplete: dict[Batch, None] = {}
        """Batches without an outcome, oldest first."""
        self.free_bytes = limits.buffer_memory
        self.starving = 0
        """Threads that wait for memory: then no batch waits for more records."""
        self.flushing = 0
        """Threads that wait for all to be sent."""
        self.wakes_at_ms = NEVER_MS
        """When the sender looks again by itself."""
        self._batch_size = max(1, limits.batch_size)
        self._make_delivery = make_delivery
        self._chance = chance

    # -- adding records

    def append(
        self,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int,
        size: int,
    ) -> Batch | None:
        """Add a record to an open batch with room for it, as its last; None where there is no such batch."""
        if partition is not None:
            batch = topic.queues[partition].open
        elif key is not None:
            batch = topic.queues[partition_for_key(key, len(topic.queues))].open
        elif topic.sticky is not None:
            batch = topic.sticky.open
        else:
            return None
        if batch is None or batch.size + size > self._batch_size:
            return None
        batch.size += size
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)
        if headers:
            batch.headers[len(batch.values) - 1] = headers
        return batch

    def append_new(
        self,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int,
        size: int,
        now_ms: int,
    ) -> Batch | None:
        """Add a record to a new batch, that others may join; None where the memory does not allow it."""
        reserved = max(self._batch_size, size)
        if reserved > self.free_bytes:
            return None
        queue = self._choose(topic, partition, key, size)
        queue.close_open()
        self.free_bytes -= reserved
        timestamps = [timestamp]
        batch = Batch(queue, now_ms, reserved, self._make_delivery(topic.name, queue.partition, timestamps))
        batch.timestamps = timestamps
        batch.keys.append(key)
        batch.values.append(value)
        batch.size = size
        if headers:
            batch.headers[0] = headers
        queue.waiting.append(batch)
        queue.open = batch
        self.active.setdefault(queue)
        self.incomplete[batch] = None
        return batch

    def _choose(self, topic: Topic, partition: int | None, key: bytes | None, size: int) -> PartitionQueue:
        if partition is not None:
            return topic.queues[partition]
        if key is not None:
            return topic.queues[partition_for_key(key, len(topic.queues))]
        open_bytes = topic.sticky.open.size if topic.sticky is not None and topic.sticky.open else 0
        if topic.sticky is None or topic.sticky_bytes + open_bytes + size > self._batch_size:
            self._move_sticky(topic)
        assert topic.sticky is not None, "a topic with partitions has a sticky one"
        return topic.sticky

    def _move_sticky(self, topic: Topic) -> None:
        """Records without a key have filled a batch for one partition: go on with another."""
        choice = next_sticky(len(topic.queues), topic.available, self._chance())
        topic.sticky = topic.queues[choice]
        topic.sticky_bytes = 0

    def must_wake(self, batch: Batch, now_ms: int) -> bool:
        """Whether the sender must be told of a new batch, as it would look too late by itself."""
        ahead = len(batch.queue.waiting) > 1 or batch.size >= self._batch_size
        return (now_ms if ahead else self.ready_at_ms(batch)) < self.wakes_at_ms

    # -- topics

    def update_topic(self, name: str, partitions: int, available: Sequence[int]) -> Topic:
        """Follow the metadata: topics come, and grow. A partition that has vanished keeps its batches."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name)
        for partition in range(len(topic.queues), partitions):
            topic.queues.append(PartitionQueue(name, partition))
        topic.available = available
        return topic

    # -- sending

    def ready_at_ms(self, batch: Batch) -> int:
        """When a batch may go: a repeated one after its back-off, a new one when it is full or old."""
        if batch.is_retry:
            return batch.retry_at_ms
        queue = batch.queue
        if len(queue.waiting) > 1 or batch.size >= self._batch_size or self.flushing or self.starving:
            return batch.created_ms
        return batch.created_ms + self.limits.linger_ms

    def take_first(self, queue: PartitionQueue) -> Batch:
        """Remove the oldest waiting batch, to be sent now. No record joins it any more."""
        batch = queue.waiting.popleft()
        if batch is queue.open:
            topic = self.topics[queue.topic]
            if topic.sticky is queue:
                topic.sticky_bytes += batch.size
            queue.close_open()
        del self.active[queue]
        if queue.waiting:
            self.active[queue] = None
        return batch

    def put_back(self, batch: Batch) -> None:
        """Queue a batch again, before all that were made later: it was sent, and must be sent once more.

        The batches in front of it are those that were sent earlier and are to be repeated as well.
        """
        queue = batch.queue
        earlier = set(queue.sent[: queue.sent.index(batch)]) if batch in queue.sent else set()
        position = 0
        while position < len(queue.waiting) and queue.waiting[position] in earlier:
            position += 1
        queue.waiting.insert(position, batch)
        self.active.setdefault(queue)

    def replace_sent(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Queue the parts of a batch that was too large in its place."""
        for part in parts:
            self.incomplete[part] = None
        for part in reversed(parts):
            self.put_back(part)
        self.incomplete.pop(batch, None)
        batch.done = True

    def finish(self, batch: Batch) -> None:
        """A batch has its outcome: give its memory back."""
        assert not batch.done, "a batch has one outcome"
        batch.done = True
        self.incomplete.pop(batch, None)
        self.free_bytes += batch.reserved
        # The columns may be large, and whoever waits for the outcome keeps only what that needs.
        batch.keys = batch.values = []
        batch.headers = {}
        batch.payload = batch.encoded = None

    def remove_waiting(self, batch: Batch) -> None:
        """Take a batch out of its queue without sending it, if it is there."""
        queue = batch.queue
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if batch is queue.open:
                queue.close_open()
            if not queue.waiting:
                self.active.pop(queue, None)
