"""Parsers of values: JSON, CSV and Avro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import columns, ddl
from millstream.spark.load.pipeline.formats.parsed import Parser
from millstream.spark.load.settings import Shaping

if TYPE_CHECKING:
    import pyarrow as pa


def parser_of(shaping: Shaping) -> Parser | None:
    """The parser of values; None for raw records. Raises ConfigError that names the column."""
    if shaping.is_raw:
        return None
    schema = ddl.parse(shaping.schema) if shaping.schema else None
    parser = _make(shaping, schema)
    for field in parser.schema:
        if field.name.lower() in columns.POSITIONS:
            raise ConfigError(
                f"schema: the column {field.name} is one that a load adds: rename it", setting="schema"
            )
    return parser


def _make(shaping: Shaping, schema: pa.Schema | None) -> Parser:
    made: Any
    if shaping.format == "avro":
        from millstream.spark.load.pipeline.formats.avro import AvroParser

        assert shaping.avro_schema is not None
        made = AvroParser(shaping.avro_schema, schema, shaping.avro_prefix)
    elif shaping.format == "csv":
        from millstream.spark.load.pipeline.formats.csv import CsvParser

        made = CsvParser(schema, shaping.csv_delimiter, shaping.csv_quote)
    else:
        from millstream.spark.load.pipeline.formats.json import JsonParser

        made = JsonParser(schema)
    parser: Parser = made
    return parser
