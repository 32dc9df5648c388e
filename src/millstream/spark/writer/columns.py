"""The columns that rows may have: those of Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

TOPIC: Final = "topic"
VALUE: Final = "value"
RECORD: Final = ("key", VALUE, "headers", "partition")
"""The columns that a record is made of."""


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair: list[StructField] = kind.elementType.fields
    return (
        [field.name.lower() for field in pair] == ["key", "value"]
        and isinstance(pair[0].dataType, StringType)
        and isinstance(pair[1].dataType, BinaryType)
    )


_TYPES: Final[Mapping[str, tuple[Callable[[DataType], bool], str]]] = {
    "key": (_is_text_or_bytes, "STRING or BINARY"),
    VALUE: (_is_text_or_bytes, "STRING or BINARY"),
    TOPIC: (lambda kind: isinstance(kind, StringType), "STRING"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "INT"),
    "headers": (_is_headers, "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError unless rows of this schema can be written; ``topic`` is the option, if it is given.

    Other columns are ignored, as is ``topic`` beside the option.
    """
    names = schema.fieldNames()
    if VALUE not in names:
        hint = did_you_mean(VALUE, names)
        raise ConfigError(
            f"the column value is missing among {', '.join(names) or 'no columns'}: "
            + (hint or "make one, as with to_json(struct(*)) AS value")
        )
    if topic is None and TOPIC not in names:
        raise ConfigError("there is no topic to write to: set the option topic, or add a column topic STRING")
    for name, (is_right, wanted) in _TYPES.items():
        if name not in names or (name == TOPIC and topic is not None):
            continue
        kind = schema[name].dataType
        if not is_right(kind):
            raise ConfigError(
                f"the column {name} is {kind.simpleString().upper()}, and must be {wanted}: cast it"
            )
