"""Parses Avro values: a datum of a known schema, with or without one of the usual prefixes.

Values carry no schema of their own, so it must be given: ``avro_schema``, as JSON or as the path of a file.
The table's columns are the record's fields; with ``schema`` they are the columns named there, which must be
of the same types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.serde import AvroDeserializer
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats.avro_types import columns, converter
from millstream.spark.load.pipeline.formats.parsed import (
    NULL_VALUE,
    Parsed,
    RejectError,
    converted,
    merged,
    one_by_one,
)

if TYPE_CHECKING:
    import pyarrow as pa

_CONFLUENT_SIZE: Final = 5
_SINGLE_OBJECT_SIZE: Final = 10


def schema_text(given: str) -> str:
    """The Avro schema that the user gave, as JSON; a file is read. Raises ConfigError."""
    text = given
    if not given.lstrip().startswith(("{", "[", '"')):
        try:
            text = Path(given).read_text()
        except OSError as error:
            raise ConfigError(
                f"avro_schema: {given!r} is not JSON, nor a file: {error.strerror}", setting="avro_schema"
            ) from error
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(f"avro_schema is not JSON: {error}", setting="avro_schema") from error
    return text


class AvroParser:
    """Parses batches of Avro values, one by one."""

    def __init__(self, avro_schema: str, schema: pa.Schema | None, prefix: str) -> None:
        self._read = AvroDeserializer(avro_schema)
        self._prefix = prefix
        found = columns(self._read.schema)  # as fastavro parsed it, with full names everywhere
        self.schema = found if schema is None else _chosen(schema, found)
        self._columns = [(field.name, converter(field)) for field in self.schema]

    def parse(self, values: pa.BinaryArray) -> Parsed:
        found = one_by_one(self.schema, self.convert, values.to_pylist(), range(len(values)))
        rows, good = merged(self.schema, [(found.good, found.rows)], len(values))
        return Parsed(rows, good, found.bad, found.reasons)

    def convert(self, raw: bytes | None) -> list[Any]:
        """The values of the columns; raises RejectError."""
        if raw is None:
            raise RejectError(NULL_VALUE)
        try:
            datum = self._read(self._body(raw))
        except RejectError:
            raise
        except Exception as error:  # fastavro raises any kind of error for invalid bytes
            raise RejectError(f"not Avro of this schema: {str(error) or type(error).__name__}") from error
        return converted(datum, self._columns)

    def _body(self, raw: bytes) -> bytes:
        if self._prefix == "confluent":
            if len(raw) < _CONFLUENT_SIZE or raw[0] != 0:
                raise RejectError("no Confluent prefix: a zero byte and four of a schema id must come first")
            return raw[_CONFLUENT_SIZE:]
        if self._prefix == "single-object":
            if len(raw) < _SINGLE_OBJECT_SIZE or raw[:2] != b"\xc3\x01":
                raise RejectError("no single-object prefix: C3 01 and a fingerprint must come first")
            return raw[_SINGLE_OBJECT_SIZE:]
        return raw


def _chosen(schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The columns of ``schema``, if the Avro record has them, of the same types."""
    for field in schema:
        if field.name not in found.names:
            raise ConfigError(f"schema: the Avro record has no field {field.name}", setting="schema")
        kind = found.field(field.name).type
        if not kind.equals(field.type):
            raise ConfigError(
                f"schema: {field.name} is {ddl.type_name(field.type)}, but {ddl.type_name(kind)} in Avro",
                setting="schema",
            )
    return schema
