"""The columns of a load's tables, with their exact Arrow types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from millstream.spark.reading import schema as source
from millstream.spark.reading.schema import RAW as RAW
from millstream.spark.reading.schema import rejected_schema as rejected_schema

POSITIONS: Final = ("_topic", "_partition", "_offset", "_timestamp")
"""The record that a row came from: the last columns of a table with a schema."""
REJECTED: Final = (*RAW, "reason", "rejected_at")


@cache
def raw_schema(*, headers: bool) -> Any:
    """The Arrow schema of a raw table."""
    return source.arrow_schema(RAW if headers else RAW[:-1])


@cache
def position_fields() -> Any:
    """The fields of ``POSITIONS``."""
    import pyarrow as pa

    types = source.arrow_types()
    return [pa.field(name, types[name[1:]]) for name in POSITIONS]


def with_positions(fields: Sequence[Any]) -> Any:
    """The Arrow schema of these fields, followed by the positions."""
    import pyarrow as pa

    return pa.schema([*fields, *position_fields()])
