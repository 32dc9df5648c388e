"""The record encoder in plain Python, used until the compiled encoder is loaded.

Most batches are plain: no headers, no null values, a key in all records or in none, nothing large. They are
encoded by column rather than by record: sizes, timestamps and values become lists of bytes, which are
interleaved and joined. Each step is a comprehension with table lookups, twice as fast as a loop over records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from millstream.model import Header
from millstream.wire.records.primitives import NULL_LENGTH, encode_varint

_LIMIT: Final = 4096
"""Numbers below this are in the tables."""
_NO_HEADERS: Final = b"\0"
_FEW: Final = 7
"""Up to this many records are encoded faster one by one."""
_RECORD_LIMIT: Final = _LIMIT - 16
"""The most bytes of key and value for which the record's size is in the table."""


class _Tables:
    """Encoded numbers, joined with the constant bytes that always precede or follow them."""

    def __init__(self) -> None:
        self.varints = [encode_varint(value) for value in range(_LIMIT)]
        self.field_sizes = [value + len(varint) for value, varint in enumerate(self.varints)]
        """The size of a field together with its length, by the field's size."""
        self.attributes_and_time = [b"\0" + varint for varint in self.varints]
        self.offset_and_no_key = [varint + NULL_LENGTH for varint in self.varints]
        self.no_headers_and_size = [_NO_HEADERS + varint for varint in self.varints]
        """The empty headers of one record, and the size of the next."""


@cache
def _tables() -> _Tables:
    """Made on first use, as that takes longer than importing this module should."""
    return _Tables()


def encode_records(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    timestamps: list[int],
    headers: Mapping[int, Sequence[Header]],
) -> bytes:
    """Encode the records of a batch: offsets count from 0, timestamps from the first record's.

    Without ``keys`` no record has one. ``headers`` maps the index of a record to its headers.
    """
    if keys is None:
        keys = [None] * len(values)
    if not headers and _FEW < len(values) <= _LIMIT and None not in values and _is_brief(timestamps):
        without_key = keys.count(None)
        if without_key == len(keys):
            return _encode_plain(None, values, timestamps)  # type: ignore[arg-type]
        if not without_key:
            return _encode_plain(keys, values, timestamps)  # type: ignore[arg-type]
    return _encode_any(keys, values, timestamps, headers)


def _is_brief(timestamps: list[int]) -> bool:
    first = timestamps[0]
    return min(timestamps) >= first and max(timestamps) - first < _LIMIT


def _encode_plain(keys: list[bytes] | None, values: list[bytes], timestamps: list[int]) -> bytes:
    """Encode records that all have a value, and all or none a key; ``_encode_any`` encodes large ones."""
    value_sizes = list(map(len, values))
    key_sizes = [] if keys is None else list(map(len, keys))
    if max(value_sizes) + max(key_sizes, default=0) > _RECORD_LIMIT:
        return _encode_any(keys or [None] * len(values), values, timestamps, {})
    tables = _tables()
    varints, field_sizes = tables.varints, tables.field_sizes
    base = timestamps[0]
    with_attributes = tables.attributes_and_time
    times = [with_attributes[timestamp - base] for timestamp in timestamps]
    offsets = (tables.offset_and_no_key if keys is None else varints)[: len(values)]
    fixed = zip(map(len, times), map(len, offsets), value_sizes, strict=True)
    sizes = [time + offset + field_sizes[value] + 1 for time, offset, value in fixed]
    value_columns: list[list[bytes]] = [[varints[size] for size in value_sizes], values]
    key_columns: list[list[bytes]] = []
    if keys is not None:
        sizes = [size + field_sizes[key] for size, key in zip(sizes, key_sizes, strict=True)]
        key_columns = [[varints[size] for size in key_sizes], keys]
    sizes_after_headers = [tables.no_headers_and_size[size] for size in sizes]
    return _interleave([sizes_after_headers, times, offsets, *key_columns, *value_columns])


def _interleave(columns: list[list[bytes]]) -> bytes:
    """Join the columns record by record. Empty headers end each record, and start the column after it."""
    width = len(columns)
    parts = [b""] * (width * len(columns[0]))
    for place, column in enumerate(columns):
        parts[place::width] = column
    parts[0] = parts[0][len(_NO_HEADERS) :]
    parts.append(_NO_HEADERS)
    return b"".join(parts)


def _encode_any(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Mapping[int, Sequence[Header]],
) -> bytes:
    base = timestamps[0]
    parts: list[bytes] = []
    for index, (key, value, timestamp) in enumerate(zip(keys, values, timestamps, strict=True)):
        body = (
            b"\0",
            encode_varint(timestamp - base),
            encode_varint(index),
            NULL_LENGTH if key is None else encode_varint(len(key)),
            key or b"",
            NULL_LENGTH if value is None else encode_varint(len(value)),
            value or b"",
            encode_headers(headers[index]) if index in headers else _NO_HEADERS,
        )
        parts.append(encode_varint(sum(map(len, body))))
        parts += body
    return b"".join(parts)


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Encode the headers at the end of a record: their count, then each name and value."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (NULL_LENGTH,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)
