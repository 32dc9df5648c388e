"""Ways to commit: automatic, synchronous, asynchronous, both, and any offset one likes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.embedded import EmbeddedBroker
from millstream.errors import CommitFailedError, RetriableCommitFailedError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import (
    QUICK,
    Member,
    Settings,
    partitions_of,
    poll_until,
    read,
    read_offsets,
    until_owns,
)
from tests.system.proxy import Proxy
from tests.waiting import SECONDS, until

OFFSET_COMMIT = 8
Outcome = tuple[dict[TopicPartition, OffsetAndMetadata], Exception | None]


@pytest.fixture
def partition(new_topic: NewTopic, bootstrap_servers: str) -> TopicPartition:
    """Twenty records in one batch."""
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=100) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0)
    return TopicPartition(topic, 0)


@pytest.fixture
def consumer(bootstrap_servers: str, group: str, partition: TopicPartition) -> Iterator[Consumer]:
    """A member of the group that commits when it is told to."""
    with Consumer(
        {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group, "enable_auto_commit": False}
    ) as consumer:
        consumer.subscribe([partition.topic])
        yield consumer


def stored(admin: Admin, group: str) -> int | None:
    """What anybody else sees that the group has committed for its only partition."""
    partitions = admin.describe_group(group).partitions
    return partitions[0].committed if partitions else None


# --- synchronous


def test_commit_covers_what_was_handed_out(
    consumer: Consumer, admin: Admin, group: str, partition: TopicPartition
) -> None:
    read(consumer, 5)
    consumer.commit()
    assert stored(admin, group) == 5
    read(consumer, 3)
    assert stored(admin, group) == 5, "nothing is committed by itself"
    consumer.commit()
    assert stored(admin, group) == 8
    assert consumer.committed([partition])[partition] == OffsetAndMetadata(8, "", 0)


def test_specific_offsets_in_the_middle_of_a_batch(
    consumer: Consumer, admin: Admin, bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    """Every few records of one batch, with a note; the next member resumes exactly there."""
    for done, offset in enumerate(read_offsets(consumer, 20), start=1):
        if done % 7 == 0:
            consumer.commit({partition: OffsetAndMetadata(offset + 1, f"after {done}")})
            assert stored(admin, group) == done
    assert consumer.committed([partition])[partition] == OffsetAndMetadata(14, "after 14")
    consumer.close()
    with Member(bootstrap_servers, group, [partition.topic]) as member:
        until(lambda: len(member.records) == 6, "the rest")
        assert member.records[0].offset == 14


def test_nothing_to_commit_is_fine(consumer: Consumer, partition: TopicPartition) -> None:
    consumer.commit()
    consumer.commit({})
    told: list[Outcome] = []
    consumer.commit_async({}, lambda offsets, error: told.append((offsets, error)))
    consumer.commit()
    assert told == [({}, None)]
    assert consumer.committed([partition]) == {partition: None}
    assert consumer.committed([]) == {}


def test_commits_without_membership(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    """A consumer that assigns itself may use a group for its offsets, as long as nobody is in it."""
    settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}
    with Consumer(settings) as alone:
        alone.assign([partition])
        read(alone, 4)
        alone.commit()
        assert stored(admin, group) == 4
        with Member(bootstrap_servers, group, [partition.topic], enable_auto_commit=False) as member:
            until_owns(member, partitions_of(partition.topic, 0))
            with pytest.raises(CommitFailedError, match="a group_id of its own"):
                alone.commit({partition: 17})
        assert stored(admin, group) == 4
        alone.commit({partition: 5})


# --- asynchronous


def test_commit_async_tells_its_callback(
    consumer: Consumer, admin: Admin, group: str, partition: TopicPartition
) -> None:
    told: list[Outcome] = []
    read(consumer, 3)
    consumer.commit_async(callback=lambda offsets, error: told.append((offsets, error)))
    read(consumer, 2)
    consumer.commit_async({partition: 4}, lambda offsets, error: told.append((offsets, error)))
    assert told == [] or told[0][1] is None, "callbacks run inside calls of this thread"
    until(lambda: consumer.poll(0.05, max_records=1) or len(told) == 2, "records come")
    until(lambda: not consumer.poll(0.05) and len(told) == 2, "both are told, in poll")
    assert [sorted(each.offset for each in offsets.values()) for offsets, _ in told] == [[3], [4]]
    assert [error for _, error in told] == [None, None]
    assert stored(admin, group) == 4


def test_commits_are_stored_in_the_order_they_were_made(
    consumer: Consumer, admin: Admin, group: str, partition: TopicPartition
) -> None:
    """Many at once: the last one wins, whether it is synchronous or not; callbacks come in order."""
    read(consumer, 1)
    told: list[int] = []
    for offset in range(1, 20):
        consumer.commit_async({partition: offset}, lambda offsets, _: told.append(offsets[partition].offset))
    consumer.commit({partition: 20})
    assert stored(admin, group) == 20
    assert told == list(range(1, 20)), "a synchronous commit returns after all earlier ones"


def test_async_while_running_and_sync_at_close(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    """The documents' pattern: cheap commits on the way, a safe one at the end."""
    settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}
    with Consumer({**settings, "enable_auto_commit": False}) as consumer:
        consumer.subscribe([partition.topic])
        try:
            for _ in range(4):
                read(consumer, 4)
                consumer.commit_async()
            read(consumer, 4)
        finally:
            consumer.commit()
        assert stored(admin, group) == 20


def test_close_waits_for_asynchronous_commits(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    told: list[Outcome] = []
    settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}
    with Consumer({**settings, "enable_auto_commit": False}) as consumer:
        consumer.subscribe([partition.topic])
        read(consumer, 6)
        consumer.commit_async(callback=lambda offsets, error: told.append((offsets, error)))
    assert [error for _, error in told] == [None]
    assert stored(admin, group) == 6


def test_an_old_commit_that_fails_late_never_moves_the_offset_back() -> None:
    """The network breaks with an asynchronous commit on its way, and a later one is stored."""
    with (
        Proxy() as proxy,
        EmbeddedBroker(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker,
        Consumer(
            {**QUICK, "enable_auto_commit": False, "session_timeout_ms": 20_000},
            bootstrap_servers=f"127.0.0.1:{proxy.port}",
            group_id="g",
            reconnect_backoff_max_ms=100,
        ) as consumer,
    ):
        proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", partitions=1)
        partition = TopicPartition("t", 0)
        consumer.subscribe(["t"])
        poll_until(consumer, consumer.assignment, "it has its partition")
        generation = consumer.group_metadata().generation_id

        told: list[tuple[int, Exception | None]] = []
        for attempt in range(5):
            old, new = 10 * attempt + 5, 10 * attempt + 8
            proxy.hold()
            consumer.commit_async(
                {partition: old}, lambda offsets, error: told.append((offsets[partition].offset, error))
            )
            until(lambda: proxy.has_held(OFFSET_COMMIT), "the commit is on its way")
            proxy.cut()
            consumer.commit({partition: new})
            assert told[-1][0] == old
            assert isinstance(told[-1][1], RetriableCommitFailedError)
            for _ in range(5):  # whoever would repeat the old one has time to do so
                consumer.poll(0.03)
                found = consumer.committed([partition])[partition]
                assert found is not None and found.offset == new
        assert len(told) == 5
        assert consumer.group_metadata().generation_id == generation


# --- automatic


def test_auto_commit_at_its_interval_inside_poll(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    settings: Settings = {"auto_commit_interval_ms": 300}
    with Consumer(
        {**QUICK, **settings, "bootstrap_servers": bootstrap_servers, "group_id": group}
    ) as consumer:
        consumer.subscribe([partition.topic])
        read(consumer, 5)
        time.sleep(0.4)
        assert stored(admin, group) is None, "only poll commits"
        consumer.poll(0, max_records=1)
        until(lambda: stored(admin, group) == 5, "what was handed out before that poll is stored")


def test_auto_commit_does_not_cover_what_is_being_processed(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    """A poll commits what earlier polls handed out: its own records may yet fail."""
    settings: Settings = {"auto_commit_interval_ms": 50, "max_poll_records": 1}
    with Consumer(
        {**QUICK, **settings, "bootstrap_servers": bootstrap_servers, "group_id": group}
    ) as consumer:
        consumer.subscribe([partition.topic])
        for count in range(1, 8):
            assert read_offsets(consumer, 1) == [count - 1]
            time.sleep(0.06)
            assert (stored(admin, group) or 0) <= count - 1

        def poll() -> int | None:
            consumer.poll(0, max_records=1)
            return stored(admin, group)

        until(poll, "something is stored")


def test_auto_commit_at_close_and_not_without_it(
    bootstrap_servers: str, admin: Admin, group: str, partition: TopicPartition
) -> None:
    for enabled, expected in ((False, None), (True, 7)):
        settings: Settings = {"enable_auto_commit": enabled, "auto_commit_interval_ms": 60_000}
        with Consumer(
            {**QUICK, **settings, "bootstrap_servers": bootstrap_servers, "group_id": group}
        ) as consumer:
            consumer.subscribe([partition.topic])
            read(consumer, 7)
        assert stored(admin, group) == expected


def test_auto_commit_before_a_rebalance(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    """However long the interval is: the next owner starts where the last one stopped."""
    topic = new_topic(partitions=2)
    for number in range(20):
        producer.send(topic, b"v", partition=number % 2).result(SECONDS)
    settings: Settings = {"auto_commit_interval_ms": 60_000}
    with Member(bootstrap_servers, group, [topic], **settings) as first:
        until(lambda: len(first.records) == 20, "the first reads everything")
        with Member(bootstrap_servers, group, [topic], **settings) as second:
            until(lambda: len(first.owned) == len(second.owned) == 1, "the second has its half")
            for number in range(2):
                producer.send(topic, b"new", partition=number).result(SECONDS)
            until(lambda: second.records, "the second reads")
            assert [record.offset for record in second.records] == [10]
            until(lambda: len(first.records) == 21, "the first reads on")
