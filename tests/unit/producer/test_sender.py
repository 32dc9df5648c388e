"""What is sent when, and what outcomes mean; the clock is a number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from millstream.client.backoff import Backoff
from millstream.client.cluster import BrokerInfo, Cluster, PartitionInfo, TopicInfo
from millstream.errors import (
    ErrorCode,
    InvalidRecordError,
    MessageTooLargeError,
    MillstreamTimeoutError,
    NetworkError,
    for_code,
)
from millstream.producer.core.accumulator import Accumulator, BatchLimits
from millstream.producer.core.batch import Batch
from millstream.producer.core.sender import FinishedBatch, Sender, SendLimits, SendPlan
from millstream.producer.core.sequences import MAX_EPOCH, Sequences


def cluster_of(leaders: Iterable[int | None]) -> Cluster:
    """Topic t, with these leaders of its partitions."""
    partitions = tuple(PartitionInfo("t", index, leader, 0) for index, leader in enumerate(leaders))
    brokers = {node: BrokerInfo(node, "host", 9092) for node in (1, 2)}
    return Cluster(brokers, {"t": TopicInfo("t", bytes(16), False, partitions)}, {})


class Bench:
    """A sender with its queues. ``known``: the broker has had batches of this producer for each partition."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        leaders: tuple[int | None, ...] = (1, 1, 2),
        known: bool = True,
        **limits: Any,
    ) -> None:
        self.now_ms = 0
        self.cluster = cluster_of(leaders)
        self.accumulator = Accumulator(BatchLimits(100, 10, 1 << 20), lambda *args: "delivery", lambda: 0.0)
        self.topic = self.accumulator.update_topic("t", len(leaders), [0, 1, 2])
        self.sequences = Sequences() if idempotent else None
        if self.sequences is not None:
            self.sequences.assigned(7, 0)
        for queue in self.topic.queues if known else ():
            # As if the sequences had just come round to 0 again.
            queue.identity, queue.last_acked = (7, 0), 2**31 - 1
        settings: dict[str, Any] = {
            "max_request_size": 1000,
            "delivery_timeout_ms": 1000,
            "retries": 10,
            "backoff": Backoff(100, 1000),
            "one_at_a_time": False,
            **limits,
        }
        self.sender = Sender(
            self.accumulator,
            self.sequences,
            SendLimits(**settings),
            lambda delivery, middle: ("a", "b"),
            lambda: 0.5,
        )

    def add(self, partition: int, size: int = 100, value: bytes = b"v") -> Batch:
        record = (self.topic, partition, None, value, (), 0, size)
        added = self.accumulator.append(*record)
        batch = added[0] if added is not None else self.accumulator.append_new(*record, self.now_ms)
        assert batch is not None
        return batch

    def plan(self, busy: tuple[int, ...] = ()) -> SendPlan:
        return self.sender.plan(self.now_ms, self.cluster, lambda node_id: node_id not in busy)

    def send(self) -> list[Batch]:
        """Everything that can go now, over all brokers."""
        sent: list[Batch] = []
        while plan := self.plan().requests:
            sent += [batch for _, batches in plan for batch in batches]
        return sent

    def refuse(self, batch: Batch, code: int) -> list[FinishedBatch]:
        return self.sender.refused(batch, for_code(code)("said the broker"), self.now_ms)


# -- choosing


def test_batches_go_when_full_or_old() -> None:
    bench = Bench()
    bench.add(0, size=50)
    assert not bench.plan().requests
    assert bench.accumulator.wakes_at_ms == 10
    bench.now_ms = 10
    ((node_id, batches),) = bench.plan().requests
    assert (node_id, [batch.queue.partition for batch in batches]) == (1, [0])


def test_a_request_takes_along_what_goes_to_the_same_broker() -> None:
    bench = Bench()
    bench.add(0)  # full
    bench.add(1, size=10)  # could still grow
    bench.add(2, size=10)  # for another broker, which has nothing that is ready
    ((node_id, batches),) = bench.plan().requests
    assert (node_id, [batch.queue.partition for batch in batches]) == (1, [0, 1])


def test_a_busy_broker_holds_up_nobody_else() -> None:
    bench = Bench()
    bench.add(0)
    bench.add(2)
    ((node_id, _),) = bench.plan(busy=(1,)).requests
    assert node_id == 2
    assert bench.accumulator.wakes_at_ms == 1000, "nothing but the time-out of what waits"


def test_requests_are_limited_in_size_but_never_empty() -> None:
    bench = Bench(max_request_size=250)
    for partition in (0, 1):
        bench.add(partition, size=200)
    assert [len(batches) for _, batches in bench.plan().requests] == [1]
    assert [len(batches) for _, batches in bench.plan().requests] == [1]
    assert not bench.plan().requests


def test_one_batch_of_a_partition_in_a_request() -> None:
    bench = Bench()
    first, second = bench.add(0), bench.add(0)
    assert bench.plan().requests == [(1, [first])]
    assert bench.plan().requests == [(1, [second])]


def test_topics_without_a_leader_are_looked_up() -> None:
    bench = Bench(leaders=(None, 1))
    bench.add(0)
    plan = bench.plan()
    assert (plan.requests, plan.leaderless_topics) == ([], {"t"})


def test_nothing_goes_before_there_is_an_id() -> None:
    bench = Bench()
    assert bench.sequences is not None
    bench.sequences.assigned(-1, -1)
    assert not bench.plan().needs_producer_id, "nobody has sent anything yet"
    batch = bench.add(0)
    plan = bench.plan()
    assert plan.needs_producer_id and not plan.requests
    bench.sequences.assigned(9, 0)
    assert bench.send() == [batch]
    assert (batch.producer_id, batch.base_sequence) == (9, 0)


def test_without_idempotence_one_at_a_time_keeps_order() -> None:
    bench = Bench(idempotent=False, one_at_a_time=True)
    first, second = bench.add(0), bench.add(0)
    assert bench.send() == [first]
    bench.refuse(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert bench.send() == [], "the first is waiting for its back-off"
    bench.now_ms = 100
    assert bench.send() == [first]
    bench.sender.accepted(first, 0, -1)
    assert bench.send() == [second]


# -- outcomes


def test_accepted() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    (finished,) = bench.sender.accepted(batch, 42, 99)
    assert (finished.batch, finished.base_offset, finished.append_time, finished.error) == (
        batch,
        42,
        99,
        None,
    )
    assert bench.accumulator.free_bytes == 1 << 20
    assert not bench.accumulator.incomplete


def test_errors_that_may_pass_are_repeated_after_a_back_off() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    assert bench.refuse(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    bench.now_ms = 99
    assert bench.send() == []
    assert bench.accumulator.wakes_at_ms == 100
    bench.now_ms = 100
    assert bench.send() == [batch]
    assert (batch.base_sequence, batch.attempts) == (0, 1)


def test_errors_that_will_not_pass_fail_the_batch() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    (finished,) = bench.refuse(batch, ErrorCode.INVALID_RECORD)
    assert isinstance(finished.error, InvalidRecordError)


def test_retries_run_out() -> None:
    bench = Bench(retries=1)
    batch = bench.add(0)
    bench.send()
    assert bench.refuse(batch, ErrorCode.NOT_ENOUGH_REPLICAS) == []
    bench.now_ms = 500
    bench.send()
    (finished,) = bench.refuse(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert finished.error is not None


def test_duplicates_are_a_success_without_an_offset() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    (finished,) = bench.refuse(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert (finished.error, finished.base_offset) == (None, -1)


def test_too_large_batches_are_sent_in_halves() -> None:
    bench = Bench()
    for n in range(4):
        bench.add(0, size=25, value=b"%d" % n)
    behind = bench.add(0)
    (whole, _) = bench.send()
    assert bench.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE) == []
    bench.refuse(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for delivery, sequence, values in (("a", 0, [b"0", b"1"]), ("b", 2, [b"2", b"3"])):
        (half,) = bench.send()
        assert (half.delivery, half.base_sequence, half.values) == (delivery, sequence, values)
        bench.sender.accepted(half, sequence, -1)
    bench.now_ms = 500
    assert bench.send() == [behind]
    assert behind.base_sequence == 4


def test_halves_without_idempotence() -> None:
    bench = Bench(idempotent=False)
    for n in range(4):
        bench.add(0, size=25, value=b"%d" % n)
    (whole,) = bench.send()
    new = bench.add(0)
    bench.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE)
    first, second, last = bench.send()
    assert (first.values, second.values, last) == ([b"0", b"1"], [b"2", b"3"], new)


def test_taken_queues_go_to_the_end_of_the_line() -> None:
    bench = Bench(idempotent=False, leaders=(1, 1, 1), max_request_size=200)
    for partition in (0, 0, 0, 1, 2):
        bench.add(partition)
    requests = [[batch.queue.partition for batch in bench.plan().requests[0][1]] for _ in range(3)]
    assert requests == [[0, 1], [2, 0], [0]]
    assert not bench.plan().requests


def test_queues_follow_their_leaders() -> None:
    bench = Bench(leaders=(1, None, 2))
    batches = [bench.add(partition) for partition in range(3)]
    plan = bench.plan(busy=(2,))
    assert (plan.requests, plan.leaderless_topics) == ([(1, [batches[0]])], {"t"})
    bench.cluster = cluster_of((1, 2, 1))
    plan = bench.plan()
    assert dict(plan.requests) == {1: [batches[2]], 2: [batches[1]]} and not plan.leaderless_topics


def test_a_full_request_does_not_linger() -> None:
    bench = Bench(leaders=(1, 1, 1), max_request_size=100)
    small = [bench.add(partition, size=40) for partition in range(3)]
    assert bench.plan().requests == [(1, small[:2])]
    assert not bench.plan().requests, "the third may still grow"


def many() -> Bench:
    """After a request of 100 batches for broker 1, which took 7 ms, and a new record for each partition."""
    bench = Bench(idempotent=False, leaders=(1,) * 100 + (2,), max_request_size=1 << 20)
    for partition in range(100):
        bench.add(partition, size=10)
    bench.now_ms = 10
    ((node_id, batches),) = bench.plan().requests
    bench.now_ms = 20
    bench.sender.made(node_id, len(batches), took_ms=7)
    for partition in range(101):
        bench.add(partition, size=10)
    return bench


def test_after_a_request_of_many_batches_the_next_waits_until_they_have_grown() -> None:
    bench = many()
    bench.now_ms = 30
    ((node_id, _),) = bench.plan().requests
    assert node_id == 2, "each broker by itself"
    assert bench.accumulator.wakes_at_ms == 41
    bench.now_ms = 40
    assert not bench.plan().requests
    assert not bench.accumulator.must_wake(bench.add(0, size=10), bench.now_ms)
    bench.now_ms = 41
    assert [len(batches) for _, batches in bench.plan().requests] == [100]


def test_a_full_request_of_many_small_batches_lingers() -> None:
    bench = Bench(idempotent=False, leaders=(1,) * 150, max_request_size=1000)
    for partition in range(150):
        bench.add(partition, size=10)
    assert not bench.plan().requests
    bench.now_ms = 10
    assert [len(batches) for _, batches in bench.plan().requests] == [100]


def test_batches_wait_for_requests_to_all_partitions_with_records() -> None:
    bench = Bench(idempotent=False, leaders=(1,) * 200, max_request_size=1000, delivery_timeout_ms=10_000)
    for partition in range(200):
        bench.add(partition, size=10)
    bench.now_ms = 10
    ((node_id, batches),) = bench.plan().requests
    bench.sender.made(node_id, len(batches), took_ms=7)
    assert not bench.plan().requests
    assert len(batches) == 100 and bench.accumulator.wakes_at_ms == 3 * 14


def test_batches_do_not_grow_once_half_of_the_memory_is_taken() -> None:
    bench = many()
    bench.accumulator.free_bytes = bench.accumulator.limits.buffer_memory // 2
    bench.now_ms = 30
    assert dict(bench.plan().requests).keys() == {1, 2}


@pytest.mark.parametrize("what", ["full", "flushing", "starving"])
def test_what_need_not_linger_does_not_wait_for_batches_to_grow(what: str) -> None:
    bench = many()
    if what == "full":
        bench.add(0, size=90)
    else:
        setattr(bench.accumulator, what, 1)
    assert dict(bench.plan().requests).keys() == ({1} if what == "full" else {1, 2})


def test_the_wait_for_batches_to_grow_is_bounded_by_linger() -> None:
    bench = Bench(delivery_timeout_ms=10_000)
    bench.sender.made(1, 1000, took_ms=10_000)
    bench.add(0, size=10)
    bench.plan()
    assert bench.accumulator.wakes_at_ms == 400 * bench.accumulator.limits.linger_ms


def test_after_a_request_of_few_batches_nothing_waits_longer_than_linger() -> None:
    bench = Bench()
    bench.sender.made(1, 99, took_ms=1000)
    bench.add(0, size=10)
    bench.plan()
    assert bench.accumulator.wakes_at_ms == bench.accumulator.limits.linger_ms


def test_nobody_wakes_the_sender_for_a_busy_broker() -> None:
    bench = Bench(leaders=(1, 2, 2))
    bench.add(0)
    bench.plan(busy=(1,))
    assert not bench.accumulator.must_wake(bench.add(0), bench.now_ms), (
        "it looks again when broker 1 has room"
    )
    assert bench.accumulator.must_wake(bench.add(1), bench.now_ms)


@pytest.mark.parametrize("idempotent", [True, False])
def test_halves_expire_when_the_whole_would_have(idempotent: bool) -> None:
    bench = Bench(idempotent=idempotent)
    for n in range(2):
        bench.add(0, size=50, value=b"%d" % n)
    (whole,) = bench.send()
    bench.now_ms = 900
    later = bench.add(1)
    bench.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE)
    bench.cluster = cluster_of((None, None, None))
    bench.plan()
    assert bench.accumulator.wakes_at_ms == 1000, "not after the later batch, at 1900"
    bench.now_ms = 1000
    finished = bench.plan().finished
    assert [one.batch.values for one in finished] == [[], []], "both halves, and their records are released"
    assert all(isinstance(one.error, MillstreamTimeoutError) for one in finished)
    assert list(bench.accumulator.incomplete) == [later]


def test_many_splits_take_one_pass_over_what_is_incomplete() -> None:
    bench = Bench(idempotent=False)
    batches = []
    for _ in range(5):
        bench.add(0, size=50)
        batches.append(bench.add(0, size=50))
    bench.send()
    incomplete = bench.accumulator.incomplete
    for batch in reversed(batches[1:4]):
        bench.refuse(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert bench.accumulator.incomplete is incomplete, "each pass would take as long as there are batches"
    bench.plan()
    assert [batch.count for batch in bench.accumulator.incomplete] == [2, *[1] * 6, 2]
    assert set(batches) & set(bench.accumulator.incomplete) == {batches[0], batches[4]}


def test_aborting_fails_both_halves_of_a_batch_that_was_just_split() -> None:
    bench = Bench()
    for _ in range(2):
        bench.add(0, size=50)
    (whole,) = bench.send()
    bench.refuse(whole, ErrorCode.MESSAGE_TOO_LARGE)
    assert [one.batch.delivery for one in bench.sender.abort_all(NetworkError())] == ["a", "b"]


def test_one_record_cannot_be_split() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    (finished,) = bench.refuse(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(finished.error, MessageTooLargeError)


def test_delivery_time_runs_out_before_sending() -> None:
    bench = Bench(leaders=(None,))
    batch = bench.add(0)
    bench.plan()
    assert bench.accumulator.wakes_at_ms == 1000
    bench.now_ms = 1000
    (finished,) = bench.plan().finished
    assert finished.batch is batch
    assert isinstance(finished.error, MillstreamTimeoutError)
    assert "1 record for t-0 could not be delivered within delivery_timeout_ms (1000)" in str(finished.error)
    assert not bench.accumulator.active


def test_an_outcome_after_the_delivery_time_changes_nothing() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    bench.now_ms = 1000
    assert len(bench.plan().finished) == 1
    assert bench.sender.accepted(batch, 5, -1) == []
    assert bench.refuse(batch, ErrorCode.NETWORK_EXCEPTION) == []


def test_the_last_error_is_told_when_time_runs_out() -> None:
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    bench.sender.refused(batch, NetworkError("the cable is cut"), 10)
    bench.now_ms = 1000
    (finished,) = bench.plan().finished
    assert "the cable is cut" in str(finished.error)


def test_aborting_fails_everything() -> None:
    bench = Bench()
    bench.add(0)
    bench.send()
    bench.add(1)
    error = NetworkError()
    assert [finished.error for finished in bench.sender.abort_all(error)] == [error, error]
    assert bench.accumulator.free_bytes == 1 << 20


def test_records_on_the_wire_stay_until_their_request_has_ended() -> None:
    """A close that runs out of time aborts while the I/O thread may be encoding them."""
    bench = Bench()
    batch = bench.add(0)
    bench.send()
    bench.sender.abort_all(NetworkError())
    assert len(batch.values) == batch.count == 1
    bench.sender.refused(batch, NetworkError(), 10)
    assert not batch.values


# -- sequences


def test_sequences_count_records_of_each_partition() -> None:
    bench = Bench()
    for _ in range(3):
        bench.add(0, size=40)
    bench.add(0, size=90)
    bench.add(1)
    bench.now_ms = 10
    sent = bench.send()
    assert {(b.queue.partition, b.base_sequence, b.count) for b in sent} == {
        (0, 0, 2),
        (0, 2, 1),
        (0, 3, 1),
        (1, 0, 1),
    }


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    bench = Bench(known=False)
    first, second, third = bench.add(0), bench.add(0), bench.add(0)
    assert bench.send() == [first]
    bench.sender.accepted(first, 0, -1)
    assert bench.send() == [second, third]


def test_no_more_batches_than_a_broker_remembers_follow_one_without_an_answer() -> None:
    bench = Bench()
    batches = [bench.add(0) for _ in range(8)]
    assert bench.send() == batches[:5]
    for batch in batches[1:5]:
        bench.sender.accepted(batch, 0, -1)
    assert bench.send() == [], "were the first to be repeated after more, the broker would not know it"
    bench.sender.accepted(batches[0], 0, -1)
    assert bench.send() == batches[5:]


def test_a_batch_that_later_ones_have_overtaken_is_written_after_them() -> None:
    bench = Bench()
    first, second = bench.add(0), bench.add(0)
    bench.send()
    bench.refuse(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.sender.accepted(second, 0, -1)  # by a broker that had lost track of us
    bench.now_ms = 200
    assert bench.send() == [first]
    bench.refuse(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now_ms = 600
    assert bench.send() == [first]
    assert (first.producer_epoch, first.base_sequence) == (1, 0)


def test_repeated_batches_go_one_by_one_and_in_order() -> None:
    bench = Bench()
    batches = [bench.add(0) for _ in range(3)]
    assert bench.send() == batches
    bench.refuse(batches[0], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for batch in batches[1:]:
        bench.refuse(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    new = bench.add(0)
    for expected in ([batches[0]], [batches[1]], [batches[2], new]):
        bench.now_ms += 200
        assert bench.send() == expected, "nothing new before the last of the old is on its way"
        for batch in expected:
            bench.sender.accepted(batch, 0, -1)
    assert [batch.base_sequence for batch in [*batches, new]] == [0, 1, 2, 3]
    assert {batch.producer_epoch for batch in batches} == {0}


def test_out_of_order_though_next_in_line_restarts_under_a_new_epoch() -> None:
    bench = Bench()
    first, second = bench.add(0), bench.add(0)
    bench.send()
    bench.sender.accepted(first, 0, -1)
    bench.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now_ms = 200
    assert bench.send() == [second]
    assert (second.producer_epoch, second.base_sequence) == (1, 0)


def test_the_epoch_waits_until_nothing_of_the_partition_is_on_its_way() -> None:
    bench = Bench()
    first, second = bench.add(0), bench.add(0)
    bench.send()
    bench.refuse(first, ErrorCode.UNKNOWN_PRODUCER_ID)
    bench.now_ms = 200
    assert bench.send() == [], "the second may still be accepted under its old numbers"
    bench.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.send() == [first]
    bench.sender.accepted(first, 0, -1)
    bench.now_ms = 400
    assert bench.send() == [second]
    assert [(b.producer_epoch, b.base_sequence) for b in (first, second)] == [(1, 0), (1, 1)]


def test_other_partitions_keep_their_epoch_until_they_are_idle() -> None:
    bench = Bench(leaders=(1, 1))
    troubled, other = bench.add(0), bench.add(1)
    bench.send()
    bench.refuse(troubled, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now_ms = 200
    later = bench.add(1)
    assert bench.send() == [troubled], "a new epoch must not overtake what is on its way in the old one"
    bench.sender.accepted(other, 0, -1)
    assert bench.send() == [later]
    assert (later.producer_epoch, later.base_sequence) == (1, 0)


def test_a_refused_batch_leaves_a_gap_that_a_new_epoch_closes() -> None:
    bench = Bench()
    first, second = bench.add(0), bench.add(0)
    bench.send()
    bench.refuse(first, ErrorCode.INVALID_RECORD)
    bench.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.now_ms = 200
    assert bench.send() == [second]
    assert (second.producer_epoch, second.base_sequence) == (1, 0)


def test_after_giving_up_nothing_new_goes_until_the_rest_is_settled() -> None:
    bench = Bench(delivery_timeout_ms=300)
    first = bench.add(0)
    bench.now_ms = 100
    second = bench.add(0)
    bench.send()
    bench.sender.refused(first, NetworkError(), bench.now_ms)
    bench.now_ms = 300
    assert [finished.batch for finished in bench.plan().finished] == [first]
    third = bench.add(0)
    assert bench.send() == []
    # The second is accepted: so the first had been written, and there is no gap.
    bench.sender.accepted(second, 1, -1)
    assert bench.send() == [third]
    assert (third.producer_epoch, third.base_sequence) == (0, 2)


def test_giving_up_the_last_batch_restarts() -> None:
    bench = Bench(delivery_timeout_ms=300)
    first = bench.add(0)
    bench.send()
    bench.sender.refused(first, NetworkError(), bench.now_ms)
    bench.now_ms = 300
    bench.plan()
    second = bench.add(0)
    assert bench.send() == [second]
    assert (second.producer_epoch, second.base_sequence) == (1, 0)


def test_used_up_epochs_need_a_new_id() -> None:
    bench = Bench()
    assert bench.sequences is not None
    bench.sequences.assigned(7, MAX_EPOCH)
    batch = bench.add(0)
    bench.send()
    bench.refuse(batch, ErrorCode.UNKNOWN_PRODUCER_ID)
    bench.now_ms = 200
    plan = bench.plan()
    assert plan.needs_producer_id and not plan.requests
    bench.sequences.assigned(8, 0)
    assert bench.send() == [batch]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)
