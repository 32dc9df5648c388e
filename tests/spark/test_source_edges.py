"""The source at its edges, as a user of Spark's own would try it: mistakes are told, nothing is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import InputPartition

from millstream import Consumer, Producer, TopicPartition
from millstream.errors import ConfigError, DataLostError
from millstream.spark.planning.offsets import Offsets
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading.schema import COLUMNS
from millstream.spark.source.client import SourceClient
from millstream.spark.source.late_binding import LateRange
from millstream.spark.source.options import read_options
from millstream.spark.source.source import BatchReader
from millstream.spark.source.stream import StreamReader
from tests.conftest import NewTopic
from tests.spark.conftest import Fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ranges = list[tuple[int, int, int]]
Plan = Callable[..., Ranges]


def planned(task: InputPartition) -> OffsetRange | None:
    return task.value.part if isinstance(task.value, LateRange) else task.value


@pytest.fixture
def plan(bootstrap_servers: str) -> Plan:
    """What a batch would read."""

    def make(topic: str, **options: str) -> Ranges:
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": topic,
            "fetchOffset.retryIntervalMs": "10",
            **options,
        }
        tasks = BatchReader(read_options(given, streaming=False), COLUMNS).partitions()
        return [(part.partition, part.start, part.end) for part in map(planned, tasks) if part is not None]

    return make


# -- a batch that starts where nothing is


def test_a_batch_that_starts_behind_the_end_has_lost_something(
    plan: Plan, new_topic: NewTopic, fill: Fill
) -> None:
    """The log was cut, or the topic made anew: an empty result would say that all was read."""
    topic = new_topic(partitions=2)
    fill(topic, 5)
    fill(topic, 5, partition=1)
    start = {"startingOffsets": json.dumps({topic: {"0": 100, "1": 0}})}
    for end in ({}, {"endingOffsets": json.dumps({topic: {"0": -1, "1": -1}})}, {"endingTimestamp": "1000"}):
        with pytest.raises(DataLostError, match=rf"{topic}-0 \[5, 100\) \(the log ends at 5\)") as raised:
            plan(topic, **start, **end)
        assert list(raised.value.ranges) == [(topic, 0, 5, 100)]
    assert plan(topic, **start, failOnDataLoss="false") == [(1, 0, 5)]


def test_a_group_that_stands_behind_the_end_has_lost_something(
    plan: Plan, new_topic: NewTopic, fill: Fill, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic()
    fill(topic, 5)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 30})
    committed = {"startingOffsets": "committed", "kafka.group.id": group}
    with pytest.raises(DataLostError, match="the log ends at 5"):
        plan(topic, **committed)
    assert plan(topic, **committed, failOnDataLoss="false") == []


def test_a_group_that_has_gone_beyond_the_asked_end_has_nothing_left(
    plan: Plan, new_topic: NewTopic, fill: Fill, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic()
    fill(topic, 5)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    end = json.dumps({topic: {"0": 2}})
    assert plan(topic, startingOffsets="committed", endingOffsets=end, **{"kafka.group.id": group}) == []


@pytest.mark.parametrize("streaming", [False, True])
def test_a_group_that_reads_what_has_just_come_has_lost_nothing(
    streaming: bool,
    new_topic: NewTopic,
    fill: Fill,
    group: str,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two questions, records arrive, and the group commits them."""
    topic = new_topic()
    fill(topic, 5)
    asked = SourceClient.committed

    def meanwhile(cluster: SourceClient, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        fill(topic, 5, first=5)
        with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
            consumer.commit({TopicPartition(topic, 0): 8})
        return asked(cluster, partitions)

    monkeypatch.setattr(SourceClient, "committed", meanwhile)
    options = read_options(
        {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "committed",
            "kafka.group.id": group,
        },
        streaming=streaming,
    )
    if streaming:
        reader = StreamReader(options, COLUMNS)
        try:
            assert reader.initialOffset()[topic] == {"0": 8}
        finally:
            reader.stop()
    else:
        (task,) = BatchReader(options, COLUMNS).partitions()
        part = planned(task)
        assert part is not None and (part.start, part.end) == (8, 10)


def test_an_end_that_goes_back_for_a_moment_is_asked_for_again(
    plan: Plan, new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a new leader, which does not know how far the log is readable."""
    topic = new_topic()
    fill(topic, 5)
    asked, answers = SourceClient.latest, iter([2, 2])

    def poorly(cluster: SourceClient, partitions: list[TopicPartition]) -> Offsets:
        found = asked(cluster, partitions)
        return dict.fromkeys(found, next(answers, 5))

    monkeypatch.setattr(SourceClient, "latest", poorly)
    assert plan(topic, startingOffsets=json.dumps({topic: {"0": 4}})) == [(0, 4, 5)]


# -- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingTimestamp": "2000", "endingTimestamp": "1000"}, r"endingTimestamp \(1000\) is before"),
        (
            {"startingTimestamp": "2000", "endingOffsetsByTimestamp": '{"t": {"0": 3000, "1": 1999}}'},
            r"endingOffsetsByTimestamp \(1999\) is before startingTimestamp \(2000\) for t-1",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
                "endingOffsetsByTimestamp": '{"t": {"0": 4}}',
            },
            "for t-0",
        ),
    ],
)
def test_a_time_span_that_ends_before_it_starts(options: dict[str, str], message: str) -> None:
    """Spark's own source refuses it, too: an empty result would hide the mistake."""
    given = {"kafka.bootstrap.servers": "localhost:9", "subscribe": "t", **options}
    with pytest.raises(ConfigError, match=message):
        read_options(given, streaming=False)


def test_a_given_end_before_a_given_start(plan: Plan, new_topic: NewTopic, producer: Producer) -> None:
    """Offsets and times meet once both are looked up: Spark's own source refuses them then, too."""
    topic = new_topic()
    for number in range(5):
        producer.send(topic, b"", partition=0, timestamp=1000 * number)
    producer.flush()
    start, end = json.dumps({topic: {"0": 3}}), json.dumps({topic: {"0": 2}})
    by_partition = json.dumps({topic: {"0": 1000}})
    for option, time in (("endingTimestamp", "1000"), ("endingOffsetsByTimestamp", by_partition)):
        with pytest.raises(
            ConfigError, match=rf"{option} 1000 ends {topic}-0 at offset 1, before the offset 3"
        ):
            plan(topic, startingOffsets=start, **{option: time})
    with pytest.raises(
        ConfigError, match=r"endingOffsets ends .* at offset 2, .* 3 of startingTimestamp 2500"
    ):
        plan(topic, startingTimestamp="2500", endingOffsets=end)
    assert plan(topic, startingOffsets=start, endingTimestamp="4000") == [(0, 3, 4)]
    assert plan(topic, startingOffsets=start, endingTimestamp="3000") == []


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("subscibe", "t", "unknown option subscibe: did you mean subscribe?"),
        ("startingOffsets", "first", "startingOffsets must be earliest, latest, committed or JSON like"),
        ("subscribe", "no-such-topic", "no-such-topic"),
    ],
)
def test_a_mistake_is_told_in_the_first_line(
    spark: SparkSession, bootstrap_servers: str, option: str, value: str, sentence: str
) -> None:
    """As a user of Spark sees it: no traceback before it, nor after it."""
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", bootstrap_servers)
    with pytest.raises(AnalysisException) as raised:
        reader.options(**{"subscribe": "t", option: value}).load().count()
    first, *rest = str(raised.value).splitlines()
    assert sentence in first
    assert "Traceback" not in str(raised.value) and len(rest) <= 1, str(raised.value)


def test_tables_and_views_in_sql(
    spark: SparkSession, bootstrap_servers: str, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 5)
    where = f"`kafka.bootstrap.servers` '{bootstrap_servers}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW view_of_source USING millstream OPTIONS ({where})")
    spark.sql(f"CREATE TABLE table_of_source USING millstream OPTIONS ({where}, includeHeaders 'true')")
    try:
        for name in ("view_of_source", "table_of_source"):
            found = spark.sql(f"SELECT count(*), max(offset) FROM {name} WHERE offset > 1").collect()
            assert [tuple(row) for row in found] == [(3, 4)]
        assert spark.table("table_of_source").columns[-1] == "headers"
        split = spark.sql("SELECT * FROM table_of_source WITH (maxRecordsPerPartition 2)")
        assert split.rdd.getNumPartitions() == 3
        fill(topic, 2)
        assert spark.table("table_of_source").count() == 7
        with pytest.raises(AnalysisException, match=r"a table would show kafka\.sasl\.jaas\.config"):
            spark.sql(f"CREATE TABLE secret USING millstream OPTIONS ({where}, `kafka.sasl.jaas.config` 'x')")
    finally:
        spark.catalog.dropTempView("view_of_source")
        spark.sql("DROP TABLE table_of_source")


def test_the_format_is_found_without_being_registered(
    spark: SparkSession, bootstrap_servers: str, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 5)
    plain = spark.newSession().read.format("millstream").option("kafka.bootstrap.servers", bootstrap_servers)
    assert plain.option("subscribe", topic).load().count() == 5
