"""Where reading starts, and how it is moved: auto.offset.reset, seeking by offset, by time, and again."""

from __future__ import annotations

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.errors import (
    MisuseError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import Settings, poll_until, read, read_offsets
from tests.waiting import SECONDS, until

OLD = 1_700_000_000_000
"""When the first record was written; each is a second younger than the one before."""


@pytest.fixture
def partition(new_topic: NewTopic, producer: Producer) -> TopicPartition:
    """Ten records, each in a batch of its own, a second apart."""
    topic = new_topic()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp=OLD + number * 1000).result(SECONDS)
    return TopicPartition(topic, 0)


def first_record(servers: str, group: str, partition: TopicPartition, producer: Producer, reset: str) -> int:
    """The first offset that a member of the group reads, with one more record written once it waits."""
    with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset=reset) as consumer:
        consumer.assign([partition])
        consumer.position(partition, timeout=SECONDS)
        producer.send(partition.topic, b"new").result(SECONDS)
        return read_offsets(consumer, 1)[0]


def commit(servers: str, group: str, partition: TopicPartition, offset: int) -> None:
    with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.commit({partition: offset})


# --- auto.offset.reset


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 10)])
def test_without_a_commit(
    bootstrap_servers: str,
    producer: Producer,
    partition: TopicPartition,
    group: str,
    reset: str,
    first: int,
) -> None:
    assert first_record(bootstrap_servers, group, partition, producer, reset) == first


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_commit_goes_before_the_reset(
    bootstrap_servers: str, producer: Producer, partition: TopicPartition, group: str, reset: str
) -> None:
    commit(bootstrap_servers, group, partition, 4)
    assert first_record(bootstrap_servers, group, partition, producer, reset) == 4


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize(
    ("committed", "deleted", "earliest"), [(2, 6, 6), (1000, 0, 0)], ids=["deleted", "past the end"]
)
def test_a_commit_out_of_range(
    bootstrap_servers: str,
    admin: Admin,
    producer: Producer,
    partition: TopicPartition,
    group: str,
    reset: str,
    committed: int,
    deleted: int,
    earliest: int,
) -> None:
    """Its record was deleted, or never was, as after a topic was made anew: the reset decides."""
    commit(bootstrap_servers, group, partition, committed)
    admin.delete_records({partition: deleted})
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset=reset) as consumer:
        consumer.assign([partition])
        if reset == "earliest":
            assert read_offsets(consumer, 10 - earliest) == list(range(earliest, 10))
        else:
            poll_until(consumer, lambda: consumer.position(partition) == 10, "the position is reset")
        producer.send(partition.topic, b"new").result(SECONDS)
        assert read_offsets(consumer, 1) == [10]


def test_none_raises_and_a_seek_goes_on(
    bootstrap_servers: str, admin: Admin, partition: TopicPartition, group: str
) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match=partition.topic) as no_offset:
                until(lambda: consumer.poll(0.1), "an error")
            assert no_offset.value.partitions == (partition,)
        with pytest.raises(NoOffsetForPartitionError):
            consumer.position(partition)
        consumer.seek(partition, 2)
        assert read_offsets(consumer, 8) == list(range(2, 10))

        admin.delete_records({partition: 5})
        consumer.seek(partition, 3)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 3 of") as out_of_range:
            until(lambda: consumer.poll(0.1), "an error")
        assert out_of_range.value.offsets == {partition: 3}
        consumer.seek(partition, 5)
        assert read_offsets(consumer, 5) == list(range(5, 10))


def test_by_duration(bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str) -> None:
    """From an hour ago on (KIP-1106)."""
    topic = new_topic()
    producer.send(topic, b"ancient", timestamp=OLD).result(SECONDS)
    producer.send(topic, b"new").result(SECONDS)
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="by_duration:PT1H"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read_offsets(consumer, 1) == [1]


# --- seeking


def test_seek_and_what_was_fetched_already_is_forgotten(
    bootstrap_servers: str, partition: TopicPartition
) -> None:
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", max_poll_records=2
    ) as consumer:
        consumer.assign([partition])
        assert read_offsets(consumer, 2)[:2] == [0, 1]
        consumer.seek(partition, 7)
        assert consumer.position(partition) == 7
        assert read_offsets(consumer, 3) == [7, 8, 9]
        consumer.seek(partition, OffsetAndMetadata(4, "", None))
        assert read_offsets(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_rewind_and_replay_at_will(bootstrap_servers: str, partition: TopicPartition) -> None:
    """The position is one number: reading again gives the same, as often as one likes."""
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        first = read(consumer, 10)
        for _ in range(3):
            consumer.seek_to_beginning(partition)
            assert read(consumer, 10) == first


def test_seek_to_beginning_and_end(
    bootstrap_servers: str, admin: Admin, producer: Producer, partition: TopicPartition
) -> None:
    admin.delete_records({partition: 3})
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert consumer.position(partition) == 3
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 10
        producer.send(partition.topic, b"new").result(SECONDS)
        assert read_offsets(consumer, 1) == [10]
        assert consumer.beginning_offsets([partition]) == {partition: 3}
        assert consumer.end_offsets([partition]) == {partition: 11}


def test_by_time(bootstrap_servers: str, partition: TopicPartition, new_topic: NewTopic) -> None:
    empty = TopicPartition(new_topic(), 0)
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:

        def find(timestamp: int) -> OffsetAndTimestamp | None:
            return consumer.offsets_for_times({partition: timestamp})[partition]

        for timestamp, offset in ((0, 0), (OLD, 0), (OLD + 1, 1), (OLD + 4000, 4), (OLD + 8999, 9)):
            found = find(timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (offset, OLD + offset * 1000)
        assert find(OLD + 9001) is None, "all records are older"
        assert consumer.offsets_for_times({empty: 0}) == {empty: None}

        consumer.assign([partition])
        found = find(OLD + 7000)
        assert found is not None
        consumer.seek(partition, found.offset)
        assert read_offsets(consumer, 3) == [7, 8, 9]


def test_lag(bootstrap_servers: str, partition: TopicPartition) -> None:
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="none", max_poll_records=4
    ) as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.lag(partition)
        consumer.seek(partition, 3)
        assert consumer.lag(partition) == 7, "the end is looked up"
        assert read_offsets(consumer, 1) == [3]
        assert consumer.lag(partition) == 6
        with pytest.raises(MisuseError, match="not assigned"):
            consumer.lag(TopicPartition(partition.topic, 1))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_lag_looks_the_position_up_as_well(
    bootstrap_servers: str, partition: TopicPartition, reset: str
) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset=reset) as consumer:
        consumer.assign([partition])
        assert consumer.lag(partition) == (10 if reset == "earliest" else 0)


def test_a_group_moved_by_command_reads_from_there(
    bootstrap_servers: str, admin: Admin, partition: TopicPartition, group: str
) -> None:
    """The offsets of a group without members can be reset: its next member starts there."""
    commit(bootstrap_servers, group, partition, 10)
    places: list[tuple[Settings, int]] = [
        ({"offset": 6}, 6),
        ({"to": "earliest"}, 0),
        ({"to": OLD + 8000}, 8),
    ]
    for place, first in places:
        admin.reset_offsets(group, **place)
        with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
            consumer.subscribe([partition.topic])
            assert read_offsets(consumer, 10 - first) == list(range(first, 10))


def test_what_is_not_assigned_cannot_be_moved(bootstrap_servers: str, partition: TopicPartition) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([partition])
        stranger = TopicPartition(partition.topic, 5)
        with pytest.raises(MisuseError, match="not assigned"):
            consumer.seek(stranger, 0)
        with pytest.raises(MisuseError, match="not assigned"):
            consumer.position(stranger)
        with pytest.raises(MisuseError, match="not assigned"):
            consumer.pause(stranger)
        with pytest.raises(MisuseError, match="not negative"):
            consumer.seek(partition, -1)
