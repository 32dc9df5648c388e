"""``spark.readStream.format("millstream")``: every row once, over restarts and changes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from millstream import Admin, TopicPartition
from tests.conftest import NewTopic
from tests.programs import ATTEMPTS, TOO_BUSY
from tests.spark.conftest import Fill
from tests.waiting import SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


STREAM_SECONDS = 3 * int(SECONDS)
"""How long Spark may take for a stream, of which the first one starts processes."""


class Streams:
    """Streams from topics into a directory of Parquet files, which is exactly once."""

    def __init__(self, spark: SparkSession, servers: str, place: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.table = str(place / "table")
        self.checkpoint = str(place / "checkpoint")
        self.running: list[StreamingQuery] = []

    def frame(self, topic: str, **options: str) -> DataFrame:
        given = {"startingOffsets": "earliest", "subscribe": topic, **options}
        reader = self.spark.readStream.format("millstream").option("kafka.bootstrap.servers", self.servers)
        return reader.options(**given).load()

    def start(self, topic: str, trigger: Any = None, **options: str) -> StreamingQuery:
        writer = self.frame(topic, **options).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.checkpoint).option("path", self.table)
        query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
        self.running.append(query)
        return query

    def run(self, topic: str, **options: str) -> StreamingQuery:
        """Read what is there, and end."""
        for attempt in range(1, ATTEMPTS + 1):
            query = self.start(topic, {"availableNow": True}, **options)
            try:
                assert query.awaitTermination(STREAM_SECONDS)
                break
            except StreamingQueryException as error:
                if attempt == ATTEMPTS or TOO_BUSY not in str(error):
                    raise
        return query

    def rows(self) -> list[tuple[int, int, str]]:
        frame = self.spark.read.parquet(self.table).selectExpr(
            "partition", "offset", "cast(value as string) v"
        )
        return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def streams(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> Iterator[Streams]:
    made = Streams(spark, bootstrap_servers, tmp_path)
    yield made
    for query in made.running:
        query.stop()


def expected(count: int, partition: int = 0, first: int = 0) -> list[tuple[int, int, str]]:
    return [(partition, n - first, f"v{n}") for n in range(first, first + count)]


def committed(admin: Admin, group: str) -> dict[int, int]:
    return {each.partition: place.offset for each, place in admin.group_offsets(group).items()}


def test_each_row_once_over_restarts(
    streams: Streams, new_topic: NewTopic, admin: Admin, fill: Fill, group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 100)
    options = {"maxOffsetsPerTrigger": "60", "kafka.group.id": group, "commitOffsets": "true"}
    query = streams.run(topic, **options)
    # A trigger that finds nothing may be told of, too, when it comes late.
    assert [rows for progress in query.recentProgress if (rows := progress["numInputRows"])] == [60, 40]
    assert streams.rows() == expected(100)
    assert committed(admin, group) == {0: 100, 1: 0}, "the last batch too"
    fill(topic, 50, first=100)
    admin.create_partitions(topic, 3)
    fill(topic, 7, partition=2)
    streams.run(topic, **options)
    assert streams.rows() == expected(150) + expected(7, partition=2)
    assert admin.describe_group(group).lag == 0
    last = streams.run(topic, **options).lastProgress
    assert last is not None and last["numInputRows"] == 0
    assert len(streams.rows()) == 157


def test_a_running_stream_follows_and_its_lag_is_seen(
    streams: Streams, new_topic: NewTopic, admin: Admin, fill: Fill, group: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    options = {"startingOffsets": "latest", "kafka.group.id": group, "commitOffsets": "true"}
    query = streams.start(topic, **options)
    until(lambda: query.lastProgress, "the stream has begun", STREAM_SECONDS)
    fill(topic, 20, first=10)
    until(lambda: committed(admin, group) == {0: 30}, "the group knows", STREAM_SECONDS)
    assert [row[2] for row in streams.rows()] == [f"v{n}" for n in range(10, 30)]


def test_what_is_lost_stops_the_stream_and_says_what(
    streams: Streams, new_topic: NewTopic, admin: Admin, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 10)
    streams.run(topic)
    fill(topic, 10, first=10)
    admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(Exception, match=r"DataLostError.*\[10, 15\).*failOnDataLoss=false"):
        streams.run(topic)
    assert streams.rows() == expected(10)
    streams.run(topic, failOnDataLoss="false")
    assert [row[1] for row in streams.rows()] == [*range(10), *range(15, 20)]


def test_a_batch_that_failed_is_read_again(
    spark: SparkSession, streams: Streams, new_topic: NewTopic, fill: Fill, checkpoint: str
) -> None:
    """The first batch fails after it was planned; records come meanwhile; the restart does the same batch."""
    topic = new_topic()
    fill(topic, 10)
    batches: list[list[int]] = []
    failing = [True]

    def write(frame: DataFrame, number: int) -> None:
        offsets = sorted(row["offset"] for row in frame.select("offset").collect())
        if failing:
            failing.clear()
            raise RuntimeError("the sink is away")
        batches.append(offsets)

    def run() -> None:
        query = (
            streams.frame(topic)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_SECONDS)

    with pytest.raises(Exception, match="the sink is away"):
        run()
    fill(topic, 5, first=10)
    run()
    assert batches == [list(range(10)), list(range(10, 15))]


def test_a_rate_of_one_memory_table(
    spark: SparkSession, streams: Streams, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 25)
    name = f"memory_{uuid.uuid4().hex[:8]}"
    frame = streams.frame(topic, maxRecordsPerPartition="10").groupBy("partition").count()
    query = frame.writeStream.format("memory").queryName(name).outputMode("complete")
    assert query.trigger(availableNow=True).start().awaitTermination(STREAM_SECONDS)
    assert [tuple(row) for row in spark.table(name).collect()] == [(0, 25)]
