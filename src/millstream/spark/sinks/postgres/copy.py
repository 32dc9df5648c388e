"""Encodes record batches for PostgreSQL's binary COPY, a column at a time.

A row is the number of its fields, then for each field its length and its bytes, everything big-endian; a null
has the length -1. Each column becomes Arrow arrays of bytes (lengths, contents), and Arrow joins them row by
row: the data of the joined array is the stream. No loop over rows runs in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.sinks.json_values import texts
from millstream.spark.sinks.postgres.types import EPOCH_DAYS, EPOCH_MICROSECONDS, ColumnType, column_type

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 32 << 20
"""Limits of one piece of the stream: each piece is copied twice."""

Parts = list[Any]
"""Arrow arrays of bytes: joined row by row, they are the field."""


def encoded(batch: pa.RecordBatch, types: tuple[ColumnType, ...]) -> Iterator[memoryview]:
    """The rows of a batch in pieces, without the stream's header and trailer."""
    if not batch.num_rows:
        return
    step = max(1, min(_MOST_ROWS, _MOST_BYTES * batch.num_rows // (batch.nbytes + 1)))
    for start in range(0, batch.num_rows, step):
        yield _piece(batch.slice(start, step), types)


def _piece(batch: pa.RecordBatch, types: tuple[ColumnType, ...]) -> memoryview:
    count = np.full(batch.num_rows, len(types), ">i2")
    parts = [_fixed_width(count)]
    for column, kind in zip(batch.columns, types, strict=True):
        parts += _field(column, kind)
    return _data(_join(parts))


def _field(array: pa.Array, kind: ColumnType) -> Parts:
    return _ENCODERS[kind.form](array)


def _join(parts: Parts) -> Any:
    """The arrays side by side; the first of them has no nulls."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="skip")


def _data(array: Any) -> memoryview:
    """The bytes of all values, one after another."""
    offsets = _offsets(array)
    return memoryview(array.buffers()[2])[offsets[0] : offsets[-1]]


def _offsets(array: Any) -> Any:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _fixed_width(values: Any) -> Any:
    """Each item of a numpy array as its bytes."""
    width = values.dtype.itemsize
    offsets = np.arange(0, width * (len(values) + 1), width, dtype=np.int32)
    data = np.ascontiguousarray(values).view(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _lengths(lengths: Any, array: pa.Array) -> Any:
    """The four bytes before a field: its length, or -1 for a null."""
    if array.null_count:
        lengths = np.where(_valid(array), lengths, -1)
    return _fixed_width(np.asarray(lengths).astype(">i4"))


def _valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _where_valid(contents: Any, array: pa.Array) -> Any:
    """Nothing where the value is null."""
    if not array.null_count:
        return contents
    return pc.if_else(array.is_valid(), contents, pa.scalar(None, pa.binary()))


def _numbers(kind: str, array: pa.Array) -> Parts:
    filled = (
        pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    )
    return _fixed(filled.to_numpy(zero_copy_only=False), kind, array)


def _fixed(values: Any, kind: str, array: pa.Array) -> Parts:
    """A column of fixed-size values: without nulls, lengths and values are one array."""
    if array.null_count:
        contents = _fixed_width(values.astype(kind))
        return [_lengths(np.full(len(array), np.dtype(kind).itemsize), array), _where_valid(contents, array)]
    pairs = np.empty(len(values), np.dtype([("length", ">i4"), ("value", kind)]))
    pairs["length"] = np.dtype(kind).itemsize
    pairs["value"] = values
    return [_fixed_width(pairs)]


def _dates(array: pa.Array) -> Parts:
    days = pc.fill_null(array.cast(pa.date32()).cast(pa.int32()), 0).to_numpy()
    return _fixed(days - np.int32(EPOCH_DAYS), ">i4", array)


def _timestamps(array: pa.Array) -> Parts:
    microseconds = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns").cast(
        pa.int64()
    )
    return _fixed(pc.fill_null(microseconds, 0).to_numpy() - EPOCH_MICROSECONDS, ">i8", array)


def _bytes(array: pa.Array) -> Parts:
    contents = array.cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(contents), -1).to_numpy()
    return [_fixed_width(lengths.astype(">i4")), contents]


def _decimals(array: pa.Array) -> Parts:
    return _bytes(array.cast(pa.string()))


def _jsonb(array: pa.Array) -> Parts:
    contents = texts(array)
    version = _where_valid(_fixed_width(np.ones(len(array), np.uint8)), contents)
    lengths = pc.fill_null(pc.binary_length(contents), 0).to_numpy() + 1
    return [_lengths(lengths, contents), version, contents]


def _arrays(array: pa.Array) -> Parts:
    """Lists: the number of dimensions, whether there may be nulls, the elements' type, then the size and
    lower bound of the one dimension (an empty list has none), then the elements as fields.
    """
    offsets = array.offsets.to_numpy()
    element = column_type(array.type.value_type)
    elements = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    contents = _where_valid(_elements(elements, element, offsets - offsets[0]), array)
    head = np.empty(len(array), np.dtype([("dimensions", ">i4"), ("nulls", ">i4"), ("type", ">i4")]))
    head["dimensions"], head["nulls"], head["type"] = counts > 0, 1, element.oid
    size = np.empty(len(array), np.dtype([("size", ">i4"), ("lower", ">i4")]))
    size["size"], size["lower"] = counts, 1
    sizes = pc.if_else(pa.array(counts > 0), _fixed_width(size), pa.scalar(None, pa.binary()))
    lengths = 12 + 8 * (counts > 0) + pc.fill_null(pc.binary_length(contents), 0).to_numpy()
    return [
        _lengths(lengths, array),
        _where_valid(_fixed_width(head), array),
        _where_valid(sizes, array),
        contents,
    ]


def _elements(elements: pa.Array, kind: ColumnType, offsets: Any) -> Any:
    """The bytes of each list's elements."""
    if not len(elements):
        return pa.array([b""] * (len(offsets) - 1), pa.binary())
    fields = _join(_field(elements, kind))
    ends = np.ascontiguousarray(_offsets(fields)[offsets])
    buffers = [None, pa.py_buffer(ends), fields.buffers()[2]]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


_ENCODERS: Final[dict[str, Callable[[pa.Array], Parts]]] = {
    "bool": partial(_numbers, "?"),
    "int2": partial(_numbers, ">i2"),
    "int4": partial(_numbers, ">i4"),
    "int8": partial(_numbers, ">i8"),
    "float4": partial(_numbers, ">f4"),
    "float8": partial(_numbers, ">f8"),
    "text": _bytes,
    "bytea": _bytes,
    "date": _dates,
    "timestamp": _timestamps,
    "decimal": _decimals,
    "array": _arrays,
    "jsonb": _jsonb,
}
