"""What is wrong with a shaping is said at once, without Spark, and names the part that is wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import columns, ddl
from millstream.spark.load.pipeline.partitioning import Partitioning
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.partitioning import spelled_in


@pytest.mark.parametrize(
    ("shaping", "complaint"),
    [
        ({"value_format": "jsn"}, "value_format is 'jsn': it is one of raw, json, avro, csv; json?"),
        ({"value_format": "json"}, "value_format=json needs a schema"),
        ({"value_format": "csv", "schema": " "}, "value_format=csv needs a schema"),
        ({"value_format": "raw", "schema": "id LONG"}, "schema is not for value_format=raw"),
        ({"value_format": "avro"}, "avro_schema and value_format=avro go together"),
        (
            {"value_format": "json", "schema": "id LONG", "avro_schema": "{}"},
            "avro_schema and value_format=avro",
        ),
        ({"avro_schema": "{}", "avro_prefix": "magic"}, "avro_prefix is 'magic'"),
        ({"csv_delimiter": ""}, "csv_delimiter is ''"),
        ({"csv_delimiter": "é"}, "csv_delimiter is 'é'"),
        ({"csv_quote": "''"}, "csv_quote is"),
        ({"csv_quote": ","}, "csv_quote is ',', as is the delimiter"),
        ({"checks": "price > 0"}, r"checks is one text: it must be a list, as in checks=\['price > 0'\]"),
        ({"checks": [" "]}, "checks has an empty check"),
        ({"sql": " ; "}, "sql is empty"),
        ({"partition_by": "day"}, "partition_by is one text"),
        ({"schema": "id LONG", "partition_by": ["day"]}, "partition_by: there is no column 'day'"),
        ({"schema": "_offset LONG"}, "the column _offset is one that a load adds"),
        ({"schema": "_Topic STRING"}, "the column _Topic is one that a load adds"),
        ({"schema": "m MAP<INT, INT>"}, "the MAP of m must have keys of type STRING"),
    ],
)
def test_mistakes(shaping: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Pipeline(Shaping(**shaping))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a column needs a name, but it ends"),
        ("id", "the column id has no type"),
        ("id LONG,", "a column needs a name, but it ends"),
        ("id LONG price DOUBLE", "a ',' must come between columns, but there is 'price'"),
        ("id LNG", "the column id is of type LNG, which a load cannot make: did you mean LONG?"),
        ("id VARCHAR(20)", ".*is of type VARCHAR, which a load cannot make: did you mean STRING?"),
        ("id NVARCHAR", ".*did you mean STRING?"),
        ("id DATETIME", ".*did you mean TIMESTAMP?"),
        ("id POINT", ".*which a load cannot make: choose one of BOOLEAN, "),
        ("id VARCHAR(3)", "the column id is of type VARCHAR"),
        ("id LONG, ID INT", "the column ID is there twice"),
        ("a-b INT", "'-b INT' cannot be read.*`backquotes`"),
        ("d DECIMAL(39,1)", "the column d is DECIMAL\\(39,1\\)"),
        ("d DECIMAL(2,3)", "the column d is DECIMAL\\(2,3\\)"),
        ("d DECIMAL(a)", "the DECIMAL of d needs numbers, not 'a'"),
        ("d DECIMAL(3", "the DECIMAL of d needs '\\)', but it ends"),
        ("a ARRAY<INT", "the ARRAY of a needs '>', but it ends"),
        ("a ARRAY INT", "the ARRAY of a needs '<', but there is 'INT'"),
        ("a MAP<STRING>", "the MAP of a needs ',', but there is '>'"),
        ("s STRUCT<x INT y INT>", "a struct needs '>', but there is 'y'"),
        ("'id' INT", "a column needs a name, but there is \"'id'\""),
    ],
)
def test_mistakes_in_a_schema(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"^schema: {complaint}"):
        ddl.parse(text)


def test_a_schema_is_read_and_written() -> None:
    text = (
        "`id` LONG NOT NULL, `a b` ARRAY<STRUCT<`x``y`: INT NOT NULL, `z`: MAP<STRING, DECIMAL(38,3)>>>, "
        "`t` TIMESTAMP, `n` TIMESTAMP_NTZ"
    )
    assert ddl.render(ddl.parse(text)) == text
    assert ddl.parse("id: bigint not null comment 'the \"id\"', `x` INT") == pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int32())]
    )


@pytest.mark.parametrize(
    ("shaping", "fused"),
    [
        ({}, True),
        ({"checks": ["value IS NOT NULL"]}, True),
        ({"schema": "price DOUBLE", "checks": ["price > 0", "_offset >= 0"]}, True),
        ({"schema": "price DOUBLE", "checks": ["price > 0", "sqrt(price) > 0"]}, False),
        ({"schema": "price DOUBLE", "sql": "SELECT * FROM batch"}, False),
    ],
)
def test_who_needs_spark_for_more_than_tasks(shaping: dict[str, Any], fused: bool) -> None:
    pipeline = Pipeline(Shaping(**shaping))
    assert pipeline.is_fused == fused
    assert pipeline.needs_spark_for_tables != fused


def test_tables_without_spark() -> None:
    raw = Pipeline(Shaping()).tables(None)
    assert raw.rows.names == list(columns.RAW)
    assert raw.rejected is None
    assert Pipeline(Shaping(checks=["value IS NOT NULL"])).tables(None).rejected is not None
    shaping = Shaping(
        schema="id LONG NOT NULL", add_columns=True, partition_by=["date(_timestamp) AS day", "id"]
    )
    tables = Pipeline(shaping).tables(None)
    assert tables.rows.names == ["id", "_topic", "_partition", "_offset", "_timestamp", "day"]
    assert not tables.rows.field("id").nullable
    assert tables.partition_by == ("day", "id")
    assert tables.add_columns
    assert tables.rejected is not None and tables.rejected.names == list(columns.REJECTED)


SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("name", pa.string()),
    ]
)


def test_parts_of_dates_and_times() -> None:
    late = datetime(2024, 12, 31, 23, 30)
    rows = pa.RecordBatch.from_pylist(
        [
            {"at": late.replace(tzinfo=UTC), "local": late, "day": date(1969, 12, 31), "name": "x"},
            {"at": datetime(1969, 12, 31, 23, tzinfo=UTC), "local": None, "day": None, "name": None},
        ],
        SCHEMA,
    )
    partitioning = Partitioning(
        ["date(at) AS a", "HOUR( local ) as b", "year(day) AS c", "month(at) AS d", "day(at) AS e", "name"],
        SCHEMA,
    )
    assert partitioning.names == ("a", "b", "c", "d", "e", "name")
    found = partitioning.add(rows)
    assert found.schema == partitioning.schema
    assert [list(row.values())[4:] for row in found.to_pylist()] == [
        [date(2024, 12, 31), 23, 1969, 12, 31],
        [date(1969, 12, 31), None, None, 12, 31],
    ]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("nothing", "there is no column 'nothing'"),
        ("date(nothing) AS d", "there is no column 'nothing'"),
        ("date(name) AS d", "needs a date or time, and name is string"),
        ("hour(day) AS h", "needs a date or time, and day is date32"),
        ("week(at) AS w", "uses week: there are date, year, month, day, hour; derive other columns with sql"),
        ("date(at) AS Day", "the table has a column Day already"),
        ("date(at)", "there is no column 'date\\(at\\)'"),
    ],
)
def test_partitions_that_cannot_be(given: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"partition_by: .*{complaint}"):
        Partitioning([given], SCHEMA)


@pytest.mark.parametrize(
    ("remembered", "schema", "partition_by"),
    [
        (("date(_timestamp) AS day",), "id LONG", ("day",)),
        (("id", "hour(_timestamp) AS h"), "id LONG", ("id", "h")),
        (("date(_timestamp) AS day",), "id LONG, day DATE", ("day",)),
        (("date(made) AS day",), "id LONG", ()),
        (("country",), "id LONG", ()),
        ((), "id LONG", ()),
    ],
    ids=["derived", "both", "its own column", "cannot be derived", "no such column", "no partitions"],
)
def test_a_load_follows_the_partitions_of_the_table(
    remembered: tuple[str, ...], schema: str, partition_by: tuple[str, ...]
) -> None:
    pipeline = Pipeline(Shaping(schema=schema))
    tables = pipeline.tables(None, remembered)
    assert tables.partition_by == partition_by
    assert set(partition_by) <= set(tables.rows.names)
    assert pipeline.tables(None).partition_by == (), "the table was dropped since"


def test_what_a_load_says_counts_more_than_what_the_table_says() -> None:
    pipeline = Pipeline(Shaping(schema="id LONG", partition_by=["hour(_timestamp) AS day"]))
    tables = pipeline.tables(None, ["date(_timestamp) AS day"])
    assert spelled_in(tables.rows, tables.partition_by) == ("hour(_timestamp) AS day",)


def test_a_partition_twice() -> None:
    with pytest.raises(ConfigError, match="twice"):
        Partitioning(["name", "name"], SCHEMA)
