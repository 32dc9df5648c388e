"""Values as JSON, for jsonb columns and for records of a topic; record headers to and from JSON.

Bytes are base64; dates and times are text, numbers that JSON lacks (NaN) too; a map with keys that are not
text is a list of its entries. Decimals are exact numbers in jsonb, and text in records of a topic, where many
readers would round them. A header is ``{"key": …, "value": base64 or null}``. Where a header's name has the
character U+0000, which jsonb cannot hold, ``key`` is null and ``key_base64`` has it.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa


def is_headers(kind: pa.DataType) -> bool:
    """Whether a column holds the headers of records."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = kind.value_type
    if fields.num_fields != 2:
        return False
    key, value = fields.field(0), fields.field(1)
    return (
        (key.name, value.name) == ("key", "value") and key.type == pa.string() and value.type == pa.binary()
    )


def texts(array: pa.Array) -> pa.Array:
    """Each value as JSON; null where it is null."""
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.binary())
    prepare: Callable[[Any], Any] = _headers if is_headers(array.type) else plain
    encode = _exact if "decimal" in str(array.type) else lambda value: dumped(prepare(value))  # is faster
    encoded = [None if value is None else encode(value) for value in _values(array)]
    return pa.array(encoded, pa.binary())


def plain(value: Any) -> Any:
    """A value as JSON types."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _base64(value)
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _exact(value: Any) -> bytes:
    """A value as JSON in which decimals are numbers, with all of their digits."""
    match value:
        case Decimal():
            return f"{value:f}".encode()
        case dict():
            return b"{%s}" % b",".join(dumped(str(key)) + b":" + _exact(each) for key, each in value.items())
        case list() | tuple():
            return b"[%s]" % b",".join(map(_exact, value))
    return dumped(plain(value))


def headers_of(value: list[dict[str, str | None]] | None) -> list[dict[str, Any]] | None:
    """The headers of a record, from a jsonb value."""
    return None if value is None else [{"key": _key(each), "value": _bytes(each["value"])} for each in value]


def has_nul(value: Any) -> bool:
    """Whether any text in a value has the character U+0000."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(has_nul(key) or has_nul(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return any(map(has_nul, value))
    return False


def _values(array: pa.Array) -> list[Any]:
    if pa.types.is_map(array.type) and pa.types.is_string(array.type.key_type):
        return [None if value is None else dict(value) for value in array.to_pylist()]
    return list(array.to_pylist())


def dumped(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(value: list[dict[str, Any]]) -> list[dict[str, str | None]]:
    return [_header(each["key"], each["value"]) for each in value]


def _header(key: str | None, value: bytes | None) -> dict[str, str | None]:
    data = None if value is None else _base64(value)
    if key is not None and "\0" in key:
        return {"key": None, "key_base64": _base64(key.encode()), "value": data}
    return {"key": key, "value": data}


def _key(header: dict[str, str | None]) -> str | None:
    encoded = header.get("key_base64")
    return header["key"] if encoded is None else b64decode(encoded).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
