"""The columns that Avro is read into: their Arrow types, and the defaults of fields that a record lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.avro.schemas import SchemaError, Types, parsed

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_DECIMAL: Final = 38


@dataclass(frozen=True, slots=True)
class Target:
    """A column, or a part of one. Its ``parts`` are a struct's fields, an element, or a key and a value."""

    name: str
    path: str
    type: Any
    nullable: bool
    parts: tuple[Target, ...] = ()
    aliases: tuple[str, ...] = ()
    default: bytes | None = None
    """The default as Avro of the type ``avro``; None for a field without one."""
    avro: Any = None
    types: Types | None = None

    @property
    def field(self) -> pa.Field:
        """The column as a field of an Arrow schema."""
        import pyarrow as pa

        return pa.field(self.name, self.type, nullable=self.nullable)


def targets(schema: str | Mapping[str, Any]) -> tuple[Target, ...]:
    """Return the columns of a record's fields. Raises SchemaError that names the field."""
    found = parsed(schema)
    if not isinstance(found, Mapping) or found.get("type") != "record":
        raise SchemaError("it must be a record: its fields are the columns")
    return _Walk(Types(found)).fields(found, "")


class _Walk:
    def __init__(self, types: Types) -> None:
        self._types = types
        self._open: list[str] = []

    def fields(self, record: Mapping[str, Any], path: str) -> tuple[Target, ...]:
        name = record["name"]
        if name in self._open:
            raise SchemaError(f"{path} contains itself, and a column cannot")
        self._open.append(name)
        found = tuple(self._field(field, f"{path}.{field['name']}".strip(".")) for field in record["fields"])
        self._open.pop()
        return found

    def _field(self, field: Mapping[str, Any], path: str) -> Target:
        made = replace(self._target(field["name"], field["type"], path), aliases=(*field.get("aliases", ()),))
        if "default" not in field:
            return made
        default = self._types.encoded(field["type"], field["default"])
        return replace(made, default=default, avro=field["type"], types=self._types)

    def _target(self, name: str, schema: Any, path: str) -> Target:
        found = self._types.of(schema)
        if isinstance(found, list):
            others = [one for one in found if self._types.of(one) != {"type": "null"}]
            if len(others) != 1:
                raise SchemaError(f"{path} is a union of several types: only null and one other fit")
            return replace(self._target(name, others[0], path), nullable=len(others) < len(found))
        return self._of(name, found, path)

    def _of(self, name: str, found: Mapping[str, Any], path: str) -> Target:
        import pyarrow as pa

        kind = found["type"]
        if kind in ("record", "error"):
            parts = self.fields(found, path)
            return Target(name, path, pa.struct([each.field for each in parts]), False, parts)
        if kind == "array":
            element = self._target("element", found["items"], f"{path}[]")
            return Target(name, path, pa.list_(element.field), False, (element,))
        if kind == "map":
            key = Target("key", f"{path}{{}}", pa.string(), False)
            value = self._target("value", found["values"], f"{path}{{}}")
            value = replace(value, nullable=True)  # as Spark's tables have it
            return Target(name, path, pa.map_(key.type, value.type), False, (key, value))
        return Target(name, path, _scalar(found, path), False)


def _scalar(given: Mapping[str, Any], path: str) -> Any:
    import pyarrow as pa

    logical, kind = given.get("logicalType"), given["type"]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if given["precision"] > _LARGEST_DECIMAL:
            raise SchemaError(
                f"{path} has {given['precision']} digits: a column has {_LARGEST_DECIMAL} at most"
            )
        return pa.decimal128(given["precision"], given.get("scale", 0))
    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "fixed": pa.binary(),
        "enum": pa.string(),
    }
    if kind not in types:
        raise SchemaError(f"{path} is of type {kind}, which a column cannot be")
    return logical_types().get((kind, str(logical)), types[kind])


def logical_types() -> dict[tuple[str, str], Any]:
    """Return the Arrow types of logical types, by type and logical type. Others are their type."""
    import pyarrow as pa

    instant, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    return {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): instant,
        ("long", "timestamp-micros"): instant,
        ("long", "local-timestamp-millis"): local,
        ("long", "local-timestamp-micros"): local,
        ("string", "uuid"): pa.string(),
        ("fixed", "uuid"): pa.string(),
    }
