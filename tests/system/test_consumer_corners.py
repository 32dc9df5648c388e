"""Corners of the consumer: unsubscribing, committing and closing at awkward moments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer, RebalanceListener
from millstream.consumer.membership.heartbeats import HeartbeatTimer
from millstream.embedded import EmbeddedBroker
from millstream.errors import InternalError, InvalidTopicError, WakeupError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import QUICK, Member, Settings, partitions_of, poll_until, read_offsets, until_owns
from tests.waiting import SECONDS, until


def consumer_of(servers: str, group: str, **settings: object) -> Consumer:
    return Consumer({**QUICK, "bootstrap_servers": servers, "group_id": group, **settings})


def committed(admin: Admin, group: str, partition: TopicPartition) -> int | None:
    found = admin.group_offsets(group).get(partition)
    return None if found is None else found.offset


def numbered(producer: Producer, partition: TopicPartition, count: int) -> None:
    for future in [
        producer.send(partition.topic, b"%d" % n, partition=partition.partition) for n in range(count)
    ]:
        future.result(SECONDS)


# --- unsubscribe


@pytest.mark.parametrize("due", ["on_revoked", "on_assigned"])
def test_unsubscribing_while_a_callback_is_due_leaves_the_group(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str, due: str
) -> None:
    topic = new_topic(partitions=2)
    with consumer_of(bootstrap_servers, group) as consumer:
        consumer.subscribe([topic])
        if due == "on_revoked":
            poll_until(consumer, lambda: len(consumer.assignment()) == 2, "it owns all")
        with Member(bootstrap_servers, group, [topic]) as other:
            if due == "on_revoked":
                until(lambda: "poll() must be called" in consumer.diagnose(), "the group rebalances")
            consumer.poll(0)
            until(lambda: "callbacks must finish" in consumer.diagnose(), f"{due} is due")
            consumer.unsubscribe()
            until_owns(other, partitions_of(topic, 0, 1))
            assert len(admin.describe_group(group).members) == 1, "no zombie is left"
            consumer.subscribe([topic])
            poll_until(consumer, lambda: len(consumer.assignment()) == 1, "it joins again")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("callback", ["on_assigned", "on_revoked"])
@pytest.mark.parametrize("again", [False, True])
def test_unsubscribing_inside_a_callback(
    bootstrap_servers: str, new_topic: NewTopic, group: str, strategy: str, callback: str, again: bool
) -> None:
    """With ``again``, the callback also subscribes again."""
    topic = new_topic(partitions=2)
    left: list[str] = []

    def leave(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer.assignment() and other is not None and not left:
            left.append(callback)
            consumer.unsubscribe()
            if again:
                consumer.subscribe([topic])

    other: Member | None = None
    listener = RebalanceListener()
    setattr(listener, callback, leave)
    settings: Settings = {"partition_assignment_strategy": strategy}
    with consumer_of(bootstrap_servers, group, **settings) as consumer:
        consumer.subscribe([topic], listener=listener)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2, "it owns all")
        with Member(bootstrap_servers, group, [topic], **settings) as other:
            poll_until(consumer, lambda: left, f"{callback} leaves")
            if not again:
                assert not consumer.subscription()
                until_owns(other, partitions_of(topic, 0, 1))
                consumer.subscribe([topic])
            poll_until(consumer, consumer.assignment, "it joins again")


# --- commits inside an iteration


@pytest.mark.parametrize("change", ["pause", "resume", "seek"])
def test_a_commit_in_the_loop_after_a_change_of_another_partition(
    bootstrap_servers: str, admin: Admin, producer: Producer, new_topic: NewTopic, group: str, change: str
) -> None:
    topic = new_topic(partitions=2)
    read, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    numbered(producer, read, 10)
    with consumer_of(bootstrap_servers, group, enable_auto_commit=False) as consumer:
        consumer.assign([read, other])
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        if change == "seek":
            consumer.seek(other, 0)
        else:
            getattr(consumer, change)(other)
        consumer.commit()
        assert committed(admin, group, read) == 3
        assert [record.offset for record in islice(consumer, 2)] == [3, 4]


def test_a_partition_that_moves_during_a_loop_is_committed_first(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    """Iteration with cooperative-sticky and automatic commits: what moves is read once."""
    topic = new_topic(partitions=2)
    for partition in partitions_of(topic, 0, 1):
        numbered(producer, partition, 40)
    settings: Settings = {
        "partition_assignment_strategy": "cooperative-sticky",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 3_600_000,
        "max_poll_records": 5,
    }
    seen: list[TopicPartition] = []
    with consumer_of(bootstrap_servers, group, **settings) as consumer:
        consumer.subscribe([topic])
        iterator = iter(consumer)
        seen += [record.topic_partition for record in islice(iterator, 53)]
        with Member(bootstrap_servers, group, [topic], **settings) as other:
            until(lambda: "poll() must be called" in consumer.diagnose(), "the group rebalances")
            seen += [record.topic_partition for record in islice(iterator, 3)]
            until(lambda: "callbacks must finish" in consumer.diagnose(), "on_revoked is due")
            for partition in partitions_of(topic, 0, 1):
                numbered(producer, partition, 10)
            seen += [record.topic_partition for record in islice(iterator, 1)]
            until(lambda: consumer.poll(0.05) is not None and len(other.owned) == 1, "the other has one")
            [moved] = other.owned
            first = seen.count(moved)
            until(lambda: [each.offset for each in other.records][-1:] == [49], "it has read all")
            offsets = [each.offset for each in other.records]
            assert offsets == list(range(first, 50)), "nothing is read twice"


# --- closing


def test_a_close_without_time_still_revokes_and_leaves(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    told: list[list[TopicPartition]] = []

    class Listener(RebalanceListener):
        def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            told.append(partitions)

    consumer = consumer_of(bootstrap_servers, group, session_timeout_ms=300_000, enable_auto_commit=False)
    consumer.subscribe([topic], listener=Listener())
    poll_until(consumer, consumer.assignment, "it has joined")
    consumer.close(timeout=0)
    assert told == [[TopicPartition(topic, 0)]]
    until(lambda: not admin.describe_group(group).members, "it has left")


# --- topics that cannot be


def test_an_illegal_topic_name_is_an_error_at_once(bootstrap_servers: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        with pytest.raises(InvalidTopicError, match="no such/topic"):
            consumer.partitions_for("no such/topic", timeout=SECONDS)
        with pytest.raises(InvalidTopicError, match="no such/topic"):
            consumer.end_offsets([TopicPartition("no such/topic", 0)], timeout=SECONDS)
        assert consumer.partitions_for("none") == []


# --- what must reach the user


def test_poll_ends_in_time_while_a_rebalance_waits_for_a_commit(group: str, tmp_path: Path) -> None:
    """The coordinator is away when an automatic commit must precede on_revoked."""
    settings: Settings = {"max_poll_interval_ms": 1_800_000, "session_timeout_ms": 1_700_000}
    settings |= {"default_api_timeout_ms": 1_800_000, "enable_auto_commit": True}
    told: list[list[TopicPartition]] = []
    listener = RebalanceListener()
    listener.on_revoked = lambda consumer, partitions: told.append(partitions)  # type: ignore[method-assign]
    with (
        EmbeddedBroker(data=tmp_path) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        consumer_of(broker.bootstrap_servers, group, **settings) as consumer,
        ThreadPoolExecutor(1) as thread,
    ):
        admin.create_topic("t", partitions=2)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            numbered(producer, TopicPartition("t", 0), 3)
        consumer.subscribe(["t"], listener=listener)
        assert read_offsets(consumer, 3) == [0, 1, 2]
        with Member(broker.bootstrap_servers, group, ["t"]):
            until(lambda: "poll() must be called" in consumer.diagnose(), "the group rebalances")
            consumer.poll(0)
            until(lambda: "callbacks must finish" in consumer.diagnose(), "on_revoked is due")
            broker.kill()
            assert not thread.submit(consumer.poll, 0.1).result(SECONDS)
            waiting = thread.submit(consumer.poll, 1_800)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                waiting.result(SECONDS)
            assert not told, "on_revoked follows the commit"
            broker.start()
            poll_until(consumer, lambda: told, "on_revoked")
            assert committed(admin, group, TopicPartition("t", 0)) == 3


def test_an_exception_inside_a_core_reaches_poll(
    bootstrap_servers: str, new_topic: NewTopic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer_of(bootstrap_servers, group) as consumer:
        consumer.subscribe([new_topic()])
        poll_until(consumer, consumer.assignment, "it has joined")
        monkeypatch.setattr(HeartbeatTimer, "confirmed", "not a function")
        with pytest.raises(InternalError, match="not callable") as raised:
            until(lambda: consumer.poll(0.05) is None, "poll() raises")
        assert isinstance(raised.value.__cause__, TypeError)
        with pytest.raises(InternalError):
            consumer.poll(0)
        with pytest.raises(InternalError):
            consumer.commit()
