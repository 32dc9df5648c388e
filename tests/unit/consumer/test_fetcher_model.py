"""The fetcher against a model: whatever users, brokers and the network do, records come once and in order.

The model knows what every log shows to a reader, and where the reader stands. The rules do everything a user
may do, answer or lose requests in any order, answer twice, move leaders and forget sessions. Whatever is
handed out must be exactly what the model expects next; at the end, with the faults gone, all of it must come.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.drain import RAW, Drained, drain
from millstream.consumer.fetching.partition_state import FetchPhase
from millstream.errors import NetworkError, RequestTimedOutError
from millstream.model import TopicPartition
from millstream.wire.records.batches import ControlType
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World, take

PARTITIONS = (T0, T1, U0)
partitions = st.sampled_from(PARTITIONS)
some_partitions = st.sets(partitions, min_size=1)

QUEUED_MAX_BYTES = 2_000
LARGEST_BATCH = 700


class ReaderMachine(RuleBasedStateMachine):
    """One reader of three partitions on two brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = {T0: FakeLog(), T1: FakeLog(leader=1), U0: FakeLog()}
        self.visible: dict[TopicPartition, dict[int, bytes]] = {one: {} for one in PARTITIONS}
        self.committed = {T1: 2}
        self.expected: dict[TopicPartition, int] = {}
        """The next offset to hand out, at the least; gaps may follow."""
        self.paused: set[TopicPartition] = set()
        self.answered: list[tuple[int, Any]] = []
        self.drawn: Drained | None = None
        self.moved_since_drawn: set[TopicPartition] = set()

    @initialize(read_committed=st.booleans())
    def start(self, read_committed: bool) -> None:
        fetch_settings = config(
            auto_offset_reset="earliest",
            read_committed=read_committed,
            max_partition_fetch_bytes=600,
            queued_max_bytes=QUEUED_MAX_BYTES,
        )
        for log in self.logs.values():
            self._append(log, 4)
        self.read_committed = read_committed
        self.world = World(FakeCluster(self.logs), fetch_settings, self.committed)

    # -- logs

    def _append(self, log: FakeLog, count: int, **options: object) -> None:
        (partition,) = [one for one, known in self.logs.items() if known is log]
        values = [f"{partition} {log.end_offset + i}".encode() for i in range(count)]
        base = log.append(*values, **options)  # type: ignore[arg-type]
        self.visible[partition].update({base + i: value for i, value in enumerate(values)})

    @rule(partition=partitions, count=st.integers(1, 5), gap=st.integers(0, 3))
    def append(self, partition: TopicPartition, count: int, gap: int) -> None:
        self._append(self.logs[partition], count, gap_after=gap)

    @rule(partition=partitions, abort=st.booleans(), count=st.integers(1, 3))
    def append_transaction(self, partition: TopicPartition, abort: bool, count: int) -> None:
        log = self.logs[partition]
        base = log.end_offset
        self._append(log, count, producer_id=5, producer_epoch=0, transactional=True)
        log.append_marker(5, ControlType.ABORT if abort else ControlType.COMMIT)
        if abort:
            log.aborted.append((5, base, log.end_offset - 1))
            if self.read_committed:
                for offset in range(base, base + count):
                    del self.visible[partition][offset]

    @rule(partition=partitions)
    def move_leader(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        log.new_epoch(log.epoch + 1, leader=1 - max(log.leader, 0))

    @rule(partition=partitions, gone=st.booleans())
    def lose_or_find_leader(self, partition: TopicPartition, gone: bool) -> None:
        self.logs[partition].leader = -1 if gone else 0

    @rule()
    def refresh_metadata(self) -> None:
        self.world.fetcher.update_cluster(self.world.cluster.metadata())

    @rule()
    def forget_sessions(self) -> None:
        self.world.cluster.sessions.clear()

    # -- the user

    @rule(wanted=some_partitions)
    def assign(self, wanted: set[TopicPartition]) -> None:
        before = set(self.expected)
        self.world.fetcher.positions.assign(sorted(wanted))
        self._forget(before - wanted)
        for partition in wanted - before:
            self.expected[partition] = self.committed.get(partition, 0)
            self.moved_since_drawn.add(partition)

    @rule(gone=some_partitions)
    def revoke(self, gone: set[TopicPartition]) -> None:
        self.world.fetcher.positions.revoke(gone)
        self._forget(gone)

    def _forget(self, gone: set[TopicPartition]) -> None:
        for partition in gone:
            self.expected.pop(partition, None)
            self.paused.discard(partition)
            self.moved_since_drawn.add(partition)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.expected)))
        offset = data.draw(st.integers(0, self.logs[partition].end_offset))
        self.world.fetcher.positions.seek(partition, offset)
        self.expected[partition] = offset
        self.moved_since_drawn.add(partition)

    @precondition(lambda self: self.expected)
    @rule()
    def seek_all_to_beginning(self) -> None:
        self.world.fetcher.positions.seek_to_beginning()
        for partition in self.expected:
            self.expected[partition] = 0
            self.moved_since_drawn.add(partition)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.expected)))
        if partition in self.paused:
            self.world.fetcher.positions.resume([partition])
            self.paused.remove(partition)
        else:
            self.world.fetcher.positions.pause([partition])
            self.paused.add(partition)

    @rule(max_records=st.integers(1, 6))
    def take(self, max_records: int) -> None:
        records = take(self.world.fetcher, max_records, self.world.now_ms)
        assert len(records) <= max_records
        for partition in records.by_partition():
            assert partition not in self.paused
        self._check(records)

    @rule(max_records=st.integers(1, 6))
    def begin_take(self, max_records: int) -> None:
        self.drawn = drain(self.world.fetcher.begin_take(), max_records, RAW)
        self.moved_since_drawn = set()

    @precondition(lambda self: self.drawn is not None)
    @rule()
    def finish_take(self) -> None:
        assert self.drawn is not None
        self._check(self.world.fetcher.finish_take(self.drawn, self.world.now_ms))
        self.drawn = None

    def _check(self, records: Records) -> None:
        """What came is what the model expects next, and nothing in between was left out."""
        for partition, found in records.by_partition().items():
            shown = self.visible[partition]
            due = sorted(offset for offset in shown if offset >= self.expected[partition])
            assert [record.offset for record in found] == due[: len(found)]
            assert [record.value for record in found] == [shown[record.offset] for record in found]
            self.expected[partition] = found[-1].offset + 1

    # -- the network

    @rule()
    def poll(self) -> None:
        self.world.poll()

    @rule()
    def answer_everything(self) -> None:
        for _ in range(3):
            self.world.poll()
            for send in list(self.world.wire):
                self.world.deliver(send)

    @precondition(lambda self: self.world.wire)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        send = data.draw(st.sampled_from(self.world.wire))
        response = self.world.cluster.answer(send)
        self.world.wire.remove(send)
        self.answered.append((send.token, response))
        self.world.fetcher.receive(send.token, response, self.world.now_ms)

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def answer_twice(self, data: st.DataObject) -> None:
        token, response = data.draw(st.sampled_from(self.answered))
        self.world.fetcher.receive(token, response, self.world.now_ms)

    @precondition(lambda self: self.world.wire)
    @rule(data=st.data(), seen=st.booleans())
    def lose(self, data: st.DataObject, seen: bool) -> None:
        """A request fails, and the broker may have seen it all the same."""
        send = data.draw(st.sampled_from(self.world.wire))
        if seen:
            self.world.cluster.answer(send)
        self.world.fail(send, RequestTimedOutError() if seen else NetworkError())

    @rule(milliseconds=st.integers(1, 1_500))
    def wait(self, milliseconds: int) -> None:
        self.world.now_ms += milliseconds

    # -- what always holds

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "world"):
            assert self.world.fetcher.buffered_bytes <= QUEUED_MAX_BYTES + LARGEST_BATCH

    @invariant()
    def positions_never_pass_what_was_handed_out(self) -> None:
        if not hasattr(self, "world"):
            return
        assert self.world.fetcher.positions.assignment() == set(self.expected)
        assert self.world.fetcher.positions.paused() == self.paused
        for partition, expected in self.expected.items():
            position = self.world.fetcher.positions.position(partition)
            if position is not None:
                assert position >= expected
                assert not [one for one in self.visible[partition] if expected <= one < position]

    def teardown(self) -> None:
        """With the faults gone, everything that is left comes out."""
        if not hasattr(self, "world"):
            return
        for log in self.logs.values():
            log.leader = max(log.leader, 0)
        self.world.fetcher.positions.resume(self.expected)
        self.paused.clear()
        for send in list(self.world.wire):
            self.world.fail(send)
        self.world.fetcher.update_cluster(self.world.cluster.metadata())
        for _ in range(200):
            self.world.settle(1)
            self.world.now_ms += 50
            self._check(take(self.world.fetcher, 10, self.world.now_ms))
            if self._is_done():
                return
        raise AssertionError(f"stuck at {self.world.positions}: {self.world.fetcher.reasons()}")

    def _is_done(self) -> bool:
        states = list(self.world.fetcher.positions.states())
        return all(
            state.phase is FetchPhase.FETCHING
            and state.position is not None
            and state.position.offset == self.logs[state.partition].end_offset
            for state in states
        )


ReaderMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("MODEL_EXAMPLES", "100")),
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestReader = ReaderMachine.TestCase
