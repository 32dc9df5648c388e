"""File statistics for Delta's log, from those in the Parquet footer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_MOST_COLUMNS: Final = 32
"""Only this many columns have statistics, the protocol's default; positions always do."""
_POSITIONS: Final = frozenset({"topic", "partition", "offset"})
_LONGEST_TEXT: Final = 64


@dataclass(slots=True)
class Statistics:
    """The statistics of one file."""

    _with_nan: set[str] = field(default_factory=set)

    def see(self, table: pa.Table) -> None:
        """Note columns with NaN, which Parquet leaves out and Spark counts as the greatest value."""
        for column in table.schema:
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(table[column.name])).as_py():
                self._with_nan.add(column.name)

    def of(self, metadata: Any) -> str:
        """The statistics as JSON, from the footer."""
        least: dict[str, Any] = {}
        most: dict[str, Any] = {}
        nulls: dict[str, int] = {}
        for name, groups in _columns(metadata):
            if all(group.has_null_count for group in groups):
                nulls[name] = sum(group.null_count for group in groups)
            bounds = None if name in self._with_nan else _bounds(groups)
            if bounds is not None:
                least[name], most[name] = bounds
        found = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
        return json.dumps(found, separators=(",", ":"))


def _columns(metadata: Any) -> Iterator[tuple[str, list[Any]]]:
    """The flat columns that have statistics in each row group."""
    if metadata.num_row_groups == 0:
        return
    first = metadata.row_group(0)
    for number in range(metadata.num_columns):
        name = first.column(number).path_in_schema
        if "." in name and metadata.schema.column(number).max_definition_level > 1:
            continue
        if number >= _MOST_COLUMNS and name.lstrip("_") not in _POSITIONS:
            continue
        groups = [metadata.row_group(g).column(number).statistics for g in range(metadata.num_row_groups)]
        if all(group is not None for group in groups):
            yield name, groups


def _bounds(groups: list[Any]) -> tuple[Any, Any] | None:
    """The minimum and maximum as JSON values; None where either is not known exactly."""
    filled = [group for group in groups if group.has_min_max]
    if not filled or any(not group.has_min_max and group.num_values for group in groups):
        return None
    try:
        bounds = min(group.min for group in filled), max(group.max for group in filled)
    except (ValueError, OverflowError):  # a timestamp that Python cannot represent
        return None
    least, most = map(_plain, bounds)
    return None if least is None or most is None else (least, most)


def _plain(value: object) -> object:
    """A bound as a JSON value; None where it is left out."""
    plain: object = None
    match value:
        case bool():
            pass
        case float() if math.isfinite(value):
            plain = value
        case str() if len(value) <= _LONGEST_TEXT:
            plain = value
        case int():
            plain = value
        case datetime() if value.tzinfo is not None:
            plain = value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case datetime():
            plain = value.isoformat(timespec="microseconds")
        case date():
            plain = value.isoformat()
    return plain
