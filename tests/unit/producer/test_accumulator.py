"""The queues: batches that fill, linger, wait for memory, and come back."""

from __future__ import annotations

from typing import Any

from millstream.producer.core.accumulator import NEVER_MS, Accumulator, BatchLimits, TopicQueues
from millstream.producer.core.batch import Batch
from millstream.producer.core.partitioner import partition_for_key

SIZE = 40


class Queues:
    """An accumulator with one topic, and a clock that stands at what a test says."""

    def __init__(
        self, *, batch_size: int = 100, linger_ms: int = 10, memory: int = 1000, partitions: int = 3
    ) -> None:
        self.chances: list[float] = []
        self.accumulator = Accumulator(
            BatchLimits(batch_size, linger_ms, memory), lambda *args: object(), self.chance
        )
        self.topic: TopicQueues = self.accumulator.update_topic("t", partitions, list(range(partitions)))

    def chance(self) -> float:
        return self.chances.pop(0) if self.chances else 0.0

    def add(
        self,
        now_ms: int = 0,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        size: int = SIZE,
        **more: Any,
    ) -> Batch | None:
        record = (self.topic, partition, key, b"v", more.get("headers", ()), 0, size)
        added = self.accumulator.append(*record)
        return added[0] if added is not None else self.accumulator.append_new(*record, now_ms)


def test_records_share_a_batch_until_it_is_full() -> None:
    queues = Queues()
    first = queues.add(partition=0)
    assert queues.add(partition=0) is first
    second = queues.add(partition=0)
    assert second is not first
    queue = queues.topic.queues[0]
    assert list(queue.waiting) == [first, second]
    assert first is not None and (first.count, queue.open) == (2, second)


def test_a_record_larger_than_a_batch_has_its_own() -> None:
    queues = Queues()
    large = queues.add(partition=0, size=250)
    assert large is not None and large.reserved == 250
    assert queues.add(partition=0) is not large


def test_headers_stay_with_their_record() -> None:
    queues = Queues()
    queues.add(partition=0)
    batch = queues.add(partition=0, headers=[("h", b"1")])
    assert batch is not None and batch.headers == {1: [("h", b"1")]}


def test_keys_choose_the_partition() -> None:
    queues = Queues()
    same = {queues.add(key=b"a", size=1) for _ in range(5)}
    assert len(same) == 1
    assert (
        len({batch.queue for batch in (queues.add(key=b"%d" % n, size=1) for n in range(30)) if batch}) == 3
    )


def test_without_keys_one_partition_at_a_time() -> None:
    queues = Queues()
    queues.chances = [0.0, 0.9, 0.5]
    used = [batch.queue.partition for batch in (queues.add() for _ in range(6)) if batch]
    assert used == [0, 0, 2, 2, 1, 1]


def test_a_lingering_batch_that_left_early_does_not_end_the_stay() -> None:
    queues = Queues()
    queues.chances = [0.0, 0.9]
    batch = queues.add()
    assert batch is not None
    queues.accumulator.take_first(batch.queue)
    again = queues.add()
    assert again is not None and again.queue is batch.queue, "40 of 100 bytes were filled"
    queues.accumulator.take_first(batch.queue)
    moved = queues.add()
    assert moved is not None and moved.queue.partition == 2, "80 of 100 bytes were filled"


def test_no_leader_no_stay() -> None:
    queues = Queues()
    queues.accumulator.update_topic("t", 3, [1])
    batch = queues.add()
    assert batch is not None and batch.queue.partition == 1


def test_topics_grow() -> None:
    queues = Queues(partitions=1)
    assert queues.accumulator.update_topic("t", 4, [0, 1, 2, 3]) is queues.topic
    assert [queue.partition for queue in queues.topic.queues] == [0, 1, 2, 3]
    # Nothing is lost when metadata, for a moment, tell of fewer.
    queues.accumulator.update_topic("t", 2, [0])
    assert len(queues.topic.queues) == 4


def test_memory_is_taken_by_batch_and_given_back() -> None:
    queues = Queues(memory=250)
    first = queues.add(partition=0)
    assert first is not None
    assert queues.add(partition=1) is not None
    assert queues.accumulator.free_bytes == 50
    assert queues.add(partition=2) is None, "no memory for a third batch"
    assert queues.add(partition=0) is first, "but for a record in the first"
    queues.accumulator.take_first(first.queue)
    queues.accumulator.finish(first)
    assert queues.accumulator.free_bytes == 150
    assert queues.add(partition=2) is not None


def test_memory_grows_with_the_records() -> None:
    """A thousand partitions with a record each share a memory that holds only eight full batches."""
    memory, full = 1 << 20, 1 << 17
    queues = Queues(batch_size=full, memory=memory, partitions=1000)
    for partition in range(1000):
        assert queues.add(partition=partition) is not None, f"there is memory for partition {partition}"
    batch = queues.topic.queues[0].open
    assert batch is not None and batch.reserved < full
    while batch.size + SIZE <= batch.reserved + queues.accumulator.free_bytes:
        assert queues.add(partition=0) is batch, "it grows while there is memory"
    assert queues.add(partition=0) is None
    for queue in queues.topic.queues:
        waiting = queue.waiting[0]
        queues.accumulator.take_first(queue)
        queues.accumulator.finish(waiting)
    assert queues.accumulator.free_bytes == memory


def test_a_batch_that_is_sent_holds_only_what_its_records_take() -> None:
    queues = Queues(batch_size=1 << 17, memory=1 << 20)
    batch = queues.add(partition=0)
    assert batch is not None and batch.reserved > SIZE
    queues.accumulator.take_first(batch.queue)
    assert (batch.size, batch.reserved) == (SIZE, SIZE)
    assert queues.accumulator.free_bytes == (1 << 20) - SIZE
    queues.accumulator.finish(batch)
    assert queues.accumulator.free_bytes == 1 << 20


def test_a_batch_grows_to_the_batch_size() -> None:
    queues = Queues(batch_size=5000, memory=10_000)
    batch = queues.add(partition=0)
    assert batch is not None
    while queues.add(partition=0) is batch:
        pass
    assert (batch.size, batch.reserved) == (5000, 5000)
    second = queues.topic.queues[0].open
    assert second is not None and second.reserved == 5000, "the next one reserves as much at once"
    assert queues.accumulator.free_bytes == 0


def test_when_batches_are_ready() -> None:
    queues = Queues()
    accumulator = queues.accumulator
    batch = queues.add(now_ms=1000, partition=0)
    assert batch is not None
    assert accumulator.ready_at_ms(batch) == 1010, "after lingering"
    accumulator.flushing += 1
    assert accumulator.ready_at_ms(batch) == 1000, "at once in a flush"
    accumulator.flushing -= 1
    accumulator.starving += 1
    assert accumulator.ready_at_ms(batch) == 1000, "at once when others wait for its memory"
    accumulator.starving -= 1
    queues.add(partition=0)
    queues.add(partition=0)
    assert accumulator.ready_at_ms(batch) == 1000, "at once when another one waits behind it"
    batch.attempts, batch.retry_at_ms = 1, 5000
    assert accumulator.ready_at_ms(batch) == 5000, "a repeated one after its back-off"


def test_the_sender_is_woken_only_for_what_it_would_see_too_late() -> None:
    queues = Queues()
    accumulator = queues.accumulator
    accumulator.wakes_at_ms = NEVER_MS
    batch = queues.add(now_ms=1000, partition=0)
    assert batch is not None and accumulator.must_wake(batch, 1000)
    accumulator.wakes_at_ms = 1010
    assert not accumulator.must_wake(batch, 1000)
    queues.add(partition=0)
    full = queues.add(now_ms=1005, partition=0)
    assert full is not None and accumulator.must_wake(full, 1005)


def test_repeated_batches_come_back_in_their_order() -> None:
    queues = Queues()
    for _ in range(8):
        queues.add(partition=0)
    queue = queues.topic.queues[0]
    accumulator = queues.accumulator
    sent = [batch for _ in range(3) if (batch := accumulator.take_first(queue)) is not None]
    queue.sent = list(sent)
    (unsent,) = queue.waiting
    for index in (2, 0, 1):
        accumulator.put_back(sent[index])
    assert list(queue.waiting) == [*sent, unsent]


def test_an_expired_open_batch_takes_no_more_records() -> None:
    queues = Queues()
    batch = queues.add(partition=0)
    assert batch is not None
    queues.accumulator.remove_waiting(batch)
    queues.accumulator.finish(batch)
    assert queues.add(partition=0) is not batch
    assert list(queues.accumulator.active) == [batch.queue]


# -- open_slot: a thread that pops the open batch has it for itself


def test_a_batch_that_somebody_adds_to_is_neither_sent_nor_replaced() -> None:
    queues = Queues()
    batch = queues.add(partition=0)
    assert batch is not None
    queue = batch.queue
    held = queue.open_slot.pop()
    assert held is batch
    assert queues.add(partition=0) is None, "another sender has to wait"
    assert queues.accumulator.take_first(queue) is None, "so has the one who sends it"
    assert list(queue.waiting) == [batch]
    queue.open_slot.append(held)
    assert queues.add(partition=0) is batch
    assert queues.accumulator.take_first(queue) is batch
    assert queue.open is None and not queue.open_slot
    assert queues.add(partition=0) is not batch


def test_a_batch_that_fails_while_somebody_adds_to_it_is_never_open_again() -> None:
    queues = Queues()
    batch = queues.add(partition=0)
    assert batch is not None
    queue, open_slot = batch.queue, batch.queue.open_slot
    held = open_slot.pop()
    queues.accumulator.remove_waiting(batch)
    queues.accumulator.finish(batch)
    open_slot.append(held)
    assert not queue.open_slot and queue.open is None
    assert queues.add(partition=0) is not batch


def test_a_full_batch_of_records_without_keys_does_not_linger() -> None:
    queues = Queues()
    queues.chances = [0.0, 0.9]
    first = queues.add(now_ms=1000)
    queues.add(now_ms=1000)
    assert first is not None
    accumulator = queues.accumulator
    accumulator.wakes_at_ms = 1010
    moved = queues.add(now_ms=1001)
    assert moved is not None and moved.queue is not first.queue
    assert accumulator.ready_at_ms(first) == 1000, "no record can join it any more"
    assert accumulator.must_wake(moved, 1001), "and the sender does not know that yet"
    assert accumulator.ready_at_ms(moved) == 1011


def test_keys_move_when_a_topic_grows() -> None:
    queues = Queues(partitions=1)
    keys = [b"%d" % n for n in range(50)]
    assert {queues.topic.queue_of(key).partition for key in keys} == {0}
    queues.accumulator.update_topic("t", 4, [0, 1, 2, 3])
    moved = [queues.topic.queue_of(key).partition for key in keys]
    assert (
        moved
        == [partition_for_key(key, 4) for key in keys]
        == [queues.topic.queue_of(key).partition for key in keys]
    )


def test_few_keys_are_remembered() -> None:
    queues = Queues()
    for n in range(40_000):
        queues.topic.queue_of(b"%d" % n)
    queues.topic.queue_of(b"long" * 100)
    assert len(queues.topic._by_key) <= 1 << 14
    assert b"long" * 100 not in queues.topic._by_key
