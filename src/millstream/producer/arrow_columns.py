"""Reads Arrow columns as record columns: arrays for the compiled encoder, or lists for the plain one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from millstream import serde
from millstream.errors import MisuseError, UnknownTopicOrPartitionError
from millstream.model import Header
from millstream.producer.core.columns import BytesColumn, RecordColumns, column_of, headers_of, no_fields

if TYPE_CHECKING:
    from millstream.wire.records.encode import Longs

_HeaderLists = list[list[Header]]

COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp")


class ArrowReader:
    """Reads pieces of a table whose rows are records of one topic."""

    def __init__(
        self,
        topic: str,
        serialize_key: serde.Serializer | serde.WithTopic,
        serialize_value: serde.Serializer | serde.WithTopic,
    ) -> None:
        self._topic = topic
        self._serializers = {"key": serialize_key, "value": serialize_value}

    # -- as arrays

    def columns(self, piece: Any) -> RecordColumns:
        """Keys, values, headers and timestamps; a row without a timestamp gets the present time."""
        headers = self._header_lists(piece)
        keys, values = self._fields(piece, "key", headers), self._fields(piece, "value", headers)
        return RecordColumns(keys, values, _headers(headers, piece.num_rows), _timestamps(piece))

    def partitions(self, piece: Any) -> tuple[Longs | None, int | None]:
        """The partition of each row (-1: none), and the highest; None for both if no row has one."""
        column = _numbers(piece, "partition")
        if column is None or column.null_count == len(column):
            return None, None
        import pyarrow.compute

        bounds = pyarrow.compute.min_max(column).as_py()
        if bounds["min"] < 0:
            raise UnknownTopicOrPartitionError(f"topic {self._topic} has no partition {bounds['min']}")
        return column.fill_null(-1).to_numpy(zero_copy_only=False).copy(), bounds["max"]

    def _fields(self, piece: Any, name: str, headers: _HeaderLists | None) -> BytesColumn:
        array = _column(piece, name)
        if array is None:
            return no_fields(piece.num_rows)
        binary = _as_binary(array)
        if binary is None:
            return column_of(self._serialized(array, name, headers))
        return _binary_column(binary)

    def _serialized(self, array: Any, name: str, headers: _HeaderLists | None) -> list[bytes | None]:
        serialize = self._serializers[name]
        return [
            serde.serialize(serialize, value, self._topic, name, row)
            for value, row in zip(array.to_pylist(), headers or repeat(None), strict=False)
        ]

    def _header_lists(self, piece: Any) -> _HeaderLists | None:
        """The headers of each row, to which serializers may append; None without any."""
        array = _column(piece, "headers")
        if array is not None:
            return [[_header(entry) for entry in row or ()] for row in array.to_pylist()]
        if serde.WithTopic in map(type, self._serializers.values()):
            return [[] for _ in range(piece.num_rows)]
        return None

    # -- as lists

    def lists(self, piece: Any) -> tuple[Sequence[Any], ...]:
        """Lists of keys, values, headers, partitions and timestamps; None stands for what is missing."""
        headers = self._header_lists(piece)
        return (
            self._list(piece, "key", headers),
            self._list(piece, "value", headers),
            [()] * piece.num_rows if headers is None else headers,
            _list_of(_numbers(piece, "partition"), piece),
            _list_of(_checked_timestamps(piece), piece),
        )

    def _list(self, piece: Any, name: str, headers: _HeaderLists | None) -> list[bytes | None]:
        array = _column(piece, name)
        if array is None:
            return [None] * piece.num_rows
        binary = _as_binary(array)
        if binary is None:
            return self._serialized(array, name, headers)
        values: list[bytes | None] = binary.to_pylist()
        return values


def _column(piece: Any, name: str) -> Any:
    """A column, dictionary-decoded; None if it is missing or has the null type."""
    import pyarrow

    if name not in piece.schema.names:
        return None
    array = piece.column(name)
    if pyarrow.types.is_null(array.type):
        return None
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array


def _list_of(array: Any, piece: Any) -> list[Any]:
    values: list[Any] = [None] * piece.num_rows if array is None else array.to_pylist()
    return values


def _as_binary(array: Any) -> Any:
    """Any binary or string type as large_binary, without copying the bytes; None for other types."""
    import pyarrow

    kind, types = array.type, pyarrow.types
    if types.is_binary_view(kind) or types.is_string_view(kind):
        array = array.cast(pyarrow.binary() if types.is_binary_view(kind) else pyarrow.string())
    elif types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        array = array.cast(pyarrow.binary())
    elif not (
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
    ):
        return None
    return array.cast(pyarrow.large_binary())


def _binary_column(array: Any) -> BytesColumn:
    import numpy as np

    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    sizes = np.diff(places)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return BytesColumn(held, places[:-1], sizes)


# -- timestamps, partitions, headers


def _numbers(piece: Any, name: str) -> Any:
    import pyarrow

    array = _column(piece, name)
    if array is None:
        return None
    if not pyarrow.types.is_integer(array.type):
        raise MisuseError(f"the column {name} has the type {array.type}, not an integer type")
    return array.cast(pyarrow.int64())


def _checked_timestamps(piece: Any) -> Any:
    """Milliseconds since 1970, from integers or any Arrow timestamp."""
    import pyarrow
    import pyarrow.compute

    array = _column(piece, "timestamp")
    if array is None:
        return None
    if pyarrow.types.is_timestamp(array.type):
        array = array.cast(pyarrow.timestamp("ms"), safe=False).cast(pyarrow.int64())
    else:
        array = _numbers(piece, "timestamp")
    least = pyarrow.compute.min(array).as_py()
    if least is not None and least < 0:
        raise MisuseError(f"the timestamp {least!r} is not a number of milliseconds since 1970")
    return array


def _timestamps(piece: Any) -> Longs:
    import numpy as np

    now_ms = time.time_ns() // 1_000_000
    array = _checked_timestamps(piece)
    if array is None:
        return np.full(piece.num_rows, now_ms, np.int64)
    stamps: Longs = array.fill_null(now_ms).to_numpy(zero_copy_only=False)
    return stamps


def _headers(lists: _HeaderLists | None, rows: int) -> BytesColumn:
    if lists is None:
        return no_fields(rows)
    return headers_of({row: headers for row, headers in enumerate(lists) if headers}, rows)


def _header(entry: Any) -> Header:
    """A header from Arrow: a struct of two fields arrives as a dict, an entry of a map as a pair."""
    try:
        name, value = entry.values() if isinstance(entry, dict) else entry
    except (TypeError, ValueError):
        raise MisuseError(f"the header {entry!r} is not a pair of a name and a value") from None
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(name, str) or not isinstance(value, bytes | None):
        raise MisuseError(f"the header {(name, value)!r} must have a string as its name, and bytes or null")
    return name, value
