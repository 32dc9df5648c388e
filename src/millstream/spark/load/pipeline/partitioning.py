"""The partition columns of a table: its own columns, or ones derived from a date or time.

``partition_by=["country"]`` names a column. ``partition_by=["date(_timestamp) AS day"]`` adds one: the day of
the record's timestamp. The functions are date, year, month, day and hour, always of UTC: the same record goes
to the same partition wherever and whenever it is loaded. Derive anything else with SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.spark.sinks.partitioning import DERIVED

if TYPE_CHECKING:
    import pyarrow as pa

_DERIVED: Final = re.compile(r"\s*(\w+)\s*\(\s*`?(\w+)`?\s*\)\s+as\s+`?(\w+)`?\s*", re.IGNORECASE)
_FUNCTIONS: Final = ("date", "year", "month", "day", "hour")


@dataclass(frozen=True, slots=True)
class Derived:
    """A partition column that is derived from another column."""

    name: str
    function: str
    source: str

    def field(self) -> Any:
        import pyarrow as pa

        kind = pa.date32() if self.function == "date" else pa.int32()
        return pa.field(self.name, kind, metadata={DERIVED: f"{self.function}({self.source})"})

    def compute(self, column: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_timestamp(column.type):  # which is UTC: no database of zones is needed
            column = column.cast(pa.timestamp("us"), safe=False)
        if self.function == "date":
            return column.cast(pa.date32(), safe=False)
        return getattr(pc, self.function)(column).cast(pa.int32())


class Partitioning:
    """The partition columns of a table of this schema. Raises ConfigError that names an invalid one."""

    def __init__(self, partition_by: Sequence[str], schema: pa.Schema) -> None:
        self.names: tuple[str, ...] = ()
        self.derived: tuple[Derived, ...] = ()
        for given in partition_by:
            found = _DERIVED.fullmatch(given)
            if found is None:
                self.names += (_column(given.strip().strip("`"), schema),)
            else:
                self.derived += (_derived(found, schema),)
                self.names += (self.derived[-1].name,)
        if len(set(self.names)) < len(self.names):
            raise ConfigError(
                f"partition_by names a column twice: {', '.join(self.names)}", setting="partition_by"
            )
        self.schema = schema
        for one in self.derived:
            self.schema = self.schema.append(one.field())

    def add(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the derived columns appended."""
        import pyarrow as pa

        if not self.derived:
            return rows
        more = [one.compute(rows.column(one.source)) for one in self.derived]
        return pa.RecordBatch.from_arrays([*rows.columns, *more], schema=self.schema)


def remembered_for(schema: pa.Schema, remembered: Sequence[str]) -> tuple[str, ...]:
    """What a table says it is partitioned by, as ``partition_by`` of a load with these columns.

    A column that the load has is taken as it is. Empty where the load can neither derive a column nor has it:
    the sink then says which.
    """
    found: list[str] = []
    for one in remembered:
        match = _DERIVED.fullmatch(one)
        name, source = (one, one) if match is None else (match[3], match[2])
        if name not in schema.names and source not in schema.names:
            return ()
        found.append(name if name in schema.names else one)
    return tuple(found)


def _column(name: str, schema: pa.Schema) -> str:
    if name not in schema.names:
        raise ConfigError(
            f"partition_by: there is no column {name!r}. There are {', '.join(schema.names)}; or add one, "
            "as in 'date(_timestamp) AS day'",
            setting="partition_by",
        )
    return name


def _derived(found: re.Match[str], schema: pa.Schema) -> Derived:
    import pyarrow as pa

    function, source, name = found[1].lower(), _column(found[2], schema), found[3]
    if function not in _FUNCTIONS:
        raise ConfigError(
            f"partition_by: {found[0].strip()!r} uses {function}: there are {', '.join(_FUNCTIONS)}; "
            "derive other columns with sql",
            setting="partition_by",
        )
    kind = schema.field(source).type
    if not (pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and function != "hour")):
        raise ConfigError(
            f"partition_by: {found[0].strip()!r} needs a date or time, and {source} is {kind}",
            setting="partition_by",
        )
    if name.lower() in (other.lower() for other in schema.names):
        raise ConfigError(
            f"partition_by: the table has a column {name} already: choose another name",
            setting="partition_by",
        )
    return Derived(name, function, source)
