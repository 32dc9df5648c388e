"""Parses Avro values: a datum of a known schema, with or without one of the usual prefixes.

Values carry no schema of their own, so it must be given: ``avro_schema``, as JSON or as the path of a file.
The table's columns are the record's fields; with ``schema`` they are the columns named there, which must be
of the same types.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.avro.decoder import AvroDecoder
from millstream.avro.targets import Target, targets
from millstream.errors import ConfigError
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats.parsed import NULL_VALUE, Parsed, shortened

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIXES: Final = {
    "none": (b"", 0, ""),
    "confluent": (b"\0", 5, "no Confluent prefix: a zero byte and four of a schema id must come first"),
    "single-object": (
        b"\xc3\x01",
        10,
        "no single-object prefix: C3 01 and a fingerprint must come first",
    ),
}
"""How each prefix begins, how long it is, and the reason for values without it."""


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
    """Parses batches of Avro values that were all written with one schema."""

    def __init__(self, avro_schema: str, schema: pa.Schema | None, prefix: str) -> None:
        self._decoder = AvroDecoder(columns(avro_schema, schema))
        self._entry = self._decoder.compile(avro_schema)
        self._beginning, self._size, self._complaint = _PREFIXES[prefix]
        self.schema = self._decoder.schema

    def parse(self, values: pa.BinaryArray) -> Parsed:
        begins = starting_with(values, self._beginning, self._size)
        reasons = dict.fromkeys(np.flatnonzero(~begins).tolist(), self._complaint)
        return decode(self._decoder, values, np.where(begins, self._entry, -1), self._size, reasons)


def decode(
    decoder: AvroDecoder, values: pa.BinaryArray, entries: Any, prefixes: Any, reasons: dict[int, str]
) -> Parsed:
    """Decode values; ``reasons`` are why those with a negative entry are rejected, by index."""
    present = values.is_valid().to_numpy(zero_copy_only=False)
    found = decoder.decode(values, np.where(present, entries, -1), prefixes)
    wrong = found.codes != 0
    said = {place: decoder.reason(int(found.codes[place])) for place in np.flatnonzero(wrong).tolist()}
    reasons |= {place: shortened(f"not Avro of this schema: {why}") for place, why in said.items()}
    reasons |= dict.fromkeys(np.flatnonzero(~present).tolist(), NULL_VALUE)
    bad = sorted(reasons)
    if not bad:
        return Parsed(found.columns, None, [], [])
    good = np.ones(len(values), np.bool_)
    good[bad] = False
    return Parsed(found.columns, np.flatnonzero(good), bad, [reasons[place] for place in bad])


def starting_with(values: pa.BinaryArray, beginning: bytes, size: int) -> Any:
    """For each value whether it has at least ``size`` bytes, and begins with these."""
    import pyarrow.compute as pc

    if not size:
        return np.ones(len(values), np.bool_)
    found = pc.and_(pc.greater_equal(pc.binary_length(values), size), pc.starts_with(values, beginning))
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def columns(avro_schema: str, schema: pa.Schema | None) -> tuple[Target, ...]:
    """The columns of a record's fields, or those that ``schema`` names. Raises ConfigError."""
    try:
        found = targets(avro_schema)
    except ValueError as error:
        raise ConfigError(f"avro_schema: {error}", setting="avro_schema") from error
    for target in found:
        _check(target)
    return found if schema is None else _chosen(schema, {each.name: each for each in found})


def _check(target: Target) -> None:
    import pyarrow as pa

    if pa.types.is_time(target.type):
        unit = {"ms": "millis", "us": "micros"}[target.type.unit]
        raise ConfigError(
            f"avro_schema: {target.path} is of type time-{unit}, which a column cannot be",
            setting="avro_schema",
        )
    for part in target.parts:
        _check(part)


def _chosen(schema: pa.Schema, found: dict[str, Target]) -> tuple[Target, ...]:
    """The columns of ``schema``, if the Avro record has them, of the same types."""
    for field in schema:
        if field.name not in found:
            raise ConfigError(f"schema: the Avro record has no field {field.name}", setting="schema")
        kind = found[field.name].type
        if not kind.equals(field.type):
            raise ConfigError(
                f"schema: {field.name} is {ddl.type_name(field.type)}, but {ddl.type_name(kind)} in Avro",
                setting="schema",
            )
    return tuple(replace(found[field.name], nullable=field.nullable) for field in schema)
