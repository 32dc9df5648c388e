"""Late binding: what was planned once sees new records each time it runs, every one exactly once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Consumer, TopicPartition
from millstream.errors import DataLostError
from millstream.spark.source.options import read_options
from millstream.spark.source.source import BatchReader
from tests.conftest import NewTopic
from tests.spark.conftest import Fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Held = Callable[[], list[tuple[str, int, int]]]


@pytest.fixture
def hold(bootstrap_servers: str) -> Callable[..., Held]:
    """Plan a batch; what is returned runs its tasks, as often as it is called."""

    def make(**options: str) -> Held:
        given = {"kafka.bootstrap.servers": bootstrap_servers, **options}
        reader = BatchReader(read_options(given, streaming=False), ("topic", "partition", "offset"))
        kept = pickle.dumps((reader, reader.partitions()))

        def run() -> list[tuple[str, int, int]]:
            reader, tasks = pickle.loads(kept)
            rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
            return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)

        return run

    return make


def offsets(topic: str, partition: int, *numbers: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, number) for number in numbers]


@pytest.mark.parametrize("split", [{}, {"minPartitions": "3"}, {"maxRecordsPerPartition": "4"}])
def test_new_records_are_seen_once_each(
    hold: Callable[..., Held], new_topic: NewTopic, fill: Fill, admin: Admin, split: dict[str, str]
) -> None:
    topic = new_topic()
    fill(topic, 10)
    held = hold(subscribe=topic, **split)
    assert held() == offsets(topic, 0, *range(10))
    fill(topic, 5)
    assert held() == offsets(topic, 0, *range(15))
    admin.delete_records({TopicPartition(topic, 0): 7})
    assert held() == offsets(topic, 0, *range(7, 15)), "earliest is where the log starts now"
    admin.delete_records({TopicPartition(topic, 0): 15})
    assert held() == []


def test_partitions_and_topics_that_were_empty_or_absent(
    hold: Callable[..., Held], new_topic: NewTopic, fill: Fill, admin: Admin
) -> None:
    topic = new_topic()
    prefix = topic.rsplit("-", 2)[0]
    held = hold(subscribePattern=prefix)
    assert held() == []
    fill(topic, 2)
    admin.create_partitions(topic, 2)
    fill(topic, 3, partition=1)
    other = new_topic()
    fill(other, 1)
    expected = [*offsets(topic, 0, 0, 1), *offsets(topic, 1, 0, 1, 2), *offsets(other, 0, 0)]
    assert held() == sorted(expected)


def test_from_where_the_group_is_now(
    hold: Callable[..., Held], new_topic: NewTopic, fill: Fill, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic()
    fill(topic, 5)
    held = hold(subscribe=topic, startingOffsets="committed", **{"kafka.group.id": group})
    assert held() == offsets(topic, 0, *range(5))
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 3})
    assert held() == offsets(topic, 0, 3, 4)


def test_what_is_an_offset_stays_one(
    hold: Callable[..., Held], new_topic: NewTopic, fill: Fill, admin: Admin
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    start, end = {topic: {"0": 2, "1": 0}}, {topic: {"0": 5, "1": 0}}
    held = hold(subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    open_end = hold(subscribe=topic, startingOffsets=json.dumps(start))
    fill(topic, 1)
    assert held() == offsets(topic, 0, 2, 3, 4)
    assert open_end() == offsets(topic, 0, *range(2, 11))
    admin.delete_records({TopicPartition(topic, 0): 3})
    for each in (held, open_end):
        with pytest.raises(DataLostError, match="the log starts at 3"):
            each()


def test_a_held_frame_its_rdd_and_a_view(
    spark: SparkSession, bootstrap_servers: str, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 3)
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", bootstrap_servers)
    frame = reader.option("subscribe", topic).load()
    rdd = frame.rdd
    frame.createOrReplaceTempView("held_records")
    try:
        assert (frame.count(), rdd.count()) == (3, 3)
        fill(topic, 2)
        assert (frame.count(), rdd.count()) == (5, 5)
        assert spark.sql("SELECT count(*) FROM held_records").first()[0] == 5  # type: ignore[index]
        assert frame.union(frame).count() == 10
    finally:
        spark.catalog.dropTempView("held_records")
