"""Spark schemas as exact Arrow schemas, and batches from Spark cast to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import ddl

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: Any, what: str) -> pa.Schema:
    """The Arrow schema of a DataFrame's schema. Raises ConfigError for others, beginning with ``what``."""
    import pyarrow as pa

    fields: list[Any] = []
    for field in schema.jsonValue()["fields"]:
        name = field["name"]
        if name.lower() in (other.name.lower() for other in fields):
            raise ConfigError(
                f"{what} has two columns {name}: give one of them another name with AS", setting=what
            )
        fields.append(pa.field(name, _type(field["type"], name, what)))
    return pa.schema(fields)


def _type(given: Any, column: str, what: str) -> Any:
    import pyarrow as pa

    if isinstance(given, Mapping):
        if given["type"] == "array":
            return pa.list_(pa.field("element", _type(given["elementType"], column, what)))
        if given["type"] == "map":
            return pa.map_(_type(given["keyType"], column, what), _type(given["valueType"], column, what))
        if given["type"] == "struct":
            inner = [(field["name"], _type(field["type"], column, what)) for field in given["fields"]]
            return pa.struct(inner)
        given = given["type"]
    if given.startswith(("char(", "varchar(", "string")):
        return pa.string()
    try:
        return ddl.parse(f"x {given}").field(0).type
    except ConfigError as error:
        hint = ": CAST it to one" if given == "void" else ""
        raise ConfigError(
            f"{what} has a column {column} of type {given}, which a table cannot have{hint}", setting=what
        ) from error


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch from Spark in exactly this schema: time zones, list fields and nullability may differ."""
    import pyarrow as pa

    arrays = [cast(batch.column(place), field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cast(column: pa.Array, kind: Any) -> pa.Array:
    """The column in this type; itself if it has it."""
    return column if column.type.equals(kind) else column.cast(kind)
