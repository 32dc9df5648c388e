"""The rebalance listener: committing before ownership moves, seeking when it comes, hearing of a loss."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer, RebalanceListener, Record
from millstream.errors import MisuseError, WakeupError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import QUICK, Member, Settings, partitions_of, until_owns, until_shared
from tests.waiting import SECONDS, until


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    """Four partitions with 25 records each."""
    name = new_topic(partitions=4)
    futures = [producer.send(name, b"%d" % number, partition=number % 4) for number in range(100)]
    for future in futures:
        future.result(SECONDS)
    return name


class CommitsByHand(RebalanceListener):
    """Counts what is processed, one record at a time, and commits exactly that when partitions go."""

    def __init__(self) -> None:
        self.done: dict[TopicPartition, int] = {}

    def process(self, record: Record) -> None:
        self.done[record.topic_partition] = record.offset + 1

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit({each: self.done.pop(each) for each in partitions if each in self.done})


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_what_on_revoked_commits_is_where_the_next_owner_resumes(
    bootstrap_servers: str, topic: str, group: str, assignor: str
) -> None:
    """Partitions move while records are half processed; nothing is lost and nothing is done twice."""
    listener = CommitsByHand()
    settings: Settings = {
        "enable_auto_commit": False,
        "partition_assignment_strategy": assignor,
        "max_poll_records": 3,
    }
    processed: list[Record] = []

    def process_some(consumer: Consumer) -> list[Record]:
        """Only one record of each poll is processed; the others wait for a later one."""
        for number, record in enumerate(consumer.poll(0.05)):
            if number == 0:
                listener.process(record)
                processed.append(record)
            else:
                consumer.seek(record.topic_partition, listener.done.get(record.topic_partition, 0))
        return processed

    everything = partitions_of(topic, 0, 1, 2, 3)
    with Consumer({**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group, **settings}) as first:
        first.subscribe([topic], listener=listener)
        until(lambda: len(process_some(first)) >= 20, "20 records are processed")
        with Member(bootstrap_servers, group, [topic], **settings) as second:
            until(lambda: process_some(first) and len(second.owned) == 2, "the second has its half")
            gone = second.owned

            def moved() -> list[Record]:
                both = [*process_some(first), *second.records]
                return [record for record in both if record.topic_partition in gone]

            until(lambda: len(moved()) >= 50, "all records of the moved partitions are read")
            resumed = {
                each: min(r.offset for r in second.records if r.topic_partition == each)
                for each in {record.topic_partition for record in second.records}
            }
            for partition, offset in resumed.items():
                before = [r.offset for r in processed if r.topic_partition == partition]
                assert offset == len(before), f"{partition} must go on at {len(before)}, not {offset}"
            counts = Counter((record.partition, record.offset) for record in moved())
            assert set(counts.values()) == {1} and len(counts) == 50
        assert first.assignment() <= everything


def test_the_second_owner_waits_for_a_slow_on_revoked(bootstrap_servers: str, topic: str, group: str) -> None:
    """Ownership does not move before the callback has ended, however long it takes."""
    ended: list[float] = []

    class Slow(RebalanceListener):
        def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            time.sleep(1.0)
            consumer.commit(dict.fromkeys(partitions, 7))
            ended.append(time.monotonic())

    everything = partitions_of(topic, 0, 1, 2, 3)
    settings: Settings = {"enable_auto_commit": False}
    with Member(bootstrap_servers, group, [topic], listener=Slow(), **settings) as first:
        until_owns(first, everything)
        with Member(bootstrap_servers, group, [topic], **settings) as second:
            until_shared(everything, [first, second], [2, 2])
            assert second.happenings[0].at > ended[0]
            until(lambda: len(second.records) == 2 * (25 - 7), "the second reads the rest")
            assert min(record.offset for record in second.records) == 7


def test_on_assigned_seeks(bootstrap_servers: str, topic: str, group: str) -> None:
    """What the callback seeks is where reading starts; nothing from elsewhere is handed out before."""

    class FromTen(RebalanceListener):
        def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 10 + partition.partition)

    with Member(bootstrap_servers, group, [topic], listener=FromTen()) as member:
        until(lambda: len(member.records) >= 15 + 14 + 13 + 12, "the rest of each partition is read")
        first: dict[int, int] = {}
        for record in member.records:
            first.setdefault(record.partition, record.offset)
        assert first == {0: 10, 1: 11, 2: 12, 3: 13}
        assert len(member.records) == 54


def test_on_assigned_may_ask_where_it_stands(bootstrap_servers: str, topic: str, group: str) -> None:
    """position(), committed() and the others that wait work inside a callback."""
    answers: dict[int, tuple[int, int | None, int]] = {}

    class Asks(RebalanceListener):
        def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            committed = consumer.committed(partitions)
            ends = consumer.end_offsets(partitions)
            for each in partitions:
                found = committed[each]
                position = consumer.position(each, timeout=SECONDS)
                answers[each.partition] = (position, found.offset if found else None, ends[each])

    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as before:
        before.commit({TopicPartition(topic, 2): 5})
    with Member(bootstrap_servers, group, [topic], listener=Asks()) as member:
        until(lambda: len(member.records) == 95, "the rest is read")
    assert answers == {0: (0, None, 25), 1: (0, None, 25), 2: (5, 5, 25), 3: (0, None, 25)}


def test_on_assigned_is_called_for_every_rebalance_with_what_is_new(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """Cooperative members keep what they have, and hear of nothing new."""
    settings: Settings = {"partition_assignment_strategy": "cooperative-sticky"}
    everything = partitions_of(topic, 0, 1, 2, 3)
    with Member(bootstrap_servers, group, [topic], **settings) as first:
        until_owns(first, everything)
        with Member(bootstrap_servers, group, [topic], **settings) as second:
            until_shared(everything, [first, second], [2, 2])
        until_owns(first, everything)
        assigned = [each.partitions for each in first.happenings if each.what == "assigned"]
    assert assigned[0] == everything
    assert assigned[-1] == second.told[0][1], "what the second had comes back"
    assert set(assigned[1:-1]) == {frozenset()}


# --- losing


def test_without_an_on_lost_of_its_own_on_revoked_is_called(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    told: list[str] = []

    class OnlyRevoked(RebalanceListener):
        def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            told.append("revoked")

    stuck = threading.Event()
    settings: Settings = {"max_poll_interval_ms": 1500}
    with Member(bootstrap_servers, group, [topic], listener=OnlyRevoked(), **settings) as member:
        until_owns(member, partitions_of(topic, 0, 1, 2, 3))
        work = member.begin(lambda _: stuck.wait(SECONDS))
        with Member(bootstrap_servers, group, [topic]) as other:
            until_owns(other, partitions_of(topic, 0, 1, 2, 3))
            stuck.set()
            work.result(SECONDS)
            until(lambda: len(member.happenings) >= 2, "it is told")
            assert [each.what for each in member.happenings][:2] == ["assigned", "lost"]
            assert told[:1] == ["revoked"]


def test_a_stuck_callback_does_not_keep_partitions_for_ever(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """Callbacks are the user's code: they count against max.poll.interval.ms as well."""
    stuck, released = threading.Event(), threading.Event()

    class Stuck(RebalanceListener):
        def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if not released.is_set():
                stuck.set()
                assert released.wait(SECONDS)

    everything = partitions_of(topic, 0, 1, 2, 3)
    settings: Settings = {"max_poll_interval_ms": 1500, "session_timeout_ms": 30_000}
    with Member(bootstrap_servers, group, [topic]) as other:
        until_owns(other, everything)
        with Member(bootstrap_servers, group, [topic], listener=Stuck(), **settings) as member:
            assert stuck.wait(SECONDS)
            whole = ("assigned", everything)
            until(lambda: other.told.count(whole) == 2, "the other has its half, and then all again", 25)
            released.set()
            until_shared(everything, [member, other], [2, 2])
            assert [each.what for each in member.happenings][:2] == ["assigned", "lost"]


# --- mistakes in callbacks


def test_an_error_in_a_callback_is_raised_by_poll_and_the_group_goes_on(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    class Fails(RebalanceListener):
        def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError("a mistake")

    with Consumer({**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}) as consumer:
        consumer.subscribe([topic], listener=Fails())
        with pytest.raises(ZeroDivisionError, match="a mistake"):
            until(lambda: consumer.poll(0.1), "a record")
        assert len(consumer.assignment()) == 4
        assert until(lambda: consumer.poll(0.1), "a record")


def test_a_callback_cannot_close_but_can_ask_for_the_end(
    bootstrap_servers: str, admin: Admin, topic: str, group: str
) -> None:
    """The group waits for the callback, and close() would wait for the group."""

    class Closes(RebalanceListener):
        def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            consumer.wakeup()
            consumer.close()

    settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}
    with Consumer({**settings, "session_timeout_ms": 30_000}) as consumer:
        consumer.subscribe([topic], listener=Closes())
        with pytest.raises(MisuseError, match=r"wakeup\(\) there"):
            until(lambda: consumer.poll(1), "a record")
        with pytest.raises(WakeupError):
            consumer.poll(SECONDS)
    assert admin.describe_group(group).members == ()


def test_an_error_in_on_revoked_does_not_keep_close_from_leaving(
    bootstrap_servers: str, admin: Admin, topic: str, group: str
) -> None:
    class Fails(RebalanceListener):
        def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError("a mistake")

    settings = {**QUICK, "session_timeout_ms": 30_000}
    consumer = Consumer({**settings, "bootstrap_servers": bootstrap_servers, "group_id": group})
    consumer.subscribe([topic], listener=Fails())
    until(lambda: consumer.poll(0.1), "a record")
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        consumer.close()
    assert admin.describe_group(group).members == ()
    consumer.close()
