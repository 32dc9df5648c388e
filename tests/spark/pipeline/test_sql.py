"""SQL over the good rows: row by row, or for each partition's range on its own."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from tests.spark.pipeline.conftest import Bench, rows

ORDERS: list[bytes | None] = [
    b'{"id":%d,"country":"%s"}' % (n, (b"Kenya", b"Norway")[n % 2]) for n in range(10)
]


def test_rows_keep_their_positions(bench: Bench) -> None:
    bench.send([*ORDERS, b"bad"])
    bench.send(ORDERS[:3], partition=1)
    sql = "SELECT id * 10 AS ten, upper(country) AS country, _topic, _partition, _offset FROM batch"
    sql += " WHERE id > 1"
    shaping: dict[str, Any] = {"schema": "id LONG, country STRING", "sql": sql}
    pipeline = Pipeline(Shaping(**shaping))
    tables = pipeline.tables(bench.spark)
    assert not pipeline.aggregates
    assert tables.rows.names == ["ten", "country", "_topic", "_partition", "_offset"]
    found = bench.load(**shaping)
    assert found.rows is not None and found.rows.schema == tables.rows
    assert sorted((row["_partition"], row["_offset"], row["ten"]) for row in rows(found.rows)) == [
        *((0, n, n * 10) for n in range(2, 10)),
        (1, 2, 20),
    ]
    assert [row["value"] for row in rows(found.rejected)] == [b"bad"]


def test_positions_that_no_record_has(bench: Bench) -> None:
    bench.send(ORDERS)
    sql = "SELECT id, _topic, _partition, _offset + 5 AS _offset FROM batch"
    with pytest.raises(TaskFailedError) as failed:
        bench.load(schema="id LONG", sql=sql)
    said = f"sql gives a row the position {bench.topic}, 0, 10, which is not that of any of its records"
    assert str(failed.value) == f"rows of the query: MisuseError: {said}"


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_an_aggregate_is_the_same_however_many_tasks_read_its_range(bench: Bench, cut: int) -> None:
    """A range is cut into a piece for each core: its rows are the same, and stamped with the range."""
    bench.send([*ORDERS, b"bad"])
    bench.send(ORDERS[:3], partition=1)
    pieces = [piece for one in bench.ranges() for piece in one.cut(cut)]
    shaping: dict[str, Any] = {
        "schema": "id LONG, country STRING",
        "checks": ["id != 9"],
        "sql": "SELECT country, count(*) AS customers FROM batch GROUP BY country",
    }
    pipeline = Pipeline(Shaping(**shaping))
    tables = pipeline.tables(bench.spark)
    assert pipeline.aggregates
    assert tables.rows.names == ["country", "customers", "_topic", "_partition", "_offset", "_timestamp"]
    found = bench.load(pieces[::-1], **shaping)
    assert found.rows is not None and found.rows.schema == tables.rows
    assert sorted(tuple(row.values()) for row in rows(found.rows)) == [
        ("Kenya", 2, bench.topic, 1, 0, None),
        ("Kenya", 5, bench.topic, 0, 0, None),
        ("Norway", 1, bench.topic, 1, 0, None),
        ("Norway", 4, bench.topic, 0, 0, None),
    ]
    assert [row["offset"] for row in rows(found.rejected)] == [9, 10]


def test_the_best_of_a_range_is_one_row(bench: Bench) -> None:
    bench.send(ORDERS)
    pieces = list(OffsetRange(bench.topic, 0, 2, 10).cut(3))
    found = bench.load(pieces, schema="id LONG", sql="SELECT id FROM batch ORDER BY id DESC LIMIT 1")
    assert [(row["id"], row["_offset"]) for row in rows(found.rows)] == [(9, 2)]


def test_counting_raw_records(bench: Bench) -> None:
    bench.send([b"Kenya", b"Norway", b"Kenya", None])
    sql = "SELECT CAST(value AS STRING) AS country, count(*) AS customers FROM batch GROUP BY 1 -- by country"
    found = bench.load(sql=sql, checks=["value IS NOT NULL"])
    assert sorted((row["country"], row["customers"]) for row in rows(found.rows)) == [
        ("Kenya", 2),
        ("Norway", 1),
    ]
    assert [row["reason"] for row in rows(found.rejected)] == ["check failed: value IS NOT NULL"]


def test_raw_records_row_by_row(bench: Bench) -> None:
    bench.send([b"Kenya"])
    sql = "SELECT topic, partition, offset, CAST(value AS STRING) AS country FROM batch;"
    assert rows(bench.load(sql=sql).rows) == [
        {"topic": bench.topic, "partition": 0, "offset": 0, "country": "Kenya"}
    ]
    assert bench.tables(sql=sql).positions == ("topic", "partition", "offset")


def test_the_topic_is_a_view_as_well(bench: Bench) -> None:
    bench.send([b"Kenya"])
    sql = "WITH all AS (SELECT * FROM orders) SELECT count(*) AS n FROM all JOIN batch USING (offset)"
    assert rows(bench.load(sql=sql, topics=["orders"]).rows)[0]["n"] == 1


def test_views_of_the_user_are_seen_and_left_alone(bench: Bench, spark: Any) -> None:
    bench.send([b"KE", b"NO"])
    spark.sql("SELECT 'KE' AS code, 'Kenya' AS name").createOrReplaceTempView("countries")
    spark.sql("SELECT 1 AS mine").createOrReplaceTempView("batch")
    sql = "SELECT name, topic, partition, offset FROM batch JOIN countries ON code = CAST(value AS STRING)"
    try:
        assert [row["name"] for row in rows(bench.load(sql=sql).rows)] == ["Kenya"]
        assert spark.table("batch").columns == ["mine"]
        views = {table.name for table in spark.catalog.listTables() if table.isTemporary}
        assert views == {"countries", "batch"}
    finally:
        spark.catalog.dropTempView("countries")
        spark.catalog.dropTempView("batch")


def test_records_are_counted_once(bench: Bench) -> None:
    bench.send([*ORDERS, b"bad"])
    shaping = Shaping(schema="id LONG", sql="SELECT sum(id) AS total FROM batch")
    results = bench.results(shaping)
    assert sum(result.records for result in results) == 11
    assert sum(result.written.rejected for result in results) == 1
    assert [result.piece for result in results if result.records] == [0]
    assert sum(result.written.rows for result in results) == 1, "no sum is made of the empty partition"


@pytest.mark.parametrize("sql", ["SELECT sum(id) AS total FROM batch", "SELECT * FROM batch"])
def test_nothing_good(bench: Bench, sql: str) -> None:
    bench.send([b"bad"])
    found = bench.load(schema="id LONG", sql=sql)
    assert [row["reason"] for row in rows(found.rejected)] == ["not JSON: expecting value at position 0"]
    assert sum(row.get("id") or 0 for row in rows(found.rows)) == 0


def test_partitioned_by_a_column_of_the_result(bench: Bench) -> None:
    bench.send(ORDERS)
    sql = "SELECT country, count(*) AS n FROM batch GROUP BY country"
    tables = bench.tables(schema="id LONG, country STRING", sql=sql, partition_by=["country"])
    assert tables.partition_by == ("country",)
