"""Tables of Spark's catalog: ``CREATE TABLE … USING millstream`` keeps its options in the schema.

Spark shows a table's options to a Python source when the table is created, and not when it is read. But it
passes the table's schema: so the options are metadata of the first column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.config import ConsumerConfig
from millstream.errors import ConfigError
from millstream.spark.options.kafka_settings import PREFIX
from millstream.spark.reading import schema

_OPTION: Final = "option."
"""What the name of an option begins with while a table is created."""
_KEY: Final = "millstream.options"

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[Mapping[str, DataType]] = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    schema.DDL[schema.HEADERS]: ArrayType(_HEADER),
}


def table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of the table that is being created; None if none is. Raises ConfigError for a secret."""
    found = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    if not found:
        return None
    secrets = {name.replace("_", ".") for name in ConsumerConfig.secrets()}
    for name in found:
        if name.lower().removeprefix(PREFIX) in secrets:
            raise ConfigError(
                f"a table would show {name} to all who can read the catalog: leave it out, and give it with "
                "SELECT … FROM table WITH (…), or use CREATE TEMPORARY VIEW"
            )
    return found


def table_schema(options: Mapping[str, str], *, headers: bool) -> StructType:
    """The columns of a table that is read with ``options``."""
    fields = [StructField(name, _TYPES[schema.DDL[name]]) for name in schema.names(headers=headers)]
    fields[0].metadata = {_KEY: dict(options)}
    return StructType(fields)


def options_of(columns: StructType) -> dict[str, str]:
    """The options that ``table_schema`` put in; none if the columns are not a table's."""
    for column in columns:
        if column.metadata and _KEY in column.metadata:
            return dict(column.metadata[_KEY])
    return {}
