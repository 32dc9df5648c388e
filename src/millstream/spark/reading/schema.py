"""The columns of the source: names, order and types of Spark's own kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from millstream.errors import MisuseError
from millstream.suggestions import did_you_mean

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
RAW: Final = ("topic", "partition", "offset", "timestamp", "key", "value", HEADERS)
"""The columns of a raw table and of rejected rows, in the order in which people read them."""

DDL: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


def names(*, headers: bool) -> tuple[str, ...]:
    """The names of all columns."""
    return (*COLUMNS, HEADERS) if headers else COLUMNS


def ddl(*, headers: bool) -> str:
    """The columns in Spark's DDL."""
    return ", ".join(f"{name} {DDL[name]}" for name in names(headers=headers))


@cache
def arrow_types() -> dict[str, Any]:
    """The Arrow type of each column, exactly as Spark expects it."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }


def arrow_schema(chosen: Sequence[str]) -> Any:
    """The Arrow schema of these columns."""
    import pyarrow as pa

    types = arrow_types()
    return pa.schema([(name, types[name]) for name in chosen])


@cache
def rejected_schema() -> Any:
    """The Arrow schema of rejected rows: the raw record, why it was rejected, and when."""
    import pyarrow as pa

    added = [pa.field("reason", pa.string()), pa.field("rejected_at", pa.timestamp("us", "UTC"))]
    return pa.schema([*arrow_schema(RAW), *added])


def choose(columns: Sequence[str] | None, *, headers: bool) -> tuple[str, ...]:
    """The columns to build: ``columns`` in their order, or all. Raises MisuseError for an unknown one."""
    known = names(headers=headers)
    if columns is None:
        return known
    for name in columns:
        if name == HEADERS and not headers:
            raise MisuseError("the column headers needs includeHeaders=true")
        if name not in known:
            raise MisuseError(f"there is no column {name}: {did_you_mean(name, known, cutoff=0.0)}")
    return tuple(columns)
