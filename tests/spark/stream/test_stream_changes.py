"""What happens to topics between two batches: they grow, are deleted, recreated, or lose records."""

from __future__ import annotations

import uuid

import pytest

from millstream import Admin, TopicPartition
from millstream.errors import DataLostError
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.stream.asking import MakeStream, always


def test_new_topics_and_partitions_start_at_their_beginning(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    prefix = topic.rsplit("-", 2)[0]
    asked = stream(subscribePattern=f"{prefix}.*", startingOffsets="latest")
    start = asked.start()
    admin.create_partitions(topic, 2)
    fill(topic, 5, partition=1)
    other = new_topic()
    fill(other, 3)
    first = asked.next(start)
    assert asked.ranges(start, first) == [], "their beginnings are written down first"
    second = asked.next(first)
    assert asked.ranges(first, second) == sorted([(topic, 1, 0, 5), (other, 0, 0, 3)])


def test_the_beginning_of_a_new_partition_may_be_lost_already(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    start = stream(topic).start()
    admin.create_partitions(topic, 2)
    fill(topic, 5, partition=1)
    admin.delete_records({TopicPartition(topic, 1): 2})
    with pytest.raises(DataLostError) as caught:
        stream(topic).next(start)
    assert caught.value.ranges == ((topic, 1, 0, 2),)
    lenient = stream(topic, failOnDataLoss="false")
    first = lenient.next(start)
    assert lenient.ranges(first, lenient.next(first)) == [(topic, 1, 2, 5)]


def test_a_topic_made_anew_is_recognised_by_its_id(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    read = asked.next(asked.start())
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=1)
    fill(topic, 30)
    with pytest.raises(DataLostError, match="recreated"):
        stream(topic).next(read)
    lenient = stream(topic, failOnDataLoss="false")
    first = lenient.next(read)
    assert lenient.ranges(read, first) == []
    assert lenient.ranges(first, lenient.next(first)) == [(topic, 0, 0, 30)], "none of the new is skipped"


def test_a_topic_that_is_deleted(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = new_topic(), new_topic()
    fill(topic, 10)
    both = f"{topic},{other}"
    asked = stream(both)
    read = asked.next(asked.start())
    admin.delete_topics(topic)
    with pytest.raises(DataLostError, match="no longer exists"):
        stream(both).next(read)
    lenient = stream(both, failOnDataLoss="false")
    assert lenient.next(read) == read, "its offsets are kept for a while: it may come back"
    monkeypatch.setattr("millstream.spark.source.stream._KEEP_GONE_SECONDS", 0.0)
    assert topic not in lenient.next(read) and other in lenient.next(read)


def test_a_stream_whose_topics_are_all_gone_stays_where_it_is(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ``{}`` in the checkpoint: after that, everything would be new and read again."""
    monkeypatch.setattr("millstream.spark.source.stream._KEEP_GONE_SECONDS", 0.0)
    topic = new_topic()
    fill(topic, 10)
    asked = stream(subscribePattern=f"^{topic}$", failOnDataLoss="false")
    read = asked.next(asked.start())
    with monkeypatch.context() as patch:
        always(patch, "topics", ({}, []))  # the pattern matches nothing for a while
        assert asked.next(read) == read
    assert asked.next(read) == read
    fill(topic, 5)
    assert asked.ranges(read, asked.next(read)) == [(topic, 0, 10, 15)]
    admin.delete_topics(topic)
    assert asked.next(read) == read
    admin.create_topic(topic, partitions=1)
    fill(topic, 3)
    first = asked.next(read)
    assert asked.ranges(read, first) == []
    assert asked.ranges(first, asked.next(first)) == [(topic, 0, 0, 3)]


def test_a_pattern_without_topics_waits_for_them(new_topic: NewTopic, fill: Fill, stream: MakeStream) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    asked = stream(subscribePattern=name, startingOffsets="latest")
    start = asked.start()
    assert start == {} and asked.next(start) == start, "no batch, and so no {} in the checkpoint"
    topic = new_topic(name=name)
    fill(topic, 3)
    first = asked.next(start)
    assert asked.ranges(first, asked.next(first)) == [(topic, 0, 0, 3)]


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_deleted_after_a_batch_was_planned(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, recreated: bool
) -> None:
    topic, other = new_topic(), new_topic()
    fill(topic, 10)
    fill(other, 5)
    both = f"{topic},{other}"
    asked = stream(both)
    start = asked.start()
    end = asked.next(start)
    admin.delete_topics(topic)
    if recreated:
        admin.create_topic(topic, partitions=1)
        fill(topic, 20)
    with pytest.raises(DataLostError) as caught:
        asked.ranges(start, end)
    assert caught.value.ranges == ((topic, 0, 0, 10),)
    assert stream(both, failOnDataLoss="false").ranges(start, end) == [(other, 0, 0, 5)]


def test_retention_passes_the_start_of_a_planned_batch(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    start = asked.start()
    end = asked.next(start)
    admin.delete_records({TopicPartition(topic, 0): 6})
    with pytest.raises(DataLostError) as caught:
        asked.ranges(start, end)
    assert caught.value.ranges == ((topic, 0, 0, 6),)
    assert stream(topic, failOnDataLoss="false").ranges(start, end) == [(topic, 0, 6, 10)]
