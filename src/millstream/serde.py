"""Serializers and deserializers of keys and values: a format by name (``FORMATS``), a callable, or an object.

A callable takes the value, or the bytes, alone. An object with a method ``serialize`` or ``deserialize`` is
called with topic, headers and data, in the order of Kafka's Java interfaces: so serdes that look a schema up
plug in. The method counts, also where the object can be called.

The named formats are those of Kafka's own serializers, so that programs in Java and in Python read each
other's records; the names of Kafka's Java classes are accepted too. Null is None and is never passed to a
serializer or deserializer. A new format is one ``ValueFormat`` in ``FORMATS``.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, overload, runtime_checkable

from millstream.errors import ConfigError, DeserializationError, RegistryError, SerializationError
from millstream.extras import require
from millstream.model import Header

if TYPE_CHECKING:
    from uuid import UUID

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


@runtime_checkable
class TopicSerializer(Protocol):
    """A serializer that takes topic and headers; headers that it appends are sent with the record."""

    def serialize(self, topic: str, headers: list[Header], value: Any, /) -> bytes: ...


@runtime_checkable
class TopicDeserializer(Protocol):
    """A deserializer that takes topic and headers."""

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class WithTopic:
    """The method of an object that takes topic, headers and data."""

    call: Callable[[str, Any, Any], Any]


SerializerChoice = str | Serializer | TopicSerializer
"""The name of a format, a callable to bytes, or an object that takes topic, headers and value."""
DeserializerChoice = str | Deserializer | TopicDeserializer
"""The name of a format, a callable from bytes, or an object that takes topic, headers and bytes."""
Schema = str | Mapping[str, Any] | Sequence[Any]
"""An Avro schema: as JSON, or as that JSON read into a dict (or a list, for a union)."""


# ---- the named formats ----


def _bytes_to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"it is a {type(value).__name__}, not bytes: name a serializer such as 'string' or 'json'"
    )


def _string_to_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"it is a {type(value).__name__}, not a str")
    return value.encode()


def _string_from_bytes(raw: bytes) -> str:
    return str(raw, "utf-8")


def _json_to_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _json_from_bytes(raw: bytes) -> Any:
    return json.loads(str(raw, "utf-8"))


def _uuid_to_bytes(value: Any) -> bytes:
    from uuid import UUID

    if not isinstance(value, UUID):
        raise TypeError(f"it is a {type(value).__name__}, not a UUID")
    return str(value).encode()


def _uuid_from_bytes(raw: bytes) -> UUID:
    from uuid import UUID

    return UUID(str(raw, "ascii"))


def _boolean_to_bytes(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"it is a {type(value).__name__}, not a bool")
    return b"\x01" if value else b"\x00"


def _boolean_from_bytes(raw: bytes) -> bool:
    if raw not in (b"\x00", b"\x01"):
        raise ValueError("it is not one byte of 0 or 1")
    return raw == b"\x01"


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A format with a name. ``poll_arrow``, the command line and the documentation derive from it.

    ``encoding`` and ``python`` describe the bytes and the deserialized value, for the documentation.
    ``serialize`` and ``deserialize`` are None for Avro, which needs a schema, or fastavro, to make them.
    """

    name: str
    encoding: str
    python: str
    serialize: Serializer | None
    deserialize: Deserializer | None
    arrow: str | None = None
    """The name of pyarrow's function for the type of ``poll_arrow``'s column; None without one."""
    layout: str | None = None
    """The layout of a number of fixed size, as ``struct`` and numpy write it."""


def _number(name: str, layout: str, python_type: type[float] | type[int], arrow: str) -> ValueFormat:
    """Return the format of a number of fixed size. A bool is no number here, and an int is a fine float."""
    packer = struct.Struct(layout)

    def to_bytes(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | python_type):
            raise TypeError(f"it is a {type(value).__name__}, not a number of type {python_type.__name__}")
        return packer.pack(value)

    def from_bytes(raw: bytes) -> Any:
        if len(raw) != packer.size:
            raise ValueError(f"it has {len(raw)} bytes instead of {packer.size}")
        return packer.unpack(raw)[0]

    kind = "IEEE 754, " if python_type is float else ""
    encoding = f"{packer.size} bytes, {kind}big-endian"
    return ValueFormat(name, encoding, python_type.__name__, to_bytes, from_bytes, arrow, layout)


FORMATS: Final = {
    each.name: each
    for each in (
        ValueFormat("bytes", "as they are", "bytes", _bytes_to_bytes, bytes, "binary"),
        ValueFormat("string", "UTF-8", "str", _string_to_bytes, _string_from_bytes, "string"),
        _number("short", ">h", int, "int16"),
        _number("int", ">i", int, "int32"),
        _number("long", ">q", int, "int64"),
        _number("float", ">f", float, "float32"),
        _number("double", ">d", float, "float64"),
        ValueFormat("boolean", "one byte, 0 or 1", "bool", _boolean_to_bytes, _boolean_from_bytes, "bool_"),
        ValueFormat("uuid", "its text", "uuid.UUID", _uuid_to_bytes, _uuid_from_bytes),
        ValueFormat("json", "JSON in UTF-8", "what json.loads returns", _json_to_bytes, _json_from_bytes),
        ValueFormat("avro", "an Avro object container with one datum", "what fastavro returns", None, None),
    )
}
"""The formats by name."""

_JAVA_CLASS = re.compile(r"org\.apache\.kafka\.common\.serialization\.(\w+?)(?:Des|S)erializer")
_JAVA_NAMES = {"bytearray": "bytes", "bytebuffer": "bytes", "integer": "int"}


# ---- Avro ----


class AvroSerializer:
    """Writes a value as one Avro datum: bare, or in an object container, which carries the schema."""

    def __init__(self, schema: Schema, *, container: bool = False) -> None:
        self._fastavro = _Fastavro()
        self.schema = self._fastavro.parse(schema)
        self.container = container

    def __call__(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        if self.container:
            self._fastavro.module.writer(buffer, self.schema, [value])
        else:
            self._fastavro.module.schemaless_writer(buffer, self.schema, value)
        return buffer.getvalue()


class AvroDeserializer:
    """Reads one Avro datum.

    With ``schema``, the bytes are a bare datum that was written with it. Without it, they are an object
    container, which carries its schema, with one datum inside. ``reader_schema`` is the schema
    of the returned value.
    """

    def __init__(self, schema: Schema | None = None, *, reader_schema: Schema | None = None) -> None:
        self._fastavro = _Fastavro()
        self.schema = None if schema is None else self._fastavro.parse(schema)
        self.reader_schema = None if reader_schema is None else self._fastavro.parse(reader_schema)

    def __call__(self, raw: bytes) -> Any:
        if self.schema is None:
            return self._read_container(raw)
        buffer = io.BytesIO(raw)
        datum = self._fastavro.module.schemaless_reader(buffer, self.schema, self.reader_schema)
        if buffer.tell() != len(raw):
            raise ValueError(
                f"{len(raw) - buffer.tell()} bytes are left over: it was written with another schema"
            )
        return datum

    def _read_container(self, raw: bytes) -> Any:
        if not raw.startswith(b"Obj\x01"):
            raise ValueError("it is not an Avro object container: for bare Avro use AvroDeserializer(schema)")
        data = list(self._fastavro.module.reader(io.BytesIO(raw), self.reader_schema))
        if len(data) != 1:
            raise ValueError(f"the Avro object container holds {len(data)} data instead of one")
        return data[0]


class _Fastavro:
    """The fastavro module, as an object that can be pickled."""

    def __init__(self) -> None:
        self.module: Any = require("fastavro", "avro")

    def __reduce__(self) -> tuple[type[_Fastavro], tuple[()]]:
        return _Fastavro, ()

    def parse(self, schema: Schema) -> Any:
        try:
            return self.module.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
        except (ValueError, self.module.schema.SchemaParseException) as error:
            raise ConfigError(f"this is not an Avro schema: {error!r}") from error


# ---- by name, callable or object ----


@overload
def serializer(choice: str | Serializer, setting: str = ...) -> Serializer: ...
@overload
def serializer(choice: TopicSerializer, setting: str = ...) -> WithTopic: ...
def serializer(choice: SerializerChoice, setting: str = "serializer") -> Serializer | WithTopic:
    """Return the serializer of a name, the callable, or an object's method. ``setting`` is for errors."""
    if isinstance(choice, TopicSerializer) and not isinstance(choice, type):
        return WithTopic(choice.serialize)
    if callable(choice):
        return choice
    found = _named(choice, setting)
    if found.serialize is None:
        raise ConfigError(
            f"{setting}: 'avro' needs a schema to write with: use serde.AvroSerializer(schema)",
            setting=setting,
        )
    return found.serialize


@overload
def deserializer(choice: str | Deserializer, setting: str = ...) -> Deserializer: ...
@overload
def deserializer(choice: TopicDeserializer, setting: str = ...) -> WithTopic: ...
def deserializer(choice: DeserializerChoice, setting: str = "deserializer") -> Deserializer | WithTopic:
    """Return the deserializer of a name, the callable, or an object's method. ``setting`` is for errors."""
    if isinstance(choice, TopicDeserializer) and not isinstance(choice, type):
        return WithTopic(choice.deserialize)
    if callable(choice):
        return choice
    return _named(choice, setting).deserialize or AvroDeserializer()


def format_name(choice: object) -> str | None:
    """Return the name of a format, also for a Java class; None for a callable or an unknown name."""
    if not isinstance(choice, str):
        return None
    if java := _JAVA_CLASS.fullmatch(choice):
        name = java[1].lower()
        choice = _JAVA_NAMES.get(name, name)
    return choice if choice in FORMATS else None


def _named(choice: object, setting: str) -> ValueFormat:
    name = format_name(choice)
    if name is None:
        known = ", ".join(FORMATS)
        raise ConfigError(
            f"{setting} is {choice!r}: it must be one of {known}, a callable, "
            f"or an object with the method {'des' if 'deserializer' in setting else 's'}erialize",
            setting=setting,
        )
    return FORMATS[name]


def serialize(
    serializer: Serializer | WithTopic,
    value: Any,
    topic: str,
    part: str = "value",
    headers: list[Header] | None = None,
) -> bytes | None:
    """Serialize a key or value (``part`` says which); None stays None. Raises SerializationError."""
    if value is None:
        return None
    try:
        if isinstance(serializer, WithTopic):
            raw = serializer.call(topic, [] if headers is None else headers, value)
        else:
            raw = serializer(value)
    except RegistryError:  # not about the value
        raise
    except Exception as error:  # a user's callable may raise anything
        raise SerializationError(
            f"the {part} of a record for {topic} cannot be serialized: {error}"
        ) from error
    if not isinstance(raw, bytes):
        got = type(raw).__name__
        raise SerializationError(f"the serializer of the {part} for {topic} returned {got} instead of bytes")
    return raw


def deserialization_error(
    error: Exception, raw: bytes, topic: str, partition: int, offset: int, part: str = "value"
) -> DeserializationError:
    """Return the error for a key or value (``part``) whose deserializer raised ``error``."""
    detail = (
        f"the {part} of {topic}-{partition} at offset {offset} cannot be deserialized: {error}. "
        f"Seek to offset {offset + 1} to skip it"
    )
    return DeserializationError(detail, topic, partition, offset, bytes(raw))


def deserialize(
    deserializer: Deserializer,
    raw: bytes | None,
    topic: str,
    partition: int,
    offset: int,
    part: str = "value",
) -> Any:
    """Deserialize a key or value (``part`` says which); None stays None. Raises DeserializationError."""
    if raw is None:
        return None
    try:
        return deserializer(raw)
    except Exception as error:  # a user's callable may raise anything
        raise deserialization_error(error, raw, topic, partition, offset, part) from error
