"""Confluent's wire format: which schema a key or value was written with.

| bytes | the schema |
|-|-|
| 0, then four bytes | an id, big-endian |
| 1, then sixteen bytes | a GUID |

They come before the data, or alone in the header ``__key_schema_id`` or ``__value_schema_id``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from millstream.model import Header

_ID: Final = struct.Struct(">bi")
_GUID_BYTES: Final = 17


def header_name(part: str) -> str:
    """Return the header that holds the schema of a key or value (``part``)."""
    return f"__{part}_schema_id"


def with_id(schema_id: int, payload: bytes) -> bytes:
    """Put a schema's id before the data."""
    return _ID.pack(0, schema_id) + payload


def split(part: str, headers: Sequence[Header], data: bytes) -> tuple[int | UUID, bytes]:
    """Return the schema's id or GUID, and the data. Raises ValueError for bytes without either.

    The last header of the name counts, as in Kafka's ``lastHeader``.
    """
    name = header_name(part)
    for header, value in reversed(headers):
        if header == name and value:
            schema, length = _schema(value)
            if length != len(value):
                raise ValueError(f"the header {name} has {len(value)} bytes instead of {length}")
            return schema, data
    schema, length = _schema(data)
    return schema, data[length:]


def _schema(data: bytes) -> tuple[int | UUID, int]:
    """Read the schema at the start of ``data``; returns it with its length."""
    magic = data[0] if data else None
    if magic == 0 and len(data) >= _ID.size:
        return _ID.unpack_from(data)[1], _ID.size
    if magic == 1 and len(data) >= _GUID_BYTES:
        return UUID(bytes=bytes(data[1:_GUID_BYTES])), _GUID_BYTES
    raise ValueError(
        "it does not start with a schema's id (byte 0 and four more) or GUID (byte 1 and sixteen more): it "
        "was written without a schema registry"
    )
