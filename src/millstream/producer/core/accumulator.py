"""Records that wait to be sent: a queue of batches for each partition, within ``buffer_memory``.

Pure: no clock, no threads, no sockets. Sending threads and the I/O thread call it under the producer's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.model import Header
from millstream.producer.core.batch import Batch, PartitionQueue
from millstream.producer.core.column_batch import ColumnBatch
from millstream.producer.core.partitioner import next_sticky, partition_for_key
from millstream.producer.core.times import Times

NEVER_MS: Final = 1 << 62
AWAKE_MS: Final = -1
"""Instead of the sender's wake-up time: it is running, and will look before it sleeps."""
_FIRST_BYTES: Final = 1 << 10
"""What a batch reserves at first, at least: with thousands of partitions, most batches stay small."""
MANY_BATCHES: Final = 100
_GROWTH: Final = 3
_LONGEST_GROWTH: Final = 400
"""Where 100 partitions of a broker or more have records, their batches grow for three times as long as making
requests for all of them takes, and 400 times ``linger_ms`` at most. Without it, a client with records for
thousands of partitions would send ever smaller batches as it falls behind.
"""
_REMEMBERED_KEYS: Final = 1 << 14
_REMEMBERED_KEY_BYTES: Final = 64


class TopicQueues:
    """The queues of one topic, and the sticky partition, which records without a key go to now."""

    __slots__ = ("_by_key", "available", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: Sequence[int] = ()
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        self._by_key: dict[bytes, PartitionQueue] = {}

    def grow(self, partitions: int) -> None:
        """Grow to ``partitions``; clears the key cache, as keys now map to other partitions."""
        if partitions > len(self.queues):
            self.queues += [PartitionQueue(self.name, n) for n in range(len(self.queues), partitions)]
            self._by_key = {}

    def queue_of(self, key: bytes) -> PartitionQueue:
        """The queue of a key's partition, from a cache: a lookup is 20 times as fast as hashing in Python.

        Any thread may call without the lock: a topic that grows meanwhile replaces the cache after it has
        grown, so no stale entry stays.
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
class BatchLimits:
    """The producer's settings on batches: their size, how long they wait for records, and memory for all."""

    batch_size: int
    linger_ms: int
    buffer_memory: int


class Accumulator:
    """All queues. ``make_delivery(topic, partition, times)`` makes what receives a new batch's outcome."""

    def __init__(
        self,
        limits: BatchLimits,
        make_delivery: Callable[[str, int, Times], Any],
        chance: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.batch_size = max(1, limits.batch_size)
        self.topics: dict[str, TopicQueues] = {}
        self.active: dict[PartitionQueue, None] = {}
        """Queues with waiting batches."""
        self.activated: list[PartitionQueue] = []
        """Queues that became active since the sender last looked."""
        self.busy_leaders: frozenset[int] = frozenset()
        """Brokers without room for a request: the sender looks again as soon as one has room."""
        self.incomplete: dict[Batch, None] = {}
        """Batches without an outcome, oldest first."""
        self._replaced: dict[Batch, Sequence[Batch]] = {}
        """Batches in ``incomplete`` that were split since the sender last looked."""
        self.free_bytes = limits.buffer_memory
        self.starving = 0
        """Threads that wait for memory: while there are any, no batch lingers."""
        self.flushing = 0
        """Threads in ``flush``: while there are any, no batch lingers."""
        self.wakes_at_ms = NEVER_MS
        """When the sender looks again without being woken."""
        self._growth_ms: dict[int | None, int] = {}
        """By broker, for how long a batch waits to be filled, if that is longer than ``linger_ms``."""
        self._filled = False
        """Whether a full batch was closed since the sender was last woken."""
        self._make_delivery = make_delivery
        self._chance = chance

    # -- adding records

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: float,
        size: int,
    ) -> tuple[Batch, int] | None:
        """Add a record to an open batch with room for it; returns the batch and the record's index in it.

        None if there is no such batch, or another thread is adding to it.
        """
        queue = topic.sticky
        if partition is not None:
            queue = topic.queues[partition]
        elif key is not None:
            queue = topic.queue_of(key)
        if queue is None or not queue.open_slot:
            return None
        try:
            batch = queue.open_slot.pop()
        except IndexError:  # another thread was faster
            return None
        try:
            if size > batch.room and not self._grow(batch, size):
                return None
            batch.add(key, value, headers, timestamp, size)
            return batch, len(batch.values) - 1
        finally:
            queue.open_slot.append(batch)

    def append_new(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: float,
        size: int,
        now_ms: int,
    ) -> Batch | None:
        """Add a record to a new batch, which others may join.

        None if memory is short, or another thread is adding to the open batch.
        """
        if self.lacks_memory(size):
            return None
        queue = self.choose(topic, partition, key, size)
        if not queue.close_open():
            return None
        times = Times()
        delivery = self._make_delivery(topic.name, queue.partition, times)
        capacity = max(self.batch_size, size)
        wanted = max(size, _FIRST_BYTES, queue.usual_bytes * 5 // 4)
        reserved = min(capacity, wanted, self.free_bytes)
        batch = Batch(queue, now_ms, capacity, delivery, times, reserved)
        batch.add(key, value, headers, timestamp, size)
        self.open_batch(batch)
        return batch

    def new_column_batch(self, queue: PartitionQueue, size: int, now_ms: int) -> ColumnBatch:
        """Open a batch for records from columns; there must be memory for the first one's ``size``."""
        delivery = self._make_delivery(queue.topic, queue.partition, Times())
        batch = ColumnBatch(queue, now_ms, max(self.batch_size, size), delivery)
        self.open_batch(batch)
        return batch

    def _grow(self, batch: Batch, size: int) -> bool:
        """Reserve memory for a record of ``size`` bytes, or as much again; False if it does not fit."""
        missing = size - batch.room
        grown = min(batch.capacity - batch.reserved, max(missing, batch.reserved), self.free_bytes)
        if grown < missing:
            return False
        self.free_bytes -= grown
        batch.reserved += grown
        batch.room += grown
        return True

    def lacks_memory(self, size: int) -> bool:
        """Whether there is no memory for a record of ``size`` bytes, in a new batch or an open one."""
        return max(size, min(self.batch_size, _FIRST_BYTES)) > self.free_bytes

    def open_batch(self, batch: Batch) -> None:
        """Queue a new batch and let records join it. The batch before must be closed."""
        queue = batch.queue
        queue.open_with(batch)
        queue.waiting.append(batch)
        self.free_bytes -= batch.reserved
        self._activate(queue)
        self.incomplete[batch] = None

    def _activate(self, queue: PartitionQueue) -> None:
        if queue not in self.active:
            self.active[queue] = None
            self.activated.append(queue)

    def choose(
        self, topic: TopicQueues, partition: int | None, key: bytes | None, size: int
    ) -> PartitionQueue:
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

    def choose_several(self, topic: TopicQueues, count: int, size: int) -> list[int]:
        """``count`` sticky partitions in a row; the first record takes ``size`` bytes."""
        partitions = [self.choose(topic, None, None, size).partition]
        while len(partitions) < count:
            self._move_sticky(topic)
            assert topic.sticky is not None, "it was just chosen"
            partitions.append(topic.sticky.partition)
        return partitions

    def _move_sticky(self, topic: TopicQueues) -> None:
        """Choose another sticky partition, as records without a key have filled a batch for this one."""
        if topic.sticky is not None and topic.sticky.close_open():
            self._filled = True
        choice = next_sticky(len(topic.queues), topic.available, self._chance())
        topic.sticky = topic.queues[choice]
        topic.sticky_bytes = 0

    def must_wake(self, batch: Batch, now_ms: int) -> bool:
        """Whether the sender must be woken for a new batch, as it would look too late."""
        ahead = self._filled or len(batch.queue.waiting) > 1 or batch.size >= self.batch_size
        self._filled = False
        if batch.queue.leader in self.busy_leaders:
            return False
        return (now_ms if ahead else self.ready_at_ms(batch)) < self.wakes_at_ms

    # -- topics

    def update_topic(self, name: str, partitions: int, available: Sequence[int]) -> TopicQueues:
        """Add or grow a topic as in the metadata. A partition that is gone keeps its batches."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name)
        topic.grow(partitions)
        topic.available = available
        return topic

    # -- sending

    def ready_at_ms(self, batch: Batch) -> int:
        """When a batch may be sent: a retry after its back-off, a new one when it is full or has lingered."""
        if batch.is_retry:
            return batch.retry_at_ms
        queue = batch.queue
        full = batch is not queue.open or batch.size >= self.batch_size
        if full or len(queue.waiting) > 1 or self.flushing or self.starving:
            return batch.created_ms
        linger_ms = self.limits.linger_ms
        if self.free_bytes * 2 > self.limits.buffer_memory:
            linger_ms = max(linger_ms, self._growth_ms.get(queue.leader, 0))
        return batch.created_ms + linger_ms

    def grow_batches(self, leader: int, queues: int, round_ms: float) -> None:
        """Requests for all of a broker's ``queues`` that have records would take ``round_ms`` to make."""
        longest_ms = _LONGEST_GROWTH * self.limits.linger_ms
        self._growth_ms[leader] = min(int(_GROWTH * round_ms), longest_ms) if queues >= MANY_BATCHES else 0

    def take_first(self, queue: PartitionQueue) -> Batch | None:
        """Remove the oldest waiting batch, to be sent now; no more records join it.

        None while a thread is adding one.
        """
        batch = queue.waiting[0]
        if batch is queue.open:
            if not queue.close_open():
                return None
            topic = self.topics[queue.topic]
            if topic.sticky is queue:
                topic.sticky_bytes += batch.size
            self.free_bytes += batch.give_back()
        queue.waiting.popleft()
        if not queue.waiting:
            del self.active[queue]
        return batch

    def put_back(self, batch: Batch) -> None:
        """Queue a batch for a retry, behind only those sent earlier that are retried as well."""
        queue = batch.queue
        earlier = set(queue.sent[: queue.sent.index(batch)]) if batch in queue.sent else set()
        position = 0
        while position < len(queue.waiting) and queue.waiting[position] in earlier:
            position += 1
        queue.waiting.insert(position, batch)
        self._activate(queue)

    def replace_sent(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Queue the parts of a batch that was too large in its place, so that its delivery time goes on."""
        self._replaced[batch] = parts
        for part in reversed(parts):
            self.put_back(part)
        batch.done = True

    def settle_replaced(self) -> None:
        """Put parts into ``incomplete`` in place of their batches: all at once, as each time is a pass."""
        if self._replaced:
            replaced, self._replaced = self._replaced, {}
            self.incomplete = {each: None for one in self.incomplete for each in replaced.get(one, (one,))}

    def finish(self, batch: Batch) -> None:
        """A batch has its outcome: free its memory."""
        assert not batch.done, "a batch has one outcome"
        batch.done = True
        self.incomplete.pop(batch, None)
        self.free_bytes += batch.reserved
        if not batch.on_wire:  # the I/O thread may be encoding it: it is released when its request has ended
            batch.release()

    def remove_waiting(self, batch: Batch) -> None:
        """Remove a batch from its queue without sending it, if it is there."""
        queue = batch.queue
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if batch is queue.open:
                queue.abandon_open()
            if not queue.waiting:
                self.active.pop(queue, None)
