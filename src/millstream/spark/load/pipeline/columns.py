"""The columns of a load's tables, with their exact Arrow types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from millstream.spark.reading import schema as source

RAW: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of a raw table: the source's, in the order in which people read them."""
POSITIONS: Final = ("_topic", "_partition", "_offset", "_timestamp")
"""Which record a row came from: the last columns of a table with a schema."""
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


@cache
def rejected_schema() -> Any:
    """The Arrow schema of the rejected rows."""
    import pyarrow as pa

    schema = source.arrow_schema(RAW)
    return schema.append(pa.field("reason", pa.string())).append(
        pa.field("rejected_at", pa.timestamp("us", "UTC"))
    )


def with_positions(fields: Sequence[Any]) -> Any:
    """The Arrow schema of these fields, and behind them where a row came from."""
    import pyarrow as pa

    return pa.schema([*fields, *position_fields()])
