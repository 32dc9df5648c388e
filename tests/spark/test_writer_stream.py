"""``df.writeStream.format("millstream")``: no row is lost, and only a failed micro-batch is written again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from millstream import Admin
from tests.conftest import NewTopic
from tests.programs import ATTEMPTS, TOO_BUSY
from tests.spark.conftest import Fill
from tests.spark.writing import Writing
from tests.waiting import SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STREAM_SECONDS = 3 * int(SECONDS)
COPY = "cast(value as string) value"


class Copying:
    """Streams from a topic into another, micro-batch by micro-batch."""

    def __init__(self, spark: SparkSession, servers: str, checkpoint: str) -> None:
        self.spark = spark
        self.servers = servers
        self.checkpoint = checkpoint
        self.running: list[StreamingQuery] = []

    def source(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("millstream").option("kafka.bootstrap.servers", self.servers)
        given = {"startingOffsets": "earliest", "subscribe": topic, **options}
        return reader.options(**given).load()

    def run(self, frame: DataFrame, *, mode: str = "append", **options: str) -> StreamingQuery:
        """Write what is there, and end."""
        writer = frame.writeStream.format("millstream").option("kafka.bootstrap.servers", self.servers)
        return self.end(writer.outputMode(mode).options(**options))

    def end(self, writer: Any) -> StreamingQuery:
        """Start a stream, again if the machine was too busy for it, and wait for its end."""
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        for attempt in range(1, ATTEMPTS + 1):
            query: StreamingQuery = writer.start()
            self.running.append(query)
            try:
                assert query.awaitTermination(STREAM_SECONDS)
                break
            except StreamingQueryException as error:
                if attempt == ATTEMPTS or TOO_BUSY not in str(error):
                    raise
        return query


@pytest.fixture
def copying(spark: SparkSession, bootstrap_servers: str, checkpoint: str) -> Iterator[Copying]:
    made = Copying(spark, bootstrap_servers, checkpoint)
    yield made
    for query in made.running:
        query.stop()


@pytest.fixture
def writing(bootstrap_servers: str, admin: Admin) -> Writing:
    return Writing(bootstrap_servers, admin)


def test_each_micro_batch_is_written_once_over_restarts(
    copying: Copying, writing: Writing, new_topic: NewTopic, fill: Fill
) -> None:
    source, target = new_topic(name="source"), new_topic(partitions=2, name="target")
    fill(source, 50)
    frame = copying.source(source, maxOffsetsPerTrigger="30").selectExpr("key", COPY, "partition", "offset")
    query = copying.run(frame, topic=target)
    sinks = [progress["sink"] for progress in query.recentProgress if progress["numInputRows"]]
    assert [sink["numOutputRows"] for sink in sinks] == [30, 20]
    fill(source, 10, first=50)
    copying.run(frame, topic=target)
    assert Counter(writing.values(target)) == Counter(f"v{number}" for number in range(60))
    assert all(record.partition == 0 for record in writing.records(target)), "the column partition"


def test_the_topic_of_each_row(copying: Copying, writing: Writing, new_topic: NewTopic, fill: Fill) -> None:
    source, even, odd = (new_topic(name=name) for name in ("source", "even", "odd"))
    fill(source, 20)
    columns = (f"if(offset % 2 = 0, '{even}', '{odd}') topic", COPY)
    copying.run(copying.source(source).selectExpr(*columns))
    assert [int(each.value[1:]) for each in writing.records(even)] == list(range(0, 20, 2))
    assert [int(each.value[1:]) for each in writing.records(odd)] == list(range(1, 20, 2))


def test_complete_writes_the_whole_result_each_time(
    copying: Copying, writing: Writing, new_topic: NewTopic, fill: Fill
) -> None:
    source, target = new_topic(name="source"), new_topic(name="target")
    fill(source, 6)
    counts = copying.source(source, maxOffsetsPerTrigger="3").groupBy().count()
    copying.run(counts.selectExpr("cast(count as string) value"), mode="complete", topic=target)
    assert writing.values(target)[-1] == "6"


def test_refused_before_any_task(copying: Copying, new_topic: NewTopic, fill: Fill) -> None:
    source = new_topic()
    fill(source, 3)
    with pytest.raises(StreamingQueryException, match="set the option topic, or add a column topic"):
        copying.run(copying.source(source).selectExpr("value"))


def test_a_micro_batch_that_fails_is_repeated_whole(
    copying: Copying, writing: Writing, new_topic: NewTopic, fill: Fill
) -> None:
    """A row is refused after others were written; once the cause is mended the stream continues."""
    source, target = new_topic(name="source"), new_topic(name="target")
    fill(source, 40)
    wish = "if(value = 'v37', int({}), 0) partition"
    limited = copying.source(source, maxOffsetsPerTrigger="20").selectExpr(COPY)
    with pytest.raises(StreamingQueryException, match=f"{target} has the partitions 0 to 0, not 5"):
        copying.run(limited.selectExpr("value", wish.format(5)), topic=target)
    before = Counter(writing.values(target))
    assert all(before[f"v{number}"] == 1 for number in range(20)), "the first micro-batch is whole"
    copying.run(limited.selectExpr("value", wish.format(0)), topic=target)
    after = Counter(writing.values(target))
    assert set(after) == {f"v{number}" for number in range(40)}
    assert all(after[f"v{number}"] == 1 for number in range(20)), "no other batch is repeated"


def test_for_each_batch(copying: Copying, writing: Writing, new_topic: NewTopic, fill: Fill) -> None:
    """The way for the output mode update, which Spark does not offer to Python sinks."""
    source, target = new_topic(name="source"), new_topic(name="target")
    fill(source, 9)

    def write(frame: Any, number: int) -> None:
        columns = ("cast(key as string) key", "cast(count as string) value")
        writing.write(frame.selectExpr(*columns), mode=None, topic=target)

    counts = copying.source(source).groupBy("key").count()
    copying.end(counts.writeStream.foreachBatch(write).outputMode("update"))
    found = sorted((record.key, record.value) for record in writing.records(target))
    assert found == [(b"k0", b"3"), (b"k1", b"3"), (b"k2", b"3")]
