"""The same messages in kio, an independent implementation of Kafka's protocol: types, bytes and values.

kio has one class per version, with the fields of that version in the protocol's order. So the fields of both
sides are matched by their place, and names are only compared.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import io
import types
import typing
import uuid
from typing import Any

from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from millstream.wire.fields import Field
from millstream.wire.schema import Data, Message, Request, Struct
from tests.unit.wire.message_values import integers

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_type(message: type[Message], version: int) -> Any:
    """The class for one version; raises where kio has none, and the message needs another proof."""
    if issubclass(message, Data):
        name = "".join("_" + c.lower() if c.isupper() else c for c in message.__name__).strip("_")
        return load_entity_schema(name, version, EntityType.data)
    load = load_request_schema if issubclass(message, Request) else load_response_schema
    return load(message.api.key, version)  # type: ignore[attr-defined]


def kio_read(twin: Any, data: bytes) -> tuple[Any, int]:
    """The instance, and how many bytes it took."""
    return entity_reader(twin)(data, 0)


def kio_write(instance: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(instance))(buffer, instance)
    return buffer.getvalue()


# ----------------------------------------------------------------------------------------------- values


def assert_same(ours: Struct, theirs: Any, version: int) -> None:
    """Compare field by field."""
    fields = [field for field in ours.__fields__ if field.present(version)]
    twins = dataclasses.fields(theirs)
    assert [same_name(field.name) for field in fields] == [same_name(twin.name) for twin in twins]
    for field, twin in zip(fields, twins, strict=True):
        place = f"{type(ours).__name__}.{field.name} in version {version}"
        assert_same_value(getattr(ours, field.name), getattr(theirs, twin.name), field, version, place)


def same_name(name: str) -> str:
    """A name without its unit, which kio leaves out as its types have one."""
    return name.removesuffix("_ms")


def assert_same_value(ours: Any, theirs: Any, field: Field, version: int, place: str) -> None:
    if isinstance(theirs, tuple):
        assert isinstance(ours, list), place
        assert field.element is not None, place
        assert len(ours) == len(theirs), place
        for mine, other in zip(ours, theirs, strict=True):
            assert_same_value(mine, other, field.element, version, place)
    elif dataclasses.is_dataclass(theirs):
        if ours is None:  # a tagged struct that was not sent: kio has an instance of defaults in its place
            assert field.tag is not None, place
            assert field.struct_type is not None, place
            ours = field.struct_type()
        assert_same(ours, theirs, version)
    else:
        assert ours == plain(theirs, field), place


def plain(value: Any, field: Field) -> Any:
    """A simple value of kio's as ours."""
    if field.kind == "uuid":
        return bytes(16) if value is None else value.bytes
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, enum.Enum):
        return value.value
    if value is None and field.kind == "int64":
        return -1  # a time that is not set
    return value


# ------------------------------------------------------------------------------------------- strategies


@functools.cache
def kio_instances(twin: Any) -> st.SearchStrategy[Any]:
    """Instances of a class of kio's, from its own declarations."""
    return st.builds(twin, **{field.name: _field_values(field) for field in dataclasses.fields(twin)})


def _field_values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    values = _type_values(field.type, field.metadata.get("kafka_type", ""), field.name)
    return values if field.default is dataclasses.MISSING else values | st.just(field.default)


def _type_values(hint: Any, kafka_type: str, name: str) -> st.SearchStrategy[Any]:
    if isinstance(hint, types.UnionType):
        inner, _ = typing.get_args(hint)
        return st.none() | _type_values(inner, kafka_type, name)
    if typing.get_origin(hint) is tuple:
        return st.lists(_type_values(typing.get_args(hint)[0], kafka_type, name), max_size=2).map(tuple)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return kio_instances(hint)
    if kafka_type.startswith("int"):
        return integers(int(kafka_type.removeprefix("int")), "")
    return _SIMPLE[kafka_type]


_SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 0xFFFF),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.uuids() | st.just(uuid.UUID(int=0)).map(lambda _: None),
    "string": st.text(st.characters(codec="utf-8"), max_size=6) | st.just("é" * 100),
    "bytes": st.binary(max_size=6) | st.just(b"x" * 200),
    "records": st.binary(max_size=6) | st.just(b"x" * 200),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda ms: ms * _MILLISECOND),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda ms: ms * _MILLISECOND),
    "datetime_i64": st.integers(0, 4_000_000_000).map(lambda s: _EPOCH + datetime.timedelta(seconds=s)),
}
