"""Avro types as Arrow types, and Avro values as Arrow accepts them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.spark.load.pipeline.formats.parsed import BadColumnError, ConvertField, not_null

if TYPE_CHECKING:
    import pyarrow as pa

_NAMED: Final = ("record", "error", "enum", "fixed")


def columns(schema: Any) -> pa.Schema:
    """The Arrow schema of a record's fields; raises ConfigError for a type that is not supported."""
    import pyarrow as pa

    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise ConfigError(
            "avro_schema must be a record: its fields are the table's columns", setting="avro_schema"
        )
    types = _Types()
    return pa.schema(types.fields(schema, ""))


class _Types:
    """Walks a schema, and remembers its named types."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def fields(self, record: Mapping[str, Any], path: str) -> list[Any]:
        name = record["name"]
        if name in self._open:
            raise ConfigError(
                f"avro_schema: {path} contains itself, and a column cannot", setting="avro_schema"
            )
        self._named[name] = record
        self._open.append(name)
        found = [self._field(field, path) for field in record["fields"]]
        self._open.pop()
        return found

    def _field(self, field: Mapping[str, Any], path: str) -> Any:
        import pyarrow as pa

        where = f"{path}.{field['name']}" if path else field["name"]
        kind, nullable = self._type(field["type"], where)
        return pa.field(field["name"], kind, nullable=nullable)

    def _type(self, given: Any, path: str) -> tuple[Any, bool]:
        """The Arrow type, and whether it may be null."""
        if isinstance(given, list):
            others = [one for one in given if one != "null"]
            if len(others) != 1:
                raise ConfigError(
                    f"avro_schema: {path} is a union of several types: only null and one other fit",
                    setting="avro_schema",
                )
            return self._type(others[0], path)[0], len(others) < len(given)
        if isinstance(given, str):
            given = self._named.get(given, {"type": given})
        return self._of(given, path), False

    def _of(self, given: Mapping[str, Any], path: str) -> Any:
        import pyarrow as pa

        kind = given["type"]
        if kind in _NAMED:
            self._named[given["name"]] = given
        if isinstance(kind, dict | list):
            return self._type(kind, path)[0]
        if kind in ("record", "error"):
            return pa.struct(self.fields(given, path))
        if kind == "array":
            element, nullable = self._type(given["items"], f"{path}[]")
            return pa.list_(pa.field("element", element, nullable=nullable))
        if kind == "map":
            return pa.map_(pa.string(), self._type(given["values"], f"{path}{{}}")[0])
        return _scalar(given, path)


def _scalar(given: Mapping[str, Any], path: str) -> Any:
    import pyarrow as pa

    logical = given.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(given["precision"], given.get("scale", 0))
    instant, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    logical_types = {
        "date": pa.date32(),
        "timestamp-millis": instant,
        "timestamp-micros": instant,
        "local-timestamp-millis": local,
        "local-timestamp-micros": local,
        "uuid": pa.string(),
    }
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
    if logical in ("time-millis", "time-micros") or given["type"] not in types:
        raise ConfigError(
            f"avro_schema: {path} is of type {logical or given['type']}, which a column cannot be",
            setting="avro_schema",
        )
    return logical_types.get(str(logical), types[given["type"]])


# ---- values


def converter(field: Any) -> ConvertField:
    """The function that converts values of this column."""
    return not_null(field, _convert(field.type))


def _convert(kind: Any) -> ConvertField:
    import pyarrow as pa

    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        element = converter(kind.value_field)
        return lambda value, path: [element(one, f"{path}[{place}]") for place, one in enumerate(value)]
    if pa.types.is_struct(kind):
        fields = [(field.name, converter(field)) for field in kind]
        return lambda value, path: {name: read(value.get(name), f"{path}.{name}") for name, read in fields}
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    return lambda value, _: str(value) if isinstance(value, uuid.UUID) else value


def _map(kind: Any) -> ConvertField:
    item = converter(kind.item_field)
    return lambda value, path: [(key, item(one, f"{path}.{key}")) for key, one in value.items()]


def _integer(bits: int) -> ConvertField:
    limit = 1 << (bits - 1)

    def read(value: Any, path: str) -> Any:
        if not -limit <= value < limit:
            raise BadColumnError(path, f"{value} does not fit {bits} bits")
        return value

    return read


def _decimal(kind: Any) -> ConvertField:
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def read(value: Any, path: str) -> Any:
        if abs(value) >= limit:
            raise BadColumnError(path, f"{value} does not fit DECIMAL({kind.precision},{kind.scale})")
        return value

    return read
