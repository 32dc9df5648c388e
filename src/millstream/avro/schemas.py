"""Avro schemas as fastavro parsed them: named types, what a type is, how small it can be, its defaults."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from millstream.extras import require

_NAMED: Final = ("record", "error", "enum", "fixed")
_PRIMITIVE: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_SMALLEST: Final = {"null": 0, "float": 4, "double": 8}
DEEPEST: Final = 64
"""How deep types may be nested."""


class SchemaError(ValueError):
    """A schema that columns cannot have; the message names the field."""


def parsed(schema: str | Mapping[str, Any] | list[Any]) -> Any:
    """Return the schema with full names everywhere. Raises ValueError for one that is not Avro."""
    module = require("fastavro.schema", "avro")
    try:
        given = json.loads(schema) if isinstance(schema, str) else schema
        return module.parse_schema(given)
    except (module.SchemaParseException, module.UnknownType, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema: {error}") from error


class Types:
    """Resolves the names of one schema."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        for each in schema if isinstance(schema, list) else [schema]:
            if not isinstance(each, Mapping):
                continue
            if each.get("type") in _NAMED:
                self._named[each["name"]] = each
            inner = [each.get("type"), each.get("items"), each.get("values")]
            for part in (*inner, *(field["type"] for field in each.get("fields", ()))):
                if isinstance(part, Mapping | list):
                    self._collect(part)

    def of(self, schema: Any) -> Any:
        """Return a type with its properties, or the list of a union's branches."""
        while True:
            if isinstance(schema, list):
                return schema
            kind = schema if isinstance(schema, str) else schema["type"]
            if isinstance(schema, str):
                schema = self._named.get(kind, {"type": kind})
                if "name" not in schema and kind not in _PRIMITIVE:
                    raise SchemaError(f"the type {kind} is not known")
                return schema
            if kind in _PRIMITIVE or kind in (*_NAMED, "array", "map"):
                return schema
            schema = kind

    def smallest(self, schema: Any, depth: int = 0) -> int:
        """Return how few bytes a value can have: an array of such values cannot have more than fit."""
        if depth > DEEPEST:
            raise SchemaError("it contains itself, and a column cannot")
        found = self.of(schema)
        if isinstance(found, list):
            return 1
        kind = found["type"]
        if kind in ("record", "error"):
            return sum(self.smallest(field["type"], depth + 1) for field in found["fields"])
        return int(found["size"]) if kind == "fixed" else _SMALLEST.get(kind, 1)

    def encoded(self, schema: Any, value: Any) -> bytes:
        """Return a field's default, which is JSON, as Avro. Raises SchemaError if it is none of this type."""
        found = self.of(schema)
        if isinstance(found, list):
            return _long(0) + self.encoded(found[0], value)
        try:
            return self._encoded(found, found["type"], value)
        except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            raise SchemaError(f"the default {value!r} is not of type {found['type']}") from error

    def _encoded(self, found: Mapping[str, Any], kind: str, value: Any) -> bytes:
        if kind in ("record", "error"):
            fields = found["fields"]
            return b"".join(
                self.encoded(each["type"], value[each["name"]] if each["name"] in value else each["default"])
                for each in fields
            )
        if kind == "array":
            items = b"".join(self.encoded(found["items"], each) for each in value)
            return (_long(len(value)) + items if value else b"") + b"\0"
        if kind == "map":
            pairs = [_sized(key.encode()) + self.encoded(found["values"], value[key]) for key in value]
            return (_long(len(pairs)) + b"".join(pairs) if pairs else b"") + b"\0"
        return _scalar(found, kind, value)


def _scalar(found: Mapping[str, Any], kind: str, value: Any) -> bytes:
    if kind in ("null", "boolean"):
        return b"" if kind == "null" else bytes([bool(value)])
    if kind in ("int", "long"):
        return _long(int(value))
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "enum":
        return _long(found["symbols"].index(value))
    if kind == "fixed":
        data: bytes = value.encode("latin-1")
        if len(data) != found["size"]:
            raise ValueError("its size differs")
        return data
    return _sized(value.encode("utf-8" if kind == "string" else "latin-1"))


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    data = bytearray()
    while rest > 127:
        data.append(rest & 127 | 128)
        rest >>= 7
    data.append(rest)
    return bytes(data)
