"""Where a stream starts: at offsets, at times, at what a group has committed, at latest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream import Admin, Consumer, TopicPartition
from millstream.errors import ConfigError, DataLostError, UnknownTopicOrPartitionError
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.stream.asking import MakeStream, plain


def test_latest_is_written_down_before_anything_is_read(
    new_topic: NewTopic, fill: Fill, stream: MakeStream
) -> None:
    """A crash in the first batch must not move the start to a later "latest"."""
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic, startingOffsets="latest")
    initial = plain(asked.reader.initialOffset())
    assert plain(asked.reader.initialOffset()) == initial
    first = asked.next(initial)
    assert first != initial and asked.ranges(initial, first) == []
    fill(topic, 5)
    again = stream(topic, startingOffsets="latest")  # batch 0 was planned, and is done again after a crash
    assert again.ranges(plain(again.reader.initialOffset()), first) == []
    assert again.ranges({**initial, topic: {"0": 0}}, first) == [], "wherever that may be"
    second = again.next(first)
    assert again.ranges(first, second) == [(topic, 0, 10, 15)]


def test_offsets_and_times(new_topic: NewTopic, producer: Any, stream: MakeStream) -> None:
    topic = new_topic(partitions=2)
    for number in range(5):
        producer.send(topic, b"x", partition=0, timestamp=1_000 * number)
    producer.flush()
    by_offset = stream(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": -1}}))
    assert by_offset.start()[topic] == {"0": 3, "1": 0}
    by_time = stream(topic, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    assert by_time.start()[topic] == {"0": 2, "1": 0}
    with pytest.raises(ConfigError, match=f"{topic}-1 has no record that recent"):
        stream(topic, startingTimestamp="1500").start()
    with pytest.raises(ConfigError, match=f"does not name {topic}-1"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 3}})).start()
    with pytest.raises(ConfigError, match="which is not read here"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": 0, "2": 0}})).start()
    with pytest.raises(DataLostError, match="the log ends at 5"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 30, "1": 0}})).start()


def test_committed_offsets_and_where_there_are_none(
    new_topic: NewTopic, fill: Fill, stream: MakeStream, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    fill(topic, 10, partition=1)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    asked = stream(topic, startingOffsets="committed", **{"kafka.group.id": group})
    assert asked.start()[topic] == {"0": 4, "1": 0}, "where the group has not been, nothing is skipped"


def test_committed_offsets_that_retention_has_passed(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    admin.delete_records({TopicPartition(topic, 0): 7})
    options = {"startingOffsets": "committed", "kafka.group.id": group}
    with pytest.raises(DataLostError) as caught:
        stream(topic, **options).start()
    assert caught.value.ranges == ((topic, 0, 4, 7),)
    assert stream(topic, failOnDataLoss="false", **options).start()[topic] == {"0": 7}


def test_a_topic_that_is_not_there(stream: MakeStream, admin: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        stream("nowhere").start()
    assert "nowhere" not in admin.list_topics()


def test_partitions_that_are_assigned_and_not_there_are_read_once_they_are(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 3)
    asked = stream(assign=json.dumps({topic: [0, 1]}))
    start = asked.start()
    first = asked.next(start)
    assert asked.ranges(start, first) == [(topic, 0, 0, 3)]
    admin.create_partitions(topic, 2)
    fill(topic, 2, partition=1)
    second = asked.next(first)
    assert asked.ranges(second, asked.next(second)) == [(topic, 1, 0, 2)]
