"""Decodes records into the columns of a scan.

A value of a simple format is the column ``value`` of ``poll_arrow``. The fields of a JSON, CSV or Avro value
are columns of their own, and those of the record follow with an underscore, as in the table of a load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer.decoding.arrow import to_record_batch
from millstream.consumer.decoding.columns import Columns
from millstream.consumer.fetching.drain import Deserializers, deserialize
from millstream.errors import ConfigError, DeserializationError, RegistryError
from millstream.serde import FORMATS, deserializer, format_name
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.settings import Shaping
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.spark.load.pipeline.formats.parsed import Parsed, Parser

SIMPLE: Final = tuple(each.name for each in FORMATS.values() if each.arrow)
PARSED: Final = ("json", "csv", "avro")
_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers")
"""The columns of the record that follow those of a parsed value."""


@dataclass(frozen=True, slots=True)
class Formats:
    """How keys and values are read."""

    key: str
    value: str
    headers: bool
    nulls_for_bad: bool
    parser: Callable[[], Parser] | None = None
    """Makes the parser of a format in ``PARSED``."""

    def decoder(self) -> RecordDecoder:
        """A decoder, for one thread."""
        return RecordDecoder(self)


def parser_of(shaping: Shaping) -> Callable[[], Parser]:
    """What makes the parser of this format. Raises ConfigError that names the column."""
    from millstream.spark.load.pipeline.formats.avro import AvroParser, schema_text
    from millstream.spark.load.pipeline.formats.csv import CsvParser

    schema = ddl.parse(shaping.schema) if shaping.schema else None
    make: Callable[[], Any]
    if shaping.format == "avro":
        assert shaping.avro_schema is not None
        make = partial(AvroParser, schema_text(shaping.avro_schema), schema, shaping.avro_prefix)
    elif shaping.format == "csv":
        make = partial(CsvParser, schema, shaping.csv_delimiter, shaping.csv_quote)
    else:
        return json_parser(schema)
    make()  # raises for a schema that the format cannot have
    return make


def json_parser(schema: pa.Schema) -> Callable[[], Parser]:
    """What makes the parser of JSON with these columns."""
    from millstream.spark.load.pipeline.formats.json import JsonParser

    make: Callable[[], Any] = partial(JsonParser, schema)
    make()
    return make


def schema_ddl(given: object) -> str | None:
    """A schema in DDL: as it was given, or of Arrow. Raises ConfigError for a type that no format has."""
    import pyarrow as pa

    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, pa.Schema):
        raise ConfigError(
            f"schema is a {type(given).__name__}: it must be text, such as 'id LONG, price DOUBLE', or a "
            "pyarrow.Schema",
            setting="schema",
        )
    for field in given:
        try:
            ddl.type_name(field.type)
        except KeyError:
            raise ConfigError(
                f"schema: the column {field.name} is of type {field.type}, which cannot be parsed: choose "
                "one with a type of Spark's",
                setting="schema",
            ) from None
    return ddl.render(given)


def simple_format(given: object, name: str) -> str:
    """Return the name of a format with a column of its own; raises ConfigError."""
    found = format_name(given)
    if found in SIMPLE:
        return found
    raise _unknown(given, name, SIMPLE)


def value_format(given: object) -> str:
    """Return the name of a format of values; raises ConfigError."""
    found = format_name(given) or given
    if found in SIMPLE or found in PARSED:
        return str(found)
    raise _unknown(given, "value", (*SIMPLE, *PARSED))


def _unknown(given: object, name: str, known: Sequence[str]) -> ConfigError:
    hint = did_you_mean(given, known) if isinstance(given, str) else ""
    hint = hint or f"it must be one of {', '.join(known)}"
    return ConfigError(f"{name} is {given!r}: {hint}", setting=name)


class RecordDecoder:
    """Makes record batches of columns. For one thread."""

    def __init__(self, formats: Formats) -> None:
        import pyarrow as pa

        self._formats = formats
        self._parser = None if formats.parser is None else formats.parser()
        plain = "bytes" if self._parser else formats.value
        self._key_type, self._value_type = (_arrow_type(name) for name in (formats.key, plain))
        self._deserializers = Deserializers.of(_named(formats.key), _named(plain))
        empty = to_record_batch([], self._key_type, self._value_type, headers=formats.headers)
        self._record_fields = [name for name in _FIELDS if name in empty.schema.names]
        if self._parser is None:
            self.schema = empty.schema
        else:
            fields = [field.with_nullable(True) for field in self._parser.schema]
            fields += [empty.schema.field(name).with_name(f"_{name}") for name in self._record_fields]
            self.schema = pa.schema(fields)
        self._check_names()

    def _check_names(self) -> None:
        names = self.schema.names
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"the values have a field {name}, as scan's own column is called: leave it out of schema",
                    setting="schema",
                )

    def __call__(self, columns: Sequence[Columns]) -> pa.RecordBatch:
        typed = [self._typed(part) for part in columns]
        batch = to_record_batch(typed, self._key_type, self._value_type, headers=self._formats.headers)
        return batch if self._parser is None else self._parsed(batch, self._parser)

    # -- simple formats

    def _typed(self, part: Columns) -> Columns:
        typed, error = deserialize(part, self._deserializers)
        if error is None:
            return typed
        if isinstance(error, RegistryError):
            raise error
        if self._formats.nulls_for_bad:
            keys = _or_nulls(part.keys, self._deserializers.key)
            return part.with_objects(keys, _or_nulls(part.values, self._deserializers.value))
        which = "key" if f"the key of {error.topic}-" in str(error) else "value"
        reason = str(error.__cause__ or error)
        raise self._error(which, error.topic, error.partition, error.offset, error.raw, reason)

    # -- parsed formats

    def _parsed(self, batch: pa.RecordBatch, parser: Parser) -> pa.RecordBatch:
        import pyarrow as pa

        values = batch.column("value")
        found = parser.parse(values)
        if found.bad and not self._formats.nulls_for_bad:
            self._raise_for_bad(batch, found)
        rows = found.rows
        if found.good is not None:
            rows = rows.take(_places(found.good, batch.num_rows))
        arrays = [*rows.columns, *(batch.column(name) for name in self._record_fields)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _raise_for_bad(self, batch: pa.RecordBatch, found: Parsed) -> None:
        """Raise for the first value that is not null (a tombstone) and cannot be parsed."""
        for place, reason in zip(found.bad, found.reasons, strict=True):
            raw = batch.column("value")[place].as_py()
            if raw is not None:
                topic, partition, offset = (
                    batch.column(name)[place].as_py() for name in ("topic", "partition", "offset")
                )
                raise self._error("value", topic, partition, offset, raw, reason)

    def _error(
        self, which: str, topic: str, partition: int, offset: int, raw: bytes, reason: str
    ) -> DeserializationError:
        form = self._formats.key if which == "key" else self._formats.value
        return DeserializationError(
            f"the {which} of {topic}-{partition} at offset {offset} cannot be read as {form}: {reason}. "
            f'Choose another format, or read such records as null with bad_values="null" (--bad-values null)',
            topic,
            partition,
            offset,
            raw,
        )


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    kind = FORMATS[name].arrow
    assert kind is not None
    return getattr(pa, kind)()


def _named(name: str) -> Callable[[bytes], Any]:
    return deserializer(name)


def _or_nulls(column: Sequence[Any], how: Any) -> Sequence[Any]:
    if how is None:
        return column
    found: list[Any] = []
    for raw in column:
        try:
            found.append(None if raw is None else how(raw))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it becomes null
            found.append(None)
    return found


def _places(good: Any, rows: int) -> pa.Array:
    """For each row of a batch its index among the good ones, or null."""
    import numpy as np
    import pyarrow as pa

    places = np.zeros(rows, np.int64)
    places[good] = np.arange(len(good))
    bad = np.ones(rows, np.bool_)
    bad[good] = False
    return pa.array(places, mask=bad)
