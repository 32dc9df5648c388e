"""Serializers and deserializers: Kafka's formats by name, Avro, callables, and what failing ones raise."""

from __future__ import annotations

import pickle
import struct
import sys
import uuid
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import serde
from millstream.cli.consume.options import VALUE_FORMATS
from millstream.consumer.decoding.arrow import column_type
from millstream.errors import ConfigError, DeserializationError, MissingExtraError, SerializationError

JAVA = "org.apache.kafka.common.serialization."
SOME_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

WIRE = [
    ("bytes", b"\x00\xff", b"\x00\xff"),
    ("string", "Köln", b"K\xc3\xb6ln"),
    ("short", -2, b"\xff\xfe"),
    ("int", 1, b"\x00\x00\x00\x01"),
    ("long", -1, b"\xff" * 8),
    ("float", 1.5, b"\x3f\xc0\x00\x00"),
    ("double", 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    ("boolean", True, b"\x01"),
    ("uuid", SOME_ID, b"12345678-1234-5678-1234-567812345678"),
    ("json", {"a": [1, "ö"]}, b'{"a":[1,"\xc3\xb6"]}'),
]


@pytest.mark.parametrize(("name", "value", "raw"), WIRE, ids=[row[0] for row in WIRE])
def test_wire_formats(name: str, value: object, raw: bytes) -> None:
    assert serde.serializer(name)(value) == raw
    assert serde.deserializer(name)(raw) == value


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("StringDeserializer", "string"),
        ("IntegerDeserializer", "int"),
        ("ByteArraySerializer", "bytes"),
        ("BytesSerializer", "bytes"),
        ("ByteBufferSerializer", "bytes"),
        ("UUIDSerializer", "uuid"),
        ("ListDeserializer", None),
        ("Deserializer", None),
    ],
)
def test_names_of_java_classes(java: str, name: str | None) -> None:
    assert serde.format_name(JAVA + java) == name


def test_format_names() -> None:
    assert serde.format_name("avro") == "avro"
    assert serde.format_name("nonsense") is None
    assert serde.format_name(bytes.decode) is None


@pytest.mark.parametrize("name", ["nonsense", "String", "", 7])
def test_unknown_names(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^value_deserializer is .* one of bytes, string"):
        serde.deserializer(name, "value_deserializer")
    with pytest.raises(ConfigError, match=r"^key_serializer is"):
        serde.serializer(name, "key_serializer")


def test_a_callable_is_taken_as_it_is() -> None:
    assert serde.deserializer(bytes.decode) is bytes.decode
    assert serde.serializer(str.encode) is str.encode


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_round_trip(number: int) -> None:
    assert serde.deserializer("long")(serde.serializer("long")(number)) == number


@given(st.floats(allow_nan=False))
def test_double_round_trip(number: float) -> None:
    assert serde.deserializer("double")(serde.serializer("double")(number)) == number


@given(st.binary(max_size=12))
def test_numbers_take_their_own_size_only(raw: bytes) -> None:
    for name, size in [("short", 2), ("int", 4), ("long", 8), ("float", 4), ("double", 8)]:
        if len(raw) == size:
            serde.deserializer(name)(raw)
        else:
            with pytest.raises(ValueError, match=f"instead of {size}"):
                serde.deserializer(name)(raw)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", "text"),
        ("string", b"bytes"),
        ("int", 2**31),
        ("int", 1.0),
        ("int", True),
        ("short", -40_000),
        ("double", "1.5"),
        ("boolean", 1),
        ("uuid", "12345678-1234-5678-1234-567812345678"),
        ("json", {1, 2}),
        ("json", float("nan")),
        ("string", "\ud800"),
    ],
)
def test_values_that_do_not_fit(name: str, value: object) -> None:
    with pytest.raises(
        SerializationError, match="the key of a record for orders cannot be serialized"
    ) as caught:
        serde.serialize(serde.serializer(name), value, "orders", "key")
    assert caught.value.__cause__ is not None


def test_a_serializer_must_return_bytes() -> None:
    with pytest.raises(SerializationError, match="returned str instead of bytes"):
        serde.serialize(lambda value: "text", 1, "orders")  # type: ignore[arg-type, return-value]


def test_null_stays_none() -> None:
    assert serde.serialize(serde.serializer("json"), None, "orders") is None
    assert serde.deserialize(serde.deserializer("int"), None, "orders", 0, 7) is None


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("string", b"\xff"),
        ("int", b"\x00"),
        ("json", b"{"),
        ("json", b"\xff\xfe"),
        ("uuid", b"not one"),
        ("boolean", b"\x02"),
        ("avro", b"\x00\x01"),
    ],
)
def test_bytes_that_cannot_be_read(name: str, raw: bytes) -> None:
    with pytest.raises(DeserializationError) as caught:
        serde.deserialize(serde.deserializer(name), raw, "orders", 3, 7)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.raw) == ("orders", 3, 7, raw)
    assert "the value of orders-3 at offset 7" in str(error)
    assert "Seek to offset 8" in str(error)


def test_any_exception_of_a_callable_is_wrapped() -> None:
    def broken(raw: bytes) -> object:
        raise KeyError(raw)

    with pytest.raises(DeserializationError) as caught:
        serde.deserialize(broken, b"x", "orders", 0, 0, "key")
    assert isinstance(caught.value.__cause__, KeyError)


# ---- Avro ----

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
ORDER = {"id": 7, "item": "flour"}


@pytest.mark.parametrize("schema", [SCHEMA, str(SCHEMA).replace("'", '"')], ids=["dict", "json"])
def test_bare_avro(schema: serde.Schema) -> None:
    raw = serde.AvroSerializer(schema)(ORDER)
    assert raw == b"\x0e\x0aflour"
    assert serde.AvroDeserializer(schema)(raw) == ORDER


def test_avro_container_needs_no_schema_to_read() -> None:
    raw = serde.AvroSerializer(SCHEMA, container=True)(ORDER)
    assert serde.deserializer("avro")(raw) == ORDER


def test_avro_reader_schema() -> None:
    wider: dict[str, Any] = SCHEMA | {
        "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": "double", "default": 0.0}]
    }
    reader = serde.AvroDeserializer(SCHEMA, reader_schema=wider)
    assert reader(serde.AvroSerializer(SCHEMA)(ORDER)) == {"id": 7, "price": 0.0}


def test_avro_left_over_bytes_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 bytes are left over"):
        serde.AvroDeserializer(SCHEMA)(b"\x0e\x0aflour\x00")


def test_avro_serializer_by_name_asks_for_a_schema() -> None:
    with pytest.raises(ConfigError, match=r"use serde\.AvroSerializer\(schema\)"):
        serde.serializer("avro", "value_serializer")


@pytest.mark.parametrize("schema", ["{", '{"type": "nonsense"}', {"type": "record"}])
def test_wrong_avro_schema(schema: serde.Schema) -> None:
    with pytest.raises(ConfigError, match="not an Avro schema"):
        serde.AvroSerializer(schema)


def test_avro_travels_to_other_processes() -> None:
    reader = pickle.loads(pickle.dumps(serde.AvroDeserializer(SCHEMA)))
    assert reader(b"\x0e\x0aflour") == ORDER


def test_avro_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'millstream\[avro\]'"):
        serde.deserializer("avro")


def test_numbers_are_as_struct_packs_them() -> None:
    assert serde.serializer("float")(2) == struct.pack(">f", 2.0)


@pytest.mark.parametrize("name", [name for name in serde.FORMATS if name not in ("bytes", "string")])
def test_the_command_line_reads_every_format(name: str) -> None:
    assert name in VALUE_FORMATS


@pytest.mark.parametrize("found", serde.FORMATS.values(), ids=lambda found: found.name)
def test_a_format_has_an_arrow_column_or_a_hint(found: serde.ValueFormat) -> None:
    if found.arrow:
        assert column_type(found.name, "value_deserializer") == getattr(pyarrow, found.arrow)()
    else:
        with pytest.raises(ConfigError, match=f"value_deserializer={found.name}"):
            column_type(found.name, "value_deserializer")
