"""Maps Arrow types to PostgreSQL types, and finds values that a column cannot hold.

| Arrow | PostgreSQL |
|-|-|
| bool | boolean |
| int8, int16, uint8; int32, uint16; int64, uint32 | smallint; integer; bigint |
| float32; float64 | real; double precision |
| decimal(p, s) | numeric(p, s) |
| string | text |
| binary | bytea |
| date | date |
| timestamp, with and without a zone | timestamp with, without time zone (microseconds) |
| list of any of these | an array of it |
| struct, map, other lists (also a record's headers) | jsonb; bytes in it are base64 |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.sinks.base import SinkError
from millstream.spark.sinks.json_values import has_nul, is_headers

EPOCH_DAYS: Final = 10_957
"""Days from 1970, Arrow's epoch, to 2000, PostgreSQL's."""
EPOCH_MICROSECONDS: Final = EPOCH_DAYS * 86_400_000_000
_DATES: Final = (EPOCH_DAYS - 2_451_545, EPOCH_DAYS + 2_145_031_949)
_TIMESTAMPS: Final = (EPOCH_MICROSECONDS - 211_813_488_000_000_000, 2**63 - 1)
"""PostgreSQL's range, without its end; Arrow's range ends earlier."""

Mask = Any
"""A pyarrow.BooleanArray: true for values that a column cannot hold."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How PostgreSQL stores an Arrow type."""

    target: str
    """The column type, as PostgreSQL's ``format_type`` writes it."""
    staging: str
    """The type in a staging table; moving the rows casts it to ``target``."""
    oid: int
    """The oid of ``staging``; 0 for types that arrays cannot hold."""
    form: str
    """Which encoder of ``copy``."""


_BY_FORM: Final = {
    "bool": ColumnType("boolean", "boolean", 16, "bool"),
    "int2": ColumnType("smallint", "smallint", 21, "int2"),
    "int4": ColumnType("integer", "integer", 23, "int4"),
    "int8": ColumnType("bigint", "bigint", 20, "int8"),
    "float4": ColumnType("real", "real", 700, "float4"),
    "float8": ColumnType("double precision", "double precision", 701, "float8"),
    "text": ColumnType("text", "text", 25, "text"),
    "bytea": ColumnType("bytea", "bytea", 17, "bytea"),
    "date": ColumnType("date", "date", 1082, "date"),
    "timestamp": ColumnType("timestamp without time zone", "timestamp without time zone", 1114, "timestamp"),
    "timestamptz": ColumnType("timestamp with time zone", "timestamp with time zone", 1184, "timestamp"),
    "jsonb": ColumnType("jsonb", "jsonb", 0, "jsonb"),
}
_FORMS: Final = {
    pa.bool_(): "bool",
    pa.int8(): "int2",
    pa.int16(): "int2",
    pa.uint8(): "int2",
    pa.int32(): "int4",
    pa.uint16(): "int4",
    pa.int64(): "int8",
    pa.uint32(): "int8",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
    pa.date64(): "date",
}


def column_type(kind: pa.DataType) -> ColumnType:
    """How PostgreSQL stores an Arrow type; raises SinkError for an unsupported one."""
    if (form := _FORMS.get(kind)) is not None:
        return _BY_FORM[form]
    if pa.types.is_timestamp(kind):
        return _BY_FORM["timestamptz" if kind.tz else "timestamp"]
    if pa.types.is_decimal(kind):
        return ColumnType(f"numeric({kind.precision},{kind.scale})", "text", 25, "decimal")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _array_type(kind)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _BY_FORM["jsonb"]
    raise SinkError(
        f"PostgreSQL has no column for the type {kind}: cast it, for instance to STRING, in the SQL"
    )


def _array_type(kind: pa.DataType) -> ColumnType:
    element = column_type(kind.value_type)
    if not element.oid or element.form == "array":
        return _BY_FORM["jsonb"]
    return ColumnType(f"{element.target}[]", f"{element.staging}[]", 0, "array")


_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_WIDER: Final = {
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "real": {"double precision"},
    "text": {"character varying"},
}


def holds(column: str, wanted: str) -> bool:
    """Whether an existing column of type ``column`` can hold every value of type ``wanted``."""
    if column == wanted or column in _WIDER.get(wanted, ()):
        return True
    if (want := _NUMERIC.fullmatch(wanted)) is None:
        return False
    if (have := _NUMERIC.fullmatch(column)) is None:
        return column == "numeric"
    (precision, scale), (more, finer) = map(int, want.groups()), map(int, have.groups())
    return finer >= scale and more - finer >= precision - scale


def refusal(array: pa.Array, form: str) -> tuple[Mask, str] | None:
    """Which values PostgreSQL would refuse, and why; None where it accepts all."""
    found = _CHECKS[form](array) if form in _CHECKS else None
    if found is None or not pc.any(found[0]).as_py():
        return None
    return pc.fill_null(found[0], False), found[1]


def _text(array: pa.Array) -> tuple[Mask, str]:
    return pc.match_substring(array, "\0"), "has the character U+0000, which PostgreSQL's text cannot hold"


def _outside(numbers: pa.Array, bounds: tuple[int, int]) -> Mask:
    return pc.or_(pc.less(numbers, bounds[0]), pc.greater_equal(numbers, bounds[1]))


def _date(array: pa.Array) -> tuple[Mask, str]:
    days = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return _outside(days, _DATES), "is a date that PostgreSQL cannot hold"


def _timestamp(array: pa.Array) -> tuple[Mask, str]:
    numbers = array.cast(pa.int64())
    scale = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}[array.type.unit]
    bounds = -(-_TIMESTAMPS[0] // scale), _TIMESTAMPS[1] // scale
    return _outside(numbers, bounds), "is a point in time that PostgreSQL cannot hold"


def _array(array: pa.Array) -> tuple[Mask, str] | None:
    """A list is refused when one of its values is."""
    flat = array.flatten()
    found = refusal(flat, column_type(flat.type).form)
    if found is None:
        return None
    bad = pc.unique(pc.filter(pc.list_parent_indices(array), found[0]))
    rows = pa.array(range(len(array)), pa.int64())
    return pc.is_in(rows, value_set=bad.cast(pa.int64())), found[1]


def _json(array: pa.Array) -> tuple[Mask, str] | None:
    if array.null_count == len(array) or is_headers(array.type):
        return None
    mask = pa.array([has_nul(value) for value in array.to_pylist()], pa.bool_())
    return mask, "has the character U+0000, which PostgreSQL's jsonb cannot hold"


_CHECKS: Final[dict[str, Callable[[pa.Array], tuple[Mask, str] | None]]] = {
    "text": _text,
    "date": _date,
    "timestamp": _timestamp,
    "array": _array,
    "jsonb": _json,
}
