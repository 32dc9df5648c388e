"""Partition columns: their values are in the log and in directory names, not in the files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Values = tuple[tuple[str, str | None], ...]


def supported(kind: pa.DataType) -> bool:
    """Whether a table can be partitioned by a column of this type.

    Not by decimals: delta-rs cannot read negative ones. Not by floating-point numbers: NaN equals nothing.
    """
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
    )


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, without the partition columns."""
    if not columns:
        yield (), batch
        return
    rest = [name for name in batch.schema.names if name not in columns]
    keys = pa.Table.from_batches([batch.select(list(columns))])
    if any(len(pc.unique(keys[name])) > 1 for name in columns):
        groups = keys.append_column("#", pa.array(range(batch.num_rows))).group_by(list(columns))
        found = groups.aggregate([("#", "list")]).to_pylist()
        for group in found:
            yield _values(columns, group), batch.take(pa.array(sorted(group["#_list"]))).select(rest)
    else:
        yield _values(columns, keys.slice(0, 1).to_pylist()[0]), batch.select(rest)


def _values(columns: tuple[str, ...], row: dict[str, Any]) -> Values:
    return tuple((name, text(row[name])) for name in columns)


def text(value: object) -> str | None:
    """A value as Delta's log writes it; an empty string is null there."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return moment.isoformat(sep=" ", timespec="microseconds")
        case date() | int() | str():
            return str(value)
    raise AssertionError(f"a table cannot be partitioned by {value!r}")


def directory_of(values: Values) -> str:
    """The directory of a partition's files, for people: readers take the values from the log.

    Engines quote characters differently, so those that need quoting are replaced.
    """
    return "".join(f"{_plain(name)}={_plain(value)}/" for name, value in values)


def _plain(value: str | None) -> str:
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return re.sub(r"[^A-Za-z0-9._-]", "_", value)[:100]
