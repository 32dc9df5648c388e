"""A crash after each way to commit: exactly the duplicates, or losses, that the documents predict.

The member is a process of its own and is killed with SIGKILL. Its successor shows what the group remembers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from millstream.admin import Admin
from millstream.broker.groups.state.records import OffsetRecord, decode_record
from millstream.consumer import Consumer, Record
from millstream.embedded import EmbeddedBroker
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import MemberProcess, Settings
from tests.waiting import SECONDS, soon_enough, until

TOTAL = 40
STATIC: Settings = {"group_instance_id": "one", "heartbeat_interval_ms": 200}
"""The successor takes the dead member's place, and need not wait for the end of its session (KIP-345)."""


@pytest.fixture
def topic(new_topic: NewTopic, bootstrap_servers: str) -> str:
    """One partition with 40 records, in batches of ten."""
    name = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1000) as producer:
        for number in range(TOTAL):
            producer.send(name, b"%d" % number, partition=0)
            if number % 10 == 9:
                producer.flush()
    return name


class Crash:
    """One member after another, each killed by the next call."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._place = (servers, group, [topic])
        self.partition = f"{topic}-0"

    def member(self, **settings: object) -> MemberProcess:
        return MemberProcess(*self._place, **{**STATIC, "enable_auto_commit": False, **settings})

    def successor_reads(self) -> list[int]:
        """The rest of the topic, as the next member gets it."""
        with self.member() as successor:
            first = successor.read(1)
            return first + successor.read(TOTAL - 1 - first[0]) if first[0] < TOTAL - 1 else first


@pytest.fixture
def crash(bootstrap_servers: str, group: str, topic: str) -> Crash:
    return Crash(bootstrap_servers, group, topic)


def rest_from(offset: int) -> list[int]:
    return list(range(offset, TOTAL))


def test_without_a_commit_everything_is_read_again(crash: Crash) -> None:
    with crash.member() as member:
        assert member.read(25) == list(range(25))
        member.kill()
    assert crash.successor_reads() == rest_from(0)


def test_a_sync_commit_after_processing_repeats_what_came_after_it(crash: Crash) -> None:
    """At least once: 12 to 19 are processed twice, and nothing is lost."""
    with crash.member() as member:
        member.read(12)
        member.ask("commit")
        assert member.read(8) == list(range(12, 20))
        member.kill()
    assert crash.successor_reads() == rest_from(12)


def test_a_commit_before_processing_loses_what_was_not_processed(crash: Crash) -> None:
    """At most once: the records up to the commit were handed out, and the crash came first."""
    with crash.member() as member:
        member.read(12)
        member.ask("commit")  # and only now processing would begin
        member.kill()
    assert crash.successor_reads() == rest_from(12)


def test_specific_offsets_in_the_middle_of_a_batch(crash: Crash) -> None:
    with crash.member() as member:
        member.read(20)
        member.ask("commit", offsets={crash.partition: 13})
        member.kill()
    assert crash.successor_reads() == rest_from(13)


def test_an_async_commit_that_was_confirmed_counts(crash: Crash) -> None:
    with crash.member() as member:
        member.read(15)
        member.ask("commit_async")
        assert member.ask("outcomes", count=1) == [[15, None]]
        member.read(5)
        member.kill()
    assert crash.successor_reads() == rest_from(15)


def test_an_async_commit_that_was_not_confirmed_counts_or_not(crash: Crash) -> None:
    """Either way the successor starts at one of the two commits, and nothing is lost."""
    with crash.member() as member:
        member.read(10)
        member.ask("commit")
        member.read(10)
        member.ask("commit_async")
        member.kill()
    found = crash.successor_reads()
    assert found in (rest_from(10), rest_from(20))


def test_async_while_running_and_sync_at_close(crash: Crash) -> None:
    """A clean end repeats nothing; a crash instead of it repeats what the last commit did not cover."""
    with crash.member() as member:
        for _ in range(3):
            member.read(5)
            member.ask("commit_async")
        member.read(2)
        member.ask("commit")
        member.close()
    with crash.member() as member:
        assert member.read(5) == list(range(17, 22))
        member.ask("commit_async")
        member.ask("outcomes", count=1)
        member.read(3)
        member.kill()
    assert crash.successor_reads() == rest_from(22)


def test_auto_commit_that_was_not_due_yet(crash: Crash) -> None:
    with crash.member(enable_auto_commit=True, auto_commit_interval_ms=60_000) as member:
        member.read(25)
        member.kill()
    assert crash.successor_reads() == rest_from(0)


def test_auto_commit_at_close_repeats_nothing(crash: Crash) -> None:
    with crash.member(enable_auto_commit=True, auto_commit_interval_ms=60_000) as member:
        member.read(25)
        member.close()
    assert crash.successor_reads() == rest_from(25)


def test_duplicates_of_auto_commit_are_bounded_by_its_interval(
    bootstrap_servers: str, admin: Admin, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    """Records flow all the time; what is repeated was handed out in the last moments before the crash."""
    interval = 0.5
    settings: Settings = {**STATIC, "auto_commit_interval_ms": int(interval * 1000), "max_poll_records": 5}

    def repeated() -> float:
        """How many seconds before the crash the first record came that is handed out again."""
        topic = new_topic()
        place = (bootstrap_servers, f"{group}-{topic}", [topic])
        sent: list[float] = []

        def is_committed(name: str) -> bool:
            return any(stored.offset for stored in admin.group_offsets(name).values())

        def send_some() -> float:
            """Send one more record; returns when."""
            producer.send(topic, b"%d" % len(sent), partition=0).result(SECONDS)
            sent.append(time.monotonic())
            return sent[-1]

        with MemberProcess(*place, polling=True, **settings) as member:
            until(lambda: send_some() and is_committed(place[1]), "something is committed")
            began = time.monotonic()
            until(lambda: send_some() - began > 2.5, "records flow")
            until(lambda: len(member.records) == len(sent), "all are handed out")
            killed = time.monotonic()
            member.kill()
            seen = len(member.records)
        with MemberProcess(*place, **settings) as successor:
            first = read_first(successor, producer, topic)
        assert 0 < first <= seen, "something was committed, and nothing is lost"
        return killed - sent[first] if first < seen else 0.0

    # The commit on its way may be lost with the crash, and polls take their time: two intervals.
    soon_enough(repeated, 2 * interval + 0.5, "seconds that are repeated", attempts=6)


def read_first(member: MemberProcess, producer: Producer, topic: str) -> int:
    """The first offset that it gets, also when it has to wait for the next record."""
    producer.send(topic, b"one more", partition=0).result(SECONDS)
    return member.read(1)[0]


# --- where offsets live


def test_offsets_can_be_read_in_their_topic(bootstrap_servers: str, topic: str, group: str) -> None:
    """__consumer_offsets is a topic like others, in Kafka's own format."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({partition: OffsetAndMetadata(7, "a note")})
        consumer.commit({partition: OffsetAndMetadata(9, "another")})
    found: list[Record] = []
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as reader:
        assert "__consumer_offsets" in reader.topics()
        reader.assign(reader.partitions_for("__consumer_offsets"))

        def look() -> bool:
            found.extend(record for record in reader.poll(0.1) if group.encode() in (record.key or b""))
            return len(found) >= 2

        until(look, "the commits are there")
    commits = [decode_record(record.key, record.value) for record in found]
    values = [
        (each.group_id, each.partition, each.value.offset, each.value.metadata)
        for each in commits
        if isinstance(each, OffsetRecord) and each.value is not None
    ]
    assert values == [(group, partition, 7, "a note"), (group, partition, 9, "another")]
    assert found[0].key.startswith(b"\x00\x01"), "version 1 of an offset's key"


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data=tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_commits_survive_kill_9_of_the_broker(own_broker: EmbeddedBroker) -> None:
    """What commit() has returned for is on the disk, in every mode; members resume there."""
    servers = own_broker.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topic("t", partitions=3)
        for number in range(30):
            producer.send("t", b"v", partition=number % 3).result(SECONDS)
    sync, told, closing = (TopicPartition("t", number) for number in range(3))
    with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        consumer.commit({sync: OffsetAndMetadata(4, "note")})
        outcome: list[Exception | None] = []
        consumer.commit_async({told: 5}, lambda _, error: outcome.append(error))
        consumer.commit({})
        assert outcome == [None]
        consumer.commit({closing: 6})
        own_broker.kill()
    own_broker.start()
    with Consumer(
        bootstrap_servers=servers, group_id="g", auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        assert consumer.committed([sync, told, closing]) == {
            sync: OffsetAndMetadata(4, "note"),
            told: OffsetAndMetadata(5),
            closing: OffsetAndMetadata(6),
        }
        consumer.subscribe(["t"])
        first: dict[TopicPartition, int] = {}

        def look() -> bool:
            for record in consumer.poll(0.1):
                first.setdefault(record.topic_partition, record.offset)
            return len(first) == 3

        until(look, "all partitions are read")
        assert first == {sync: 4, told: 5, closing: 6}
