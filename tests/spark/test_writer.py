"""``df.write.format("millstream")``: rows become records, and what cannot be written is said in time.

The scenarios are those of Spark's own suite for its Kafka sink, on both brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from millstream import Admin
from tests.conftest import NewTopic
from tests.kafka import brokers
from tests.spark.writing import HEADERS, Writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


@pytest.fixture
def writing(bootstrap_servers: str, admin: Admin) -> Writing:
    return Writing(bootstrap_servers, admin)


def numbers(spark: SparkSession, count: int, *columns: str) -> Any:
    return spark.range(count).selectExpr(*(columns or ("cast(id as string) value",)))


def texts(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def test_all_columns(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    rows = [
        (topic, "k", b"one", 2, [("a", b"b"), ("a", None)], "more"),
        (topic, None, None, 0, None, "more"),
        (topic, "", b"", 0, [], None),
    ]
    schema = f"topic string, key string, value binary, partition int, headers {HEADERS}, extra string"
    writing.write(spark.createDataFrame(rows, schema).coalesce(1))
    assert [(each.partition, each.key, each.value, each.headers) for each in writing.records(topic)] == [
        (0, None, None, ()),
        (0, b"", b"", ()),
        (2, b"k", b"one", (("a", b"b"), ("a", None))),
    ]


def test_columns_that_are_not_nullable(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    frame = spark.sql(
        f"SELECT '{topic}' topic, 'v' value, 'k' key, 1 partition, array(named_struct('key', 'h', "
        "'value', cast('x' as binary))) headers"
    )
    assert not any(field.nullable for field in frame.schema.fields)
    writing.write(frame)
    (record,) = writing.records(topic)
    assert (record.partition, record.key, record.value) == (1, b"k", b"v")
    assert record.headers == (("h", b"x"),)


def test_the_topic_option_goes_before_the_column(
    spark: SparkSession, writing: Writing, new_topic: NewTopic
) -> None:
    topic, other = new_topic(), new_topic(name="other")
    writing.write(numbers(spark, 10, f"'{other}' topic", "cast(id as string) value"), topic=f" {topic} ")
    assert writing.values(topic) == texts(10)
    # With the option even a column that no topic could be read from is left alone.
    writing.write(numbers(spark, 1, "id topic", "'last' value"), topic=topic)
    assert writing.values(topic) == [*texts(10), "last"]
    assert writing.records(other) == []


def test_many_topics_keep_the_order_of_rows(
    spark: SparkSession, writing: Writing, new_topic: NewTopic
) -> None:
    topics = [new_topic(name=f"many-{number}") for number in range(3)]
    names = ", ".join(f"'{topic}'" for topic in topics)
    frame = numbers(spark, 300, f"array({names})[id % 3] topic", "cast(id as string) value")
    writing.write(frame.coalesce(1))
    for number, topic in enumerate(topics):
        assert [int(each.value) for each in writing.records(topic)] == list(range(number, 300, 3))


def test_keys_decide_and_the_column_partition_goes_before_them(
    spark: SparkSession, writing: Writing, new_topic: NewTopic
) -> None:
    by_key, by_column, by_null = (new_topic(partitions=4, name=name) for name in ("key", "column", "null"))
    frame = numbers(spark, 50, "cast(id as string) key", "cast(id as string) value")
    writing.write(frame, topic=by_key)
    found = {each.key: each.partition for each in writing.records(by_key)}
    assert len(found) == 50 and set(found.values()) == {0, 1, 2, 3}
    writing.write(frame.selectExpr("*", "2 partition"), topic=by_column)
    assert writing.ends(by_column) == {0: 0, 1: 0, 2: 50, 3: 0}
    writing.write(frame.selectExpr("*", "cast(null as int) partition"), topic=by_null)
    assert {each.key: each.partition for each in writing.records(by_null)} == found


@pytest.mark.parametrize("mode", [None, "append", "error", "errorifexists"])
def test_modes_that_append(
    spark: SparkSession, writing: Writing, new_topic: NewTopic, mode: str | None
) -> None:
    topic = new_topic()
    for _ in range(2):
        writing.write(numbers(spark, 3), mode=mode, topic=topic)
    assert len(writing.records(topic)) == 6


def test_modes_that_are_refused(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten: use mode append"):
        writing.write(numbers(spark, 3), mode="overwrite", topic=topic)
    with pytest.raises(AnalysisException, match='"Append"'):
        writing.write(numbers(spark, 3), mode="ignore", topic=topic)
    assert writing.records(topic) == []


def test_other_formats_keep_their_default_mode(spark: SparkSession, tmp_path: Any) -> None:
    place = str(tmp_path / "table")
    numbers(spark, 3).write.save(place, "parquet")
    with pytest.raises(AnalysisException, match="already exists"):
        numbers(spark, 3).write.format("parquet").save(place)
    assert spark.read.parquet(place).count() == 3


def test_bad_columns_are_refused_before_any_task(spark: SparkSession, writing: Writing) -> None:
    with pytest.raises(AnalysisException, match="the column value is missing among id"):
        writing.write(numbers(spark, 3, "id"), topic="any")
    with pytest.raises(AnalysisException, match="the column partition is BIGINT, and must be INT: cast it"):
        writing.write(numbers(spark, 3, "'x' topic", "'x' value", "id partition"))


def test_a_null_topic(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic()
    frame = numbers(spark, 10, f"if(id = 7, null, '{topic}') topic", "cast(id as string) value")
    with pytest.raises(PySparkException, match="1 of 10 rows have null in the column topic: fill it, or set"):
        writing.write(frame.coalesce(1))
    assert writing.records(topic) == []


@pytest.mark.parametrize("partition", [3, -1])
def test_a_partition_that_is_not_there(
    spark: SparkSession, writing: Writing, new_topic: NewTopic, partition: int
) -> None:
    topic = new_topic(partitions=3)
    with pytest.raises(PySparkException, match=f"{topic} has (no partition|the partitions 0 to 2)"):
        writing.write(numbers(spark, 3, "'x' value", f"{partition} partition"), topic=topic)


def test_no_rows(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic()
    writing.write(numbers(spark, 0), topic=topic)
    writing.write(numbers(spark, 10).where("value = 'none'"), topic=topic)
    writing.write(spark.createDataFrame([], "value string"), topic=topic)
    assert writing.records(topic) == []


def test_large_values_in_a_small_buffer(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic()
    frame = numbers(spark, 300, "repeat('x', 15000) value")
    writing.write(frame, topic=topic, kafka__buffer__memory="40000", kafka__batch__size="16384")
    assert writing.ends(topic) == {0: 300}


def test_a_row_of_five_megabytes(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=6_000_000)
    frame = numbers(spark, 3, "repeat('x', 5 * 1000 * 1000) value")
    with pytest.raises(PySparkException, match=r"raise kafka\.max\.request\.size"):
        writing.write(frame, topic=topic)
    writing.write(frame, topic=topic, kafka__max__request__size="6000000")
    assert [len(record.value) for record in writing.records(topic)] == [5_000_000] * 3


def test_the_error_says_what_was_written(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    """The broker refuses a record of the second topic, while those of the first are written."""
    good, bad = new_topic(name="good"), new_topic(name="bad", max_message_bytes=1_000)
    frame = numbers(spark, 10, f"if(id = 9, '{bad}', '{good}') topic", "repeat('x', int(id * id * 50)) value")
    with pytest.raises(PySparkException) as raised:
        writing.write(frame.coalesce(1))
    said = str(raised.value)
    assert f"{bad}-0: " in said and "(1 rows)" in said
    assert f"Of the first 10 rows of this task, 9 were written ({good}-0: 9)" in said
    assert writing.ends(good) == {0: 27}, "each of the three tries has written them"


def test_compressed(spark: SparkSession, writing: Writing, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    writing.write(numbers(spark, 500), topic=topic, kafka__compression__type="zstd", kafka__acks="all")
    assert writing.values(topic) == texts(500)
