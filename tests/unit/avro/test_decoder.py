"""Avro to Arrow: as fastavro reads it, over generated schemas; hostile bytes; several writers."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.avro.decoder import AvroDecoder, Decoded
from millstream.avro.schemas import SchemaError
from millstream.avro.targets import targets
from tests.unit.avro.schemas import as_arrow, tables, written

PREFIX = 5
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    keys = ("name", "type", "default")
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(keys, each, strict=False)) for each in fields],
    }


def decoded(schema: Any, values: list[bytes], writer: Any = None) -> tuple[AvroDecoder, Decoded]:
    decoder = AvroDecoder(targets(schema))
    entry = decoder.compile(schema if writer is None else writer)
    found = decoder.decode(pa.array(values, pa.binary()), np.full(len(values), entry), PREFIX)
    found.columns.validate(full=True)
    return decoder, found


def rows(schema: Any, values: list[bytes], writer: Any = None) -> list[Any]:
    decoder, found = decoded(schema, values, writer)
    assert [decoder.reason(code) for code in found.codes if code] == []
    made: list[Any] = found.columns.to_pylist()
    return made


@SLOW
@given(tables())
def test_it_reads_what_fastavro_wrote(table: tuple[Any, list[Any]]) -> None:
    schema, values = table
    _, found = decoded(schema, [written(schema, value) for value in values])
    assert not found.codes.any()
    kind = pa.struct(list(found.columns.schema))
    parsed = fastavro.parse_schema(schema)
    read = [
        fastavro.schemaless_reader(io.BytesIO(written(schema, value)[PREFIX:]), parsed) for value in values
    ]
    assert found.columns.to_pylist() == [as_arrow(each, kind) for each in read]


@SLOW
@given(tables(max_rows=3), st.data())
def test_hostile_bytes_are_an_error_of_their_record_only(table: tuple[Any, list[Any]], data: Any) -> None:
    schema, values = table
    good = [written(schema, value) for value in values]
    bad = [
        b"\0" * PREFIX + data.draw(st.binary(max_size=40)),
        *(each[: data.draw(st.integers(PREFIX, len(each)))] for each in good),
        *(data.draw(_changed(each)) for each in good),
    ]
    mixed = [one for pair in zip(bad, [*good, *good, *good], strict=False) for one in pair] or bad
    _, found = decoded(schema, mixed)
    clean = [place for place, value in enumerate(mixed) if value in good]
    assert not found.codes[clean].any()
    assert found.columns.num_rows == int((found.codes == 0).sum())


@st.composite
def _changed(draw: Any, value: bytes) -> bytes:
    changed = bytearray(value)
    if len(changed) > PREFIX:
        changed[draw(st.integers(PREFIX, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


def _long(number: int) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, {"type": "long"}, number)
    return file.getvalue()


ARRAY = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("int", b"", "f: the bytes end too early"),
        ("int", b"\x02\x02", "bytes are left over"),
        ("int", b"\xff" * 4, "f: the bytes end too early"),
        ("int", _long(2**31), "f: a number does not fit 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "f: a number does not fit 64 bits"),
        ("long", b"\xff" * 11, "f: a number does not fit 64 bits"),
        ("string", _long(-1), "f: a length is negative or longer than the value"),
        ("string", _long(2**62) + b"abc", "f: a length is negative or longer than the value"),
        ("string", _long(2) + b"\xc3(", "f: text is not UTF-8"),
        ("string", _long(3) + b"\xed\xa0\x80", "f: text is not UTF-8"),
        ("double", b"1234567", "f: the bytes end too early"),
        ("boolean", b"\x02", "f: a boolean is neither 0 nor 1"),
        (["null", "int"], _long(2), "an index of a union or an enum is not in the schema"),
        (ARRAY, _long(2**40), "a length is negative or longer than the value"),
        (ARRAY, _long(-(2**63)) + _long(0), "a length is negative or longer than the value"),
        (
            {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
            _long(2**40),
            "an array has too many items without bytes",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            _long(1) + b"\x64",
            "f: a number does not fit the decimal's precision",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            _long(2**62),
            "f: a timestamp does not fit 64 bits",
        ),
    ],
)
def test_a_malformed_value_says_what_is_wrong(kind: Any, body: bytes, reason: str) -> None:
    decoder, found = decoded(record(("f", kind)), [b"\0" * PREFIX + body])
    assert [decoder.reason(int(code)) for code in found.codes] == [reason]
    assert found.columns.num_rows == 0


def test_memory_grows_with_the_values() -> None:
    schema = record(("a", ARRAY), ("s", "string"), ("n", ["null", "string"]))
    values = [{"a": list(range(n)), "s": "é" * n * 7, "n": None if n % 2 else "x" * n} for n in range(300)]
    assert rows(schema, [written(schema, each) for each in values]) == values


def test_an_offset_into_the_array_and_an_empty_one() -> None:
    schema = record(("n", "long"))
    decoder = AvroDecoder(targets(schema))
    entry = decoder.compile(schema)
    values = pa.array([written(schema, {"n": n}) for n in range(5)], pa.binary()).slice(2, 2)
    found = decoder.decode(values, np.full(2, entry), PREFIX)
    assert found.columns.to_pylist() == [{"n": 2}, {"n": 3}]
    assert decoder.decode(pa.array([], pa.binary()), [], PREFIX).columns.num_rows == 0


# -- several writers


def test_numbers_are_widened() -> None:
    wide = record(("a", "long"), ("b", "float"), ("c", "double"), ("d", "double"), ("e", "double"))
    narrow = record(("a", "int"), ("b", "int"), ("c", "long"), ("d", "float"), ("e", "int"))
    value = {"a": -5, "b": 7, "c": 2**40, "d": 1.5, "e": -1}
    assert rows(wide, [written(narrow, value)], narrow) == [value]


def test_fields_are_matched_by_name_or_alias_and_others_skipped() -> None:
    reader = record(("b", "string"), ("new", "long"))
    reader["fields"][1]["aliases"] = ["old"]
    anything = ["null", "int", "string", {"type": "map", "values": ["null", "bytes", "double"]}]
    writer = record(
        ("x", anything),
        ("old", "int"),
        ("y", {"type": "array", "items": record(("p", "string"), ("q", anything), name="P")}),
        ("b", "bytes"),
        ("z", {"type": "fixed", "name": "F", "size": 3}),
    )
    value = {
        "x": {"k": 1.5, "l": b"3"},
        "old": 9,
        "y": [{"p": "r", "q": None}, {"p": "", "q": "s"}],
        "b": b"text",
        "z": b"123",
    }
    assert rows(reader, [written(writer, value)], writer) == [{"b": "text", "new": 9}]


def test_missing_fields_are_their_default_or_null() -> None:
    inner = record(("p", "int"), ("q", "string", "Q"), name="In")
    reader = record(
        ("id", "long"),
        ("i", "int", -3),
        ("s", "string", "é"),
        ("b", "bytes", "\u00ff"),
        ("n", ["null", "int"], None),
        ("u", ["int", "null"], 4),
        ("a", {"type": "array", "items": "int"}, [1, 2]),
        ("m", {"type": "map", "values": "double"}, {"k": 1}),
        ("r", inner, {"p": 5}),
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ("f", "float", 1),
        ("t", "boolean", True),
    )
    writer = record(("id", "int"))
    assert rows(reader, [written(writer, {"id": n}) for n in (1, 2)], writer) == [
        {
            "id": n, "i": -3, "s": "é", "b": b"\xff", "n": None, "u": 4, "a": [1, 2], "m": [("k", 1.0)],
            "r": {"p": 5, "q": "Q"}, "e": "B", "f": 1.0, "t": True,
        }
        for n in (1, 2)
    ]  # fmt: skip


def test_versions_are_mixed_in_one_batch_in_their_order() -> None:
    first, second = record(("a", "int")), record(("b", ["null", "string"], None), ("a", "long"))
    decoder = AvroDecoder(targets(second))
    entries = [decoder.compile(first), decoder.compile(second), -1]
    values = [written(first, {"a": 1}), written(second, {"a": 2, "b": "x"}), b"", written(first, {"a": 3})]
    order = np.array([entries[0], entries[1], entries[2], entries[0]])
    found = decoder.decode(pa.array(values, pa.binary()), order, PREFIX)
    assert found.columns.to_pylist() == [{"b": None, "a": 1}, {"b": "x", "a": 2}, {"b": None, "a": 3}]


@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        (record(("a", "string")), "a is of type string, which cannot be read as int64"),
        (record(("b", "long")), "it has no field a, and the column is NOT NULL"),
        (record(("a", ["int", "string"])), "a is a union of several types"),
        ({"type": "array", "items": "long"}, "it is not a record"),
        ({"type": "nonsense"}, "it is not an Avro schema"),
        (record(("a", "long"), ("r", ["null", "R"])), "contains itself"),
    ],
)
def test_a_writer_that_cannot_become_the_columns_is_refused(writer: Any, reason: str) -> None:
    decoder = AvroDecoder(targets(record(("a", "long"))))
    with pytest.raises(ValueError, match=reason):
        decoder.compile(writer)
    entry = decoder.compile(record(("a", "int")))  # as if nothing had been compiled before
    found = decoder.decode(pa.array([b"\0" * PREFIX + b"\x02"], pa.binary()), [entry], PREFIX)
    assert found.columns.to_pylist() == [{"a": 1}]


def test_null_for_a_column_that_is_not_null() -> None:
    writer = record(("a", ["null", "long"]))
    decoder, found = decoded(record(("a", "long")), [written(writer, {"a": n}) for n in (None, 1)], writer)
    assert [decoder.reason(int(code)) for code in found.codes if code] == [
        "a: null, but the column is NOT NULL"
    ]
    assert found.columns.to_pylist() == [{"a": 1}]


def test_a_uuid_of_sixteen_bytes_is_text() -> None:
    schema = record(("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}))
    body = bytes(range(16))
    assert rows(schema, [struct.pack(">bi", 0, 1) + body]) == [{"u": "00010203-0405-0607-0809-0a0b0c0d0e0f"}]


def test_columns_that_cannot_be() -> None:
    for kind, reason in (
        ("null", "f is of type null"),
        (["null", "int", "string"], "union of several types"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 1}, "39 digits"),
    ):
        with pytest.raises(SchemaError, match=reason):
            targets(record(("f", kind)))
