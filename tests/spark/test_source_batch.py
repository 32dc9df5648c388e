"""``spark.read.format("millstream")``: the rows of the topics, and errors at the right moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from tests.conftest import NewTopic
from tests.spark.conftest import Fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, bootstrap_servers: str) -> Read:
    def frame(topic: str = "", schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("millstream").option("kafka.bootstrap.servers", bootstrap_servers)
        if topic:
            reader = reader.option("subscribe", topic)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return frame


def found(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def test_rows_and_types(read: Read, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic(partitions=2)
    producer.send(topic, b"one", key=b"k", partition=0, timestamp=1_500, headers=[("h", b"x")]).result()
    producer.send(topic, None, partition=1, timestamp=0).result()
    frame = read(topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "cast(timestamp as double) seconds").orderBy("partition").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (b"k", b"one", topic, 0, 0),
        (None, None, topic, 1, 0),
    ]
    assert [(row.seconds, row.timestampType) for row in rows] == [(1.5, 0), (0.0, 0)]
    assert [(header.key, bytes(header.value)) for header in rows[0].headers] == [("h", b"x")]
    assert rows[1].headers is None
    assert "headers" not in read(topic).columns


def test_topics_by_name_by_pattern_and_by_partition(read: Read, new_topic: NewTopic, fill: Fill) -> None:
    one, two = new_topic(partitions=2, name="one"), new_topic(name="two")
    fill(one, 5)
    fill(one, 5, partition=1)
    fill(two, 5)
    assert read(f"{one}, {two}").count() == 15
    assert read(subscribePattern=f"{one[:-13]}.*").count() == 15
    assert found(read(assign=json.dumps({one: [1]}))) == [(1, offset) for offset in range(5)]
    assert read(subscribePattern="nothing-is-called-so").count() == 0


def test_from_and_to(read: Read, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic(partitions=2)
    for number in range(10):
        producer.send(topic, b"x", partition=number % 2, timestamp=1_000 * number)
    producer.flush()
    offsets = read(
        topic,
        startingOffsets=json.dumps({topic: {"0": 1, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 3, "1": -1}}),
    )
    assert found(offsets) == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    times = read(topic, startingTimestamp="4000", endingTimestamp="7500")
    assert found(times) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    by_times = read(topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": 8000, "1": 9000}}))
    assert found(by_times) == [(0, 4), (1, 4)]


def test_from_what_a_group_has_committed(
    read: Read, new_topic: NewTopic, fill: Fill, group: str, bootstrap_servers: str, admin: Admin
) -> None:
    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 7})
    frame = read(topic, startingOffsets="committed", **{"kafka.group.id": group})
    assert found(frame) == [(0, 7), (0, 8), (0, 9)]
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 7, "reading commits nothing"


def test_columns_may_be_left_out(read: Read, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 3)
    frame = read(topic, schema="offset BIGINT, value BINARY")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"v0"), (1, b"v1"), (2, b"v2")]
    with pytest.raises(Exception, match="did you mean offset"):
        read(topic, schema="offst BIGINT").count()
    with pytest.raises(Exception, match=r"value is BINARY, not string.*cast it"):
        read(topic, schema="value STRING").count()


def test_a_task_for_each_partition_or_more(read: Read, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 100)
    fill(topic, 10, partition=1)
    assert read(topic).rdd.getNumPartitions() == 2
    split = read(topic, maxRecordsPerPartition="20")
    assert split.rdd.getNumPartitions() == 6 and split.distinct().count() == 110
    assert read(topic, minPartitions="5").rdd.getNumPartitions() >= 5
    assert read(topic, endingOffsets=json.dumps({topic: {"0": 0, "1": 0}})).count() == 0


def test_what_is_lost_fails_the_batch_or_is_left_out(
    read: Read, new_topic: NewTopic, fill: Fill, admin: Admin
) -> None:
    topic = new_topic()
    fill(topic, 10)
    admin.delete_records({TopicPartition(topic, 0): 4})
    assert found(read(topic))[0] == (0, 4), "earliest is what there is"
    options = {
        "startingOffsets": json.dumps({topic: {"0": 2}}),
        "endingOffsets": json.dumps({topic: {"0": 20}}),
    }
    with pytest.raises(Exception, match=r"DataLostError.*\[2, 4\).*\[10, 20\).*failOnDataLoss=false"):
        read(topic, **options).count()
    assert found(read(topic, failOnDataLoss="false", **options)) == [(0, offset) for offset in range(4, 10)]


def test_mistakes_are_told_when_the_frame_is_made(read: Read, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(Exception, match="unknown option startingoffset: did you mean startingOffsets"):
        read(topic, startingOffset="earliest")
    with pytest.raises(Exception, match=r"fetch\.max\.bytes"):
        read(topic, **{"kafka.fetch.max.byte": "1"}).count()
    with pytest.raises(Exception, match="topic nowhere"):
        read("nowhere").count()
    with pytest.raises(Exception, match="within"):
        read(
            topic, **{"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "300"}
        ).count()


def test_a_task_that_fails_is_run_again_and_reads_the_same(
    read: Read, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 500)
    fill(topic, 500, partition=1)

    def fail_at_first(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                raise RuntimeError("the first try fails")

    frame = read(topic, maxRecordsPerPartition="300").select("partition", "offset")
    rows = found(frame.mapInArrow(fail_at_first, frame.schema))
    assert rows == [(partition, offset) for partition in range(2) for offset in range(500)]
