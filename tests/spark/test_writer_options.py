"""The options and columns of the writer: what is passed on, refused with a remedy, or only warned of."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
)

from millstream.errors import ConfigError
from millstream.spark.source.options import NAMES
from millstream.spark.writer.columns import check_columns
from millstream.spark.writer.options import read_writer_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def refused(**given: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read_writer_options({**SERVERS, **{name.replace("__", "."): value for name, value in given.items()}})
    return str(raised.value)


def test_topic_and_settings() -> None:
    found = read_writer_options({**SERVERS, "Topic": " orders ", "kafka.Compression.type": "lz4"})
    assert found.topic == "orders" and found.ignored == ()
    assert found.settings == {"bootstrap.servers": "localhost:9092", "compression.type": "lz4"}
    assert read_writer_options(SERVERS).topic is None


def test_secrets_are_not_shown() -> None:
    found = read_writer_options(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "hidden-word",
        }
    )
    assert found.settings["sasl.password"] == "hidden-word"
    assert "hidden-word" not in repr(found)


def test_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        read_writer_options({"topic": "orders"})
    assert "name a topic" in refused(topic="  ")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kafka.key.serializer", "cast or encode the column"),
        ("kafka.value.serializer", "cast or encode the column"),
        ("kafka.partitioner.class", "column partition"),
        ("kafka.interceptor.classes", "transform the data frame"),
        ("kafka.transactional.id", "at least once"),
        ("kafka.compresion.type", "did you mean compression.type?"),
        ("kafka.acks", "must be all, 1 or 0"),
        ("compression.type", "use kafka.compression.type"),
        ("topics", "did you mean topic?"),
        ("bootstrap.servers", "use kafka.bootstrap.servers"),
    ],
)
def test_refused_with_a_remedy(name: str, remedy: str) -> None:
    assert remedy in refused(**{name: "x"})


def test_without_effect_and_named() -> None:
    """Kafka's client takes them, too, and says that they are not used."""
    given = {
        "kafka.metric.reporters": "com.example.Reporter",
        "kafka.group.id": "shared with a reader",
        "kafka.auto.offset.reset": "earliest",
        "kafka.com.example.ours": "x",
        "path": "/somewhere",
        "mergeSchema": "true",
    }
    found = read_writer_options({**SERVERS, "topic": "orders", **given})
    assert found.ignored == tuple(sorted(name.lower() for name in given))
    assert found.settings == {"bootstrap.servers": "localhost:9092"}


def test_options_of_reads_and_streams_are_no_mistake() -> None:
    given = {
        "subscribe": "a",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "checkpointLocation": "/c",
    }
    assert read_writer_options({**SERVERS, **given}, NAMES).ignored == ()


TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers(key: DataType = TEXT, value: DataType = BYTES, second: str = "value") -> DataType:
    return ArrayType(StructType().add("key", key).add(second, value, nullable=False), containsNull=False)


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


@pytest.mark.parametrize(
    "columns",
    [
        schema(value=TEXT, topic=TEXT),
        schema(value=BYTES, topic=TEXT, key=BYTES, partition=INT, headers=headers()),
        schema(value=BYTES, topic=TEXT, key=TEXT, offset=LONG, Partition=LONG),
    ],
)
def test_columns_that_can_be_written(columns: StructType) -> None:
    check_columns(columns, None)


def test_the_topic_option_makes_the_column_irrelevant() -> None:
    check_columns(schema(value=TEXT), "orders")
    check_columns(schema(value=TEXT, topic=LONG), "orders")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (schema(), "the column value is missing among no columns"),
        (schema(topic=TEXT, id=LONG), "to_json(struct(*)) AS value"),
        (schema(topic=TEXT, Value=TEXT), "did you mean Value?"),
        (schema(value=TEXT), "set the option topic, or add a column topic"),
        (schema(value=TEXT, topic=INT), "the column topic is INT, and must be STRING: cast it"),
        (schema(value=INT, topic=TEXT), "the column value is INT, and must be STRING or BINARY: cast it"),
        (schema(value=NullType(), topic=TEXT), "the column value is VOID, and must be STRING or BINARY"),
        (schema(value=TEXT, topic=TEXT, key=LONG), "the column key is BIGINT, and must be STRING or BINARY"),
        (schema(value=TEXT, topic=TEXT, partition=LONG), "the column partition is BIGINT, and must be INT"),
        (schema(value=TEXT, topic=TEXT, headers=MapType(TEXT, BYTES)), "the column headers is MAP"),
        (schema(value=TEXT, topic=TEXT, headers=headers(value=TEXT)), "value: BINARY>>: cast it"),
        (schema(value=TEXT, topic=TEXT, headers=headers(key=BYTES)), "ARRAY<STRUCT<key: STRING"),
        (schema(value=TEXT, topic=TEXT, headers=headers(second="more")), "ARRAY<STRUCT<key: STRING"),
    ],
)
def test_columns_that_cannot_be_written(columns: StructType, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_columns(columns, None)
    assert said in str(raised.value)
