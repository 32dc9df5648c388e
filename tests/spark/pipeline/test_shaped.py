"""Records with a schema: good rows with their types, the others with their bytes and the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.errors import ConfigError
from millstream.serde import AvroSerializer
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from tests.spark.pipeline.conftest import Bench, rows
from tests.spark.pipeline.file_writer import FileWriter, read

ORDERS: list[bytes | None] = [
    b'{"id":1,"price":2.5,"tags":["a",null],"at":"2024-02-29T12:00:00+01:00","d":"1.50"}',
    b'{"id":2,"price":-1}',
    b'{"id":3,"price":"abc"}',
    None,
    b"nonsense",
    b'{"price":1}',
    b'{"id":4,"price":null}',
    b'{"id":5,"price":7,"more":{"ignored":true}}',
]
SCHEMA = "id LONG NOT NULL, price DOUBLE, tags ARRAY<STRING>, at TIMESTAMP, d DECIMAL(10,2)"
REASONS = {
    1: "check failed: price > 0",
    2: 'price: expected DOUBLE, got string "abc"',
    3: "null value",
    4: "not JSON: expecting value at position 0",
    5: "id: null, but the column is NOT NULL",
    6: "check failed: price > 0",
}


@pytest.mark.parametrize("check", ["price > 0", "price + 0 > 0"], ids=["fused", "frames"])
def test_json(bench: Bench, check: str) -> None:
    bench.send(ORDERS, headers=[("h", b"1")])
    bench.send(ORDERS, partition=1)
    found = bench.load(schema=SCHEMA, checks=[check])
    assert found.rows is not None and found.rejected is not None
    tables = bench.tables(schema=SCHEMA, checks=[check])
    assert found.rows.schema == tables.rows
    assert found.rejected.schema == tables.rejected
    assert [(row["id"], row["_partition"], row["_offset"]) for row in rows(found.rows)] == [
        *((1, 0, 0), (5, 0, 7), (1, 1, 0), (5, 1, 7)),
    ]
    first = rows(found.rows)[0]
    assert (first["price"], first["tags"], first["d"]) == (2.5, ["a", None], Decimal("1.50"))
    assert first["at"] == datetime(2024, 2, 29, 11, tzinfo=UTC)
    assert first["_topic"] == bench.topic and first["_timestamp"].tzinfo is not None
    for partition in (0, 1):
        rejected = [row for row in rows(found.rejected) if row["partition"] == partition]
        assert {row["offset"]: row["reason"] for row in rejected} == {
            offset: reason.replace("price > 0", check) for offset, reason in REASONS.items()
        }
        assert {row["offset"]: row["value"] for row in rejected} == {
            offset: ORDERS[offset] for offset in REASONS
        }
        assert rejected[0]["key"] == b"k1"
        assert rejected[0]["headers"] == (None if partition else [{"key": "h", "value": b"1"}])
        assert rejected[0]["rejected_at"] > rejected[0]["timestamp"]


def test_all_failed_checks_are_named(bench: Bench) -> None:
    bench.send([b'{"a":1,"b":1}', b'{"a":5,"b":null}', b'{"a":5,"b":5}'])
    for checks in (["a > 1", "b > 1"], ["a > 1", "abs(b) > 1"]):
        found = bench.load(schema="a LONG, b LONG", checks=checks)
        assert [row["reason"] for row in rows(found.rejected)] == [
            f"check failed: a > 1; check failed: {checks[1]}",
            f"check failed: {checks[1]}",
        ]


def test_both_routes_give_the_same_tables(bench: Bench) -> None:
    """Every type, and nulls in each: through Spark and past it."""
    schema = (
        "a BOOLEAN, b BYTE, c SHORT, d INT, e LONG, f FLOAT, g DOUBLE, h DECIMAL(10,2), i STRING, j BINARY, "
        "k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<LONG>, o MAP<STRING, DOUBLE>, "
        "p STRUCT<x: INT, y: ARRAY<STRUCT<z: DATE>>>, q LONG NOT NULL"
    )
    full = (
        b'{"a":true,"b":-1,"c":2,"d":3,"e":4,"f":0.1,"g":0.1,"h":1.25,"i":"\xc3\xa9","j":"YWJj",'
        b'"k":"2024-02-29","l":"2024-02-29T12:00:00.123456Z","m":"2024-02-29T12:00:00.5","n":[1,null],'
        b'"o":{"a":1,"b":null},"p":{"x":1,"y":[{"z":"2024-01-01"},null]},"q":1}'
    )
    bench.send([full, b'{"q":2}', b"{}", full.replace(b"true", b"1")])
    fused = bench.load(schema=schema, checks=["q > 0"], partition_by=["date(l) AS day", "e"])
    bench.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # which must not matter
    try:
        frames = bench.load(schema=schema, checks=["abs(q) > 0"], partition_by=["date(l) AS day", "e"])
    finally:
        bench.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert fused.rows is not None and frames.rows is not None
    assert fused.rows.num_rows == 2
    assert fused.rows.schema == frames.rows.schema
    assert rows(fused.rows) == rows(frames.rows)
    assert [{**row, "rejected_at": None} for row in rows(fused.rejected)] == [
        {**row, "rejected_at": None} for row in rows(frames.rejected)
    ]


def test_a_raw_table_can_be_checked(bench: Bench) -> None:
    bench.send([b"a", None])
    for check in ("value IS NOT NULL", "length(value) > 0"):
        found = bench.load(checks=[check])
        assert [row["offset"] for row in rows(found.rows)] == [0]
        assert [(row["offset"], row["reason"]) for row in rows(found.rejected)] == [
            (1, f"check failed: {check}")
        ]


def test_csv(bench: Bench) -> None:
    bench.send([b'1;"a;b";', b"2;;2024-01-01", b"x;y", b"3;z;soon"])
    found = bench.load(value_format="csv", schema="id INT, name STRING, day DATE", csv_delimiter=";")
    assert [(row["id"], row["name"], row["day"]) for row in rows(found.rows)] == [
        (1, "a;b", None),
        (2, None, date(2024, 1, 1)),
    ]
    assert [row["reason"] for row in rows(found.rejected)] == [
        "expected 3 fields, got 2",
        'day: expected DATE, got string "soon"',
    ]


AVRO = (
    '{"type":"record","name":"order","fields":[{"name":"id","type":"long"},'
    '{"name":"price","type":["null","double"]}]}'
)


def test_avro(bench: Bench, tmp_path: Any) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(AVRO)
    write = AvroSerializer(AVRO)
    bench.send(
        [b"\0\0\0\0\7" + write({"id": 1, "price": 2.5}), write({"id": 1, "price": None}), b"\0\0\0\0\7\xff"]
    )
    found = bench.load(avro_schema=str(file), avro_prefix="confluent", checks=["price > 0"])
    assert [(row["id"], row["price"]) for row in rows(found.rows)] == [(1, 2.5)]
    assert [row["reason"].partition(":")[0] for row in rows(found.rejected)] == [
        "no Confluent prefix",
        "not Avro of this schema",
    ]


@pytest.mark.parametrize(
    ("shaping", "complaint"),
    [
        ({"checks": ["abs(prize) > 0"]}, "check .abs.prize. > 0.: .*prize"),
        ({"checks": ["price >"]}, "check 'price >': .*"),
        ({"checks": ["price + 1"]}, r"check 'price \+ 1': .*(?i:boolean)"),
        ({"checks": ["count(*) > 0"]}, "check 'count.*"),
        ({"sql": "SELECT nothing FROM batch"}, "sql: .*nothing"),
        ({"sql": "SELECT * FROM nowhere"}, "sql: .*nowhere"),
        ({"sql": "DROP TABLE batch"}, "sql: .*"),
        ({"sql": "SELECT NULL AS x FROM batch"}, "sql: the result has a column x of type void.*CAST"),
        ({"sql": "SELECT _offset FROM batch"}, "sql keeps _offset but not _partition, _topic"),
        ({"sql": "SELECT 1 AS a, 2 AS A"}, "sql: the result has two columns A"),
        (
            {
                "sql": "SELECT id, _topic, _partition, _offset + 1L AS _offset FROM batch",
                "checks": ["abs(x) > 0"],
            },
            "check",
        ),
        (
            {"sql": "SELECT id, _topic, _partition, 'x' AS _offset FROM batch"},
            "sql: _offset must keep its type",
        ),
        (
            {"sql": "SELECT 1 AS one FROM batch", "partition_by": ["price"]},
            "partition_by: there is no column",
        ),
    ],
)
def test_what_spark_finds_wrong(spark: Any, shaping: dict[str, Any], complaint: str) -> None:
    pipeline = Pipeline(Shaping(schema="id LONG, price DOUBLE", **shaping))
    assert pipeline.needs_spark_for_tables
    with pytest.raises(ConfigError, match=f"^{complaint}") as refused:
        pipeline.tables(spark)
    assert "\n" not in str(refused.value)
    assert "SQLSTATE" not in str(refused.value)


class PickyWriter(FileWriter):
    """Its tables have no room for the letter x."""

    def refusals(self, batch: pa.RecordBatch) -> pa.StringArray:
        found = pc.match_substring(batch.column("name"), "x")
        return pc.if_else(found, "name has an x", pa.scalar(None, pa.string()))


@pytest.mark.parametrize("check", ["id > 0", "abs(id) > 0"], ids=["fused", "frames"])
def test_what_the_sink_refuses_is_rejected(bench: Bench, check: str) -> None:
    bench.send([b'{"id":1,"name":"a"}', b'{"id":2,"name":"x"}', b'{"id":0,"name":"x"}', b'{"id":3}'])
    pieces = list(bench.ranges())
    pipeline = Pipeline(Shaping(schema="id LONG, name STRING", checks=[check]))
    writer = PickyWriter(str(bench.directory))
    found = read(
        result.written for result in pipeline.run(bench.spark, bench.settings, pieces, writer, "tag")
    )
    assert [row["id"] for row in rows(found.rows)] == [1, 3]
    assert [(row["offset"], row["reason"]) for row in rows(found.rejected)] == [
        (1, "name has an x"),
        (2, f"check failed: {check}"),
    ]
