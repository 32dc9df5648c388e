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
from millstream.producer.core.batch import Batch
from millstream.producer.core.block import Block
from millstream.producer.core.partitioner import next_sticky, partition_for_key
from millstream.producer.core.times import Times
from millstream.wire.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NEVER_MS: Final = 1 << 62
AWAKE_MS: Final = -1
"""In place of the time at which the sender wakes: it is at work, and will look before it sleeps."""
_REMEMBERED_KEYS: Final = 1 << 14
_REMEMBERED_KEY_BYTES: Final = 64


class PartitionQueue:
    """The batches of one partition: those that wait, oldest first, and those that were sent and not yet
    settled.

    ``open`` is the last one of those that wait, as long as records may still be added to it. It lies in
    ``door``, alone, while nobody is adding to it: whoever takes it out of there (one step, which no other
    thread can interrupt) has it for himself, and puts it back. That is a lock that costs a third of a real
    one, and senders need no other. The fields from ``identity`` on belong to ``Sequences``.
    """

    __slots__ = (
        "assigned",
        "door",
        "identity",
        "last_acked",
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
        self.door: list[Batch] = []
        self.on_wire = 0
        self.sent: list[Batch] = []
        self.identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self.next_sequence = 0
        self.assigned = 0
        self.last_acked = -1
        self.unresolved: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def open_with(self, batch: Batch) -> None:
        """Let further records join this batch."""
        assert self.open is None, "one batch is open at a time"
        self.open = batch
        self.door.append(batch)

    def close_open(self) -> bool:
        """Let no record join the open batch any more; False while somebody is adding one."""
        if self.open is None:
            return True
        try:
            self.door.pop()
        except IndexError:
            return False
        self.open.seal()
        self.open = None
        return True

    def abandon_open(self) -> None:
        """The open batch has failed. A record that somebody is adding to it has failed with it."""
        if self.open is not None:
            self.door.clear()
            self.door = []  # whoever holds the batch puts it back where nobody looks any more
            self.open.seal()
            self.open = None


class Topic:
    """The queues of one topic, and the partition that records without a key go to at the moment."""

    __slots__ = ("_by_key", "available", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: Sequence[int] = ()
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        self._by_key: dict[bytes, PartitionQueue] = {}

    def grow(self, partitions: int) -> None:
        """Have so many partitions at least; keys then meet in others than before."""
        if partitions > len(self.queues):
            self.queues += [PartitionQueue(self.name, n) for n in range(len(self.queues), partitions)]
            self._by_key = {}

    def queue_of(self, key: bytes) -> PartitionQueue:
        """The partition of a key. Keys repeat, and a lookup is 20 times as fast as hashing in Python.

        Any thread may ask, without the lock: a topic that grows meanwhile forgets what it remembers only
        after it has grown, so nothing is remembered wrongly.
        """
        by_key = self._by_key
        queue = by_key.get(key)
        if queue is None:
            queue = self.queues[partition_for_key(key, len(self.queues))]
            if len(key) <= _REMEMBERED_KEY_BYTES:
                if len(by_key) >= _REMEMBERED_KEYS:
                    by_key.clear()
                by_key[key] = queue
        return queue


@dataclass(frozen=True, slots=True)
class Limits:
    """How large batches become, how long they wait for more records, and how much memory all take."""

    batch_size: int
    linger_ms: int
    buffer_memory: int


class Accumulator:
    """All queues. ``make_delivery(topic, partition, times)`` makes what waits for a new batch's
    outcome.
    """

    def __init__(
        self,
        limits: Limits,
        make_delivery: Callable[[str, int, Times], Any],
        chance: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.batch_size = max(1, limits.batch_size)
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
        self._filled = False
        """Whether a batch was closed as it is full, and the sender need not have heard of it."""
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
        timestamp: float,
        size: int,
    ) -> tuple[Batch, int] | None:
        """Add a record to an open batch with room for it: that batch, and the record's place in it.

        None where there is no such batch, or somebody has it.
        """
        queue = topic.sticky
        if partition is not None:
            queue = topic.queues[partition]
        elif key is not None:
            queue = topic.queue_of(key)
        if queue is None or not queue.door:
            return None
        try:
            batch = queue.door.pop()
        except IndexError:  # somebody was faster
            return None
        try:
            if size > batch.room:
                return None
            batch.add(key, value, headers, timestamp, size)
            return batch, len(batch.values) - 1
        finally:
            queue.door.append(batch)

    def append_new(
        self,
        topic: Topic,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: float,
        size: int,
        now_ms: int,
    ) -> Batch | None:
        """Add a record to a new batch, that others may join; None where the memory does not allow it, or
        somebody is adding to the one that is open.
        """
        if self.lacks_memory(size):
            return None
        queue = self.choose(topic, partition, key, size)
        if not queue.close_open():
            return None
        times = Times()
        delivery = self._make_delivery(topic.name, queue.partition, times)
        batch = Batch(queue, now_ms, max(self.batch_size, size), delivery, times)
        batch.add(key, value, headers, timestamp, size)
        self.open_batch(batch)
        return batch

    def new_block(self, queue: PartitionQueue, size: int, now_ms: int) -> Block:
        """Open a block for records by the column, of which the first takes this size. There is memory for
        it.
        """
        delivery = self._make_delivery(queue.topic, queue.partition, Times())
        block = Block(queue, now_ms, max(self.batch_size, size), delivery)
        self.open_batch(block)
        return block

    def lacks_memory(self, size: int) -> bool:
        """Whether there is no memory for a batch that begins with a record of this size."""
        return max(self.batch_size, size) > self.free_bytes

    def open_batch(self, batch: Batch) -> None:
        """Queue a new batch and let records join it; the one before is closed."""
        queue = batch.queue
        queue.open_with(batch)
        queue.waiting.append(batch)
        self.free_bytes -= batch.reserved
        self.active.setdefault(queue)
        self.incomplete[batch] = None

    def choose(self, topic: Topic, partition: int | None, key: bytes | None, size: int) -> PartitionQueue:
        """The queue for a record that does not fit into an open batch."""
        if partition is not None:
            return topic.queues[partition]
        if key is not None:
            return topic.queue_of(key)
        open_bytes = topic.sticky.open.size if topic.sticky is not None and topic.sticky.open else 0
        if topic.sticky is None or topic.sticky_bytes + open_bytes + size > self.batch_size:
            self._move_sticky(topic)
        assert topic.sticky is not None, "a topic with partitions has a sticky one"
        return topic.sticky

    def choose_several(self, topic: Topic, count: int, size: int) -> list[int]:
        """So many partitions in a row for records without a key, of which the first takes this size."""
        partitions = [self.choose(topic, None, None, size).partition]
        while len(partitions) < count:
            self._move_sticky(topic)
            assert topic.sticky is not None, "it has just been chosen"
            partitions.append(topic.sticky.partition)
        return partitions

    def _move_sticky(self, topic: Topic) -> None:
        """Records without a key have filled a batch for one partition: go on with another."""
        if topic.sticky is not None and topic.sticky.close_open():
            self._filled = True
        choice = next_sticky(len(topic.queues), topic.available, self._chance())
        topic.sticky = topic.queues[choice]
        topic.sticky_bytes = 0

    def must_wake(self, batch: Batch, now_ms: int) -> bool:
        """Whether the sender must be told of a new batch, as it would look too late by itself."""
        ahead = self._filled or len(batch.queue.waiting) > 1 or batch.size >= self.batch_size
        self._filled = False
        return (now_ms if ahead else self.ready_at_ms(batch)) < self.wakes_at_ms

    # -- topics

    def update_topic(self, name: str, partitions: int, available: Sequence[int]) -> Topic:
        """Follow the metadata: topics come, and grow. A partition that has vanished keeps its batches."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name)
        topic.grow(partitions)
        topic.available = available
        return topic

    # -- sending

    def ready_at_ms(self, batch: Batch) -> int:
        """When a batch may go: a repeated one after its back-off, a new one when it is full or old."""
        if batch.is_retry:
            return batch.retry_at_ms
        queue = batch.queue
        full = batch is not queue.open or batch.size >= self.batch_size
        if full or len(queue.waiting) > 1 or self.flushing or self.starving:
            return batch.created_ms
        return batch.created_ms + self.limits.linger_ms

    def take_first(self, queue: PartitionQueue) -> Batch | None:
        """Remove the oldest waiting batch, to be sent now. No record joins it any more.

        None while somebody is adding one.
        """
        batch = queue.waiting[0]
        if batch is queue.open:
            if not queue.close_open():
                return None
            topic = self.topics[queue.topic]
            if topic.sticky is queue:
                topic.sticky_bytes += batch.size
        queue.waiting.popleft()
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
        batch.release()

    def remove_waiting(self, batch: Batch) -> None:
        """Take a batch out of its queue without sending it, if it is there."""
        queue = batch.queue
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if batch is queue.open:
                queue.abandon_open()
            if not queue.waiting:
                self.active.pop(queue, None)
