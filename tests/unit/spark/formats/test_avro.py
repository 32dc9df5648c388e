"""Avro values: types, prefixes, and bytes that are something else."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ConfigError
from millstream.serde import AvroSerializer
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats.avro import AvroParser, schema_text


def record(**fields: Any) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "row",
            "namespace": "shop",
            "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
        }
    )


EVERYTHING = record(
    a="boolean",
    b="int",
    c="long",
    d="float",
    e="double",
    f="bytes",
    g="string",
    h={"type": "enum", "name": "colour", "symbols": ["red", "green"]},
    i={"type": "fixed", "name": "two", "size": 2},
    j={"type": "array", "items": ["null", "long"]},
    k={"type": "map", "values": "double"},
    l={"type": "record", "name": "inner", "fields": [{"name": "x", "type": ["null", "int"]}]},
    m=["null", "inner"],
    n={"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    o={"type": "int", "logicalType": "date"},
    p={"type": "long", "logicalType": "timestamp-millis"},
    q={"type": "long", "logicalType": "local-timestamp-micros"},
    r={"type": "string", "logicalType": "uuid"},
)
VALUES = {
    "a": True,
    "b": -1,
    "c": 2**62,
    "d": 0.5,
    "e": 0.1,
    "f": b"\xff",
    "g": "é",
    "h": "green",
    "i": b"ab",
    "j": [1, None],
    "k": {"x": 1.5},
    "l": {"x": None},
    "m": {"x": 3},
    "n": Decimal("12.50"),
    "o": date(2024, 2, 29),
    "p": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "q": datetime(2024, 2, 29, 12),
    "r": uuid.UUID(int=7),
}


def test_every_type() -> None:
    parser = AvroParser(EVERYTHING, None, "none")
    assert ddl.render(parser.schema).replace("`", "") == (
        "a BOOLEAN NOT NULL, b INT NOT NULL, c LONG NOT NULL, d FLOAT NOT NULL, e DOUBLE NOT NULL, "
        "f BINARY NOT NULL, g STRING NOT NULL, h STRING NOT NULL, i BINARY NOT NULL, j ARRAY<LONG> NOT NULL, "
        "k MAP<STRING, DOUBLE> NOT NULL, l STRUCT<x: INT> NOT NULL, m STRUCT<x: INT>, "
        "n DECIMAL(6,2) NOT NULL, o DATE NOT NULL, p TIMESTAMP NOT NULL, q TIMESTAMP_NTZ NOT NULL, "
        "r STRING NOT NULL"
    )
    found = parser.parse(pa.array([AvroSerializer(EVERYTHING)(VALUES)], pa.binary()))
    assert found.bad == []
    assert found.rows.to_pylist() == [{**VALUES, "k": [("x", 1.5)], "r": str(uuid.UUID(int=7))}]


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_row_or_rejected(raw: bytes) -> None:
    parser = AvroParser(EVERYTHING, None, "none")
    found = parser.parse(pa.array([raw, AvroSerializer(EVERYTHING)(VALUES)], pa.binary()))
    assert len(found.bad) + found.rows.num_rows == 2


def test_a_decimal_with_too_many_digits() -> None:
    schema = record(n={"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    found = AvroParser(schema, None, "none").parse(pa.array([b"\x06\x7f\xff\xff"], pa.binary()))
    assert found.reasons == ["not Avro of this schema: n: a number does not fit the decimal's precision"]


ONE = record(n="long")


@pytest.mark.parametrize(
    ("prefix", "raw", "outcome"),
    [
        ("none", b"\x02", 1),
        ("confluent", b"\0\0\0\0\x07\x02", 1),
        ("confluent", b"\x02", "no Confluent prefix"),
        ("confluent", b"", "no Confluent prefix"),
        ("single-object", b"\xc3\x01" + b"12345678" + b"\x02", 1),
        ("single-object", b"\xc3\x02" + b"12345678" + b"\x02", "no single-object prefix"),
        ("none", b"\x02\x02", "not Avro of this schema: bytes are left over"),
        ("none", b"", "not Avro of this schema"),
        ("none", None, "null value"),
    ],
)
def test_prefixes_and_leftovers(prefix: str, raw: bytes | None, outcome: Any) -> None:
    found = AvroParser(ONE, None, prefix).parse(pa.array([raw], pa.binary()))
    if isinstance(outcome, int):
        assert found.rows.to_pylist() == [{"n": outcome}]
        assert found.bad == []
    else:
        assert found.bad == [0]
        assert found.reasons[0].startswith(outcome)


def test_a_part_of_the_fields() -> None:
    parser = AvroParser(record(a="long", b=["null", "string"]), ddl.parse("b STRING NOT NULL"), "none")
    write = AvroSerializer(record(a="long", b=["null", "string"]))
    found = parser.parse(pa.array([write({"a": 1, "b": text}) for text in ("x", None)], pa.binary()))
    assert found.rows.to_pylist() == [{"b": "x"}]
    assert found.reasons == ["not Avro of this schema: b: null, but the column is NOT NULL"]


@pytest.mark.parametrize(
    ("schema", "columns", "complaint"),
    [
        ('"long"', None, "must be a record"),
        (record(a=["int", "string"]), None, "a is a union of several types"),
        (record(a={"type": "long", "logicalType": "time-micros"}), None, "a is of type time-micros"),
        (record(a=["null", "shop.row"]), None, "a contains itself"),
        (record(a="long"), "b LONG", "the Avro record has no field b"),
        (record(a="long"), "a INT", "a is INT, but LONG in Avro"),
        ('{"type":"record"}', None, "not an Avro schema"),
    ],
)
def test_schemas_that_cannot_be(schema: str, columns: str | None, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        AvroParser(schema, None if columns is None else ddl.parse(columns), "none")


@pytest.mark.parametrize(("given", "complaint"), [("nowhere.avsc", "nor a file"), ("{", "not JSON")])
def test_schemas_that_cannot_be_read(given: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        schema_text(given)
