"""The sender and a model of a broker's partitions, under a seeded network that loses, delays and repeats.

Whatever happens on the way, each partition holds every record that was acknowledged once, in the order of the
sends.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from millstream.client.backoff import Backoff
from millstream.errors import ErrorCode, NetworkError, for_code
from millstream.producer.core.accumulator import Accumulator, BatchLimits
from millstream.producer.core.batch import Batch
from millstream.producer.core.sender import FinishedBatch, Sender, SendLimits
from millstream.producer.core.sequences import Sequences
from tests.unit.producer.test_sender import cluster_of

PARTITIONS = 2
RECORDS = 400


@dataclass
class ModelPartition:
    """What a broker does with idempotent batches: takes the next, knows the last five, refuses the rest.

    Of a producer that it does not know it takes whatever comes first, as Kafka does: it may have forgotten
    it.
    """

    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, batch: Batch, values: list[bytes]) -> tuple[int, int]:
        """An error code and an offset."""
        if batch.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        is_new = self.epoch == -1
        if batch.producer_epoch > self.epoch:
            if batch.base_sequence != 0 and not is_new:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.epoch = batch.producer_epoch
            self.recent.clear()
        for first, last, offset in self.recent:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, offset
        expected = self.recent[-1][1] + 1 if self.recent else 0
        if batch.base_sequence != expected and not is_new:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.log)
        self.log += values
        self.recent.append((batch.base_sequence, batch.last_sequence, offset))
        return ErrorCode.NONE, offset


class World:
    """One connection to one broker, which serves requests in order. It may break at any point."""

    def __init__(self, seed: int, *, too_large: int = 10**9, delivery_timeout_ms: int = 10**9) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.too_large = too_large
        self.accumulator = Accumulator(
            BatchLimits(batch_size=60, linger_ms=2, buffer_memory=1 << 30),
            lambda *args: None,
            self.random.random,
        )
        self.topic = self.accumulator.update_topic("t", PARTITIONS, [0, 1])
        self.sequences = Sequences()
        self.sequences.assigned(7, 0)
        limits = SendLimits(
            max_request_size=1000,
            delivery_timeout_ms=delivery_timeout_ms,
            retries=10**9,
            backoff=Backoff(1, 8),
            one_at_a_time=False,
        )
        self.sender = Sender(
            self.accumulator,
            self.sequences,
            limits,
            lambda delivery, middle: (None, None),
            self.random.random,
        )
        self.cluster = cluster_of([1] * PARTITIONS)
        self.partitions = [ModelPartition() for _ in range(PARTITIONS)]
        self.wire: deque[list[Batch]] = deque()
        self.served: deque[list[tuple[Batch, int, int]]] = deque()
        self.acknowledged: set[bytes] = set()
        self.given_up = 0

    def run(self) -> None:
        sent = 0
        while sent < RECORDS or self.accumulator.incomplete:
            if sent < RECORDS and self.random.random() < 0.5:
                self.add(b"%05d" % sent, sent % PARTITIONS)
                sent += 1
            self.step(trouble=0.15 if sent < RECORDS else 0.02)

    def add(self, value: bytes, partition: int) -> None:
        record = (self.topic, partition, None, value, (), 0, 20)
        if self.accumulator.append(*record) is None:
            assert self.accumulator.append_new(*record, self.now_ms) is not None

    def step(self, trouble: float) -> None:
        self.now_ms += self.random.choice([0, 1, 3])
        plan = self.sender.plan(self.now_ms, self.cluster, lambda node_id: self.in_flight < 5)
        self.given_up += len(plan.finished)
        self.wire.extend(batches for _, batches in plan.requests)
        luck = self.random.random()
        if luck < trouble:
            self.break_connection()
        elif luck < 0.6:
            self.serve()
        else:
            self.answer()

    @property
    def in_flight(self) -> int:
        return len(self.wire) + len(self.served)

    def serve(self) -> None:
        if not self.wire:
            return
        answers = []
        for batch in self.wire.popleft():
            values = [value for value in batch.values if value is not None]
            if batch.count > self.too_large:
                answers.append((batch, int(ErrorCode.MESSAGE_TOO_LARGE), -1))
            elif self.random.random() < 0.05:
                answers.append((batch, int(ErrorCode.NOT_ENOUGH_REPLICAS), -1))
            else:
                answers.append((batch, *self.partitions[batch.queue.partition].append(batch, values)))
        self.served.append(answers)

    def answer(self) -> None:
        if not self.served:
            return
        for batch, code, offset in self.served.popleft():
            # What a batch holds is gone once it has its outcome.
            values = [value for value in batch.values if value is not None]
            if code == ErrorCode.NONE:
                finished = self.sender.accepted(batch, offset, -1)
            else:
                finished = self.sender.refused(batch, for_code(code)(), self.now_ms)
            self.check(finished, values)

    def break_connection(self) -> None:
        """Some requests were served, some were not, and nobody learns which."""
        while self.wire and self.random.random() < 0.5:
            self.serve()
        lost = [batch for answers in self.served for batch, _, _ in answers]
        lost += [batch for batches in self.wire for batch in batches]
        self.wire.clear()
        self.served.clear()
        for batch in lost:
            self.given_up += len(self.sender.refused(batch, NetworkError(), self.now_ms))

    def check(self, finished: list[FinishedBatch], values: list[bytes]) -> None:
        for one in finished:
            if one.error is not None:
                self.given_up += 1
                continue
            if one.base_offset >= 0:
                log = self.partitions[one.batch.queue.partition].log
                assert log[one.base_offset : one.base_offset + len(values)] == values
            self.acknowledged.update(values)


@pytest.mark.parametrize("seed", range(100))
def test_each_record_once_and_in_order(seed: int) -> None:
    world = World(seed)
    world.run()
    for number, partition in enumerate(world.partitions):
        assert partition.log == [b"%05d" % n for n in range(RECORDS) if n % PARTITIONS == number], (
            f"seed {seed}"
        )
    assert len(world.acknowledged) == RECORDS
    assert world.given_up == 0
    assert world.accumulator.free_bytes == 1 << 30


@pytest.mark.parametrize("seed", range(40))
def test_also_when_batches_have_to_be_split(seed: int) -> None:
    world = World(seed, too_large=1)
    world.run()
    for number, partition in enumerate(world.partitions):
        assert partition.log == [b"%05d" % n for n in range(RECORDS) if n % PARTITIONS == number], (
            f"seed {seed}"
        )
    assert world.sender.splits > 0


@pytest.mark.parametrize("seed", range(100))
def test_what_is_given_up_may_be_missing_but_nothing_is_doubled_or_out_of_order(seed: int) -> None:
    world = World(seed, delivery_timeout_ms=40)
    world.run()
    assert world.given_up > 0
    for partition in world.partitions:
        assert partition.log == sorted(set(partition.log)), f"seed {seed}"
    assert world.acknowledged <= {value for partition in world.partitions for value in partition.log}
    assert world.accumulator.free_bytes == 1 << 30
