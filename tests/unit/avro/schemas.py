"""Strategies: Avro schemas that columns can have, values of them, and values as Arrow returns them."""

from __future__ import annotations

import datetime
import io
import struct
import uuid
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
from hypothesis import strategies as st

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_INSTANTS = st.integers(-(10**12), 10**12)
_FLOATS = st.floats(width=32, allow_nan=False)

SCALARS: dict[str, tuple[dict[str, Any], st.SearchStrategy[Any]]] = {
    "boolean": ({"type": "boolean"}, st.booleans()),
    "int": ({"type": "int"}, st.integers(-(2**31), 2**31 - 1)),
    "long": ({"type": "long"}, st.integers(-(2**63), 2**63 - 1)),
    "float": ({"type": "float"}, _FLOATS),
    "double": ({"type": "double"}, st.floats(allow_nan=False)),
    "bytes": ({"type": "bytes"}, st.binary(max_size=20)),
    "string": ({"type": "string"}, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    "date": (
        {"type": "int", "logicalType": "date"},
        st.dates(datetime.date(1800, 1, 1), datetime.date(2200, 1, 1)),
    ),
    "time-millis": (
        {"type": "int", "logicalType": "time-millis"},
        st.integers(0, 86_399_999).map(lambda ms: (_EPOCH + datetime.timedelta(milliseconds=ms)).time()),
    ),
    "time-micros": (
        {"type": "long", "logicalType": "time-micros"},
        st.integers(0, 86_399_999_999).map(lambda us: (_EPOCH + datetime.timedelta(microseconds=us)).time()),
    ),
    "timestamp-millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        _INSTANTS.map(lambda ms: _EPOCH + datetime.timedelta(milliseconds=ms)),
    ),
    "timestamp-micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        _INSTANTS.map(lambda us: _EPOCH + datetime.timedelta(microseconds=us)),
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
}


@st.composite
def decimals(draw: Any, names: Any) -> tuple[Any, st.SearchStrategy[Any]]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    values = st.integers(-limit, limit).map(lambda whole: Decimal((whole < 0, _digits(whole), -scale)))
    more = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.booleans()):
        return {"type": "bytes", **more}, values
    return {"type": "fixed", "name": next(names), "size": 17, **more}, values


def _digits(whole: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(whole))))


@st.composite
def types(draw: Any, names: Any, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema with the strategy of its values."""
    kinds = ["scalar", "scalar", "scalar", "decimal", "enum", "fixed"]
    kind = draw(st.sampled_from([*kinds, "record", "array", "map"] if depth else kinds))
    if kind == "decimal":
        made = draw(decimals(names))
    elif kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
        made = {"type": "enum", "name": next(names), "symbols": symbols}, st.sampled_from(symbols)
    elif kind == "fixed":
        size = draw(st.integers(0, 20))
        made = {"type": "fixed", "name": next(names), "size": size}, st.binary(min_size=size, max_size=size)
    elif kind == "record":
        made = draw(records(names, depth - 1))
    elif kind == "array":
        items, values = draw(types(names, depth - 1))
        made = {"type": "array", "items": items}, st.lists(values, max_size=4)
    elif kind == "map":
        items, values = draw(types(names, depth - 1))
        made = (
            {"type": "map", "values": items},
            st.dictionaries(st.text("abc", max_size=3), values, max_size=3),
        )
    else:
        made = SCALARS[draw(st.sampled_from(sorted(SCALARS)))]
    schema, values = made
    nullable = draw(st.sampled_from([None, None, True, False]))
    if nullable is None:
        return schema, values
    return (["null", schema] if nullable else [schema, "null"]), st.none() | values


@st.composite
def records(draw: Any, names: Any, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    found = [draw(types(names, depth)) for _ in range(draw(st.integers(1, 4)))]
    fields = [{"name": f"f{place}", "type": schema} for place, (schema, _) in enumerate(found)]
    values = st.fixed_dictionaries({f"f{place}": each for place, (_, each) in enumerate(found)})
    return {"type": "record", "name": next(names), "fields": fields}, values


@st.composite
def tables(draw: Any, depth: int = 2, max_rows: int = 8) -> tuple[Any, list[Any]]:
    """A record's schema, and rows of it."""
    schema, values = draw(records((f"N{number}" for number in count()), depth))
    return schema, draw(st.lists(values, max_size=max_rows))


def written(schema: Any, value: Any, schema_id: int = 1) -> bytes:
    """A value in Confluent's format, written by fastavro."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return struct.pack(">bi", 0, schema_id) + file.getvalue()


def as_arrow(value: Any, kind: Any) -> Any:
    """A value of fastavro's as ``to_pylist`` returns it."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_arrow(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, as_arrow(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_list(kind):
        return [as_arrow(one, kind.value_type) for one in value]
    if isinstance(value, datetime.time):
        return value.replace(tzinfo=None)
    return str(value) if isinstance(value, uuid.UUID) else value
