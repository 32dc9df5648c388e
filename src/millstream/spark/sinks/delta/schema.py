"""The columns of a Delta table beside those of a load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import SchemaConflictError, SinkError, label_column, positions_among
from millstream.spark.sinks.delta.parquet.files import DataFile
from millstream.spark.sinks.delta.parquet.partitions import supported
from millstream.spark.sinks.delta.table import Snapshot, Table

_FORBIDDEN: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Parquet as Delta uses it does not have in names, unless they are mapped."""
_ATTEMPTS: Final = 5


def delta_schema(schema: pa.Schema, directory: Path) -> Schema:
    """The columns as Delta has them; raises SchemaConflictError for what it does not have."""
    bad = [name for name in schema.names if _FORBIDDEN.search(name)]
    if bad:
        raise SchemaConflictError(
            "Delta has no columns with spaces or any of ,;{}()= in the name: rename "
            f"{', '.join(map(repr, bad))}"
        )
    names = [name.lower() for name in schema.names]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaConflictError(
            f"Delta does not tell upper from lower case: {', '.join(doubled)} is there twice"
        )
    try:
        return Schema.from_arrow(schema)
    except (DeltaError, ValueError, TypeError) as error:
        raise SchemaConflictError(
            f"the columns do not fit in the Delta table {directory}: {error}"
        ) from error


def check_partitioning(schema: pa.Schema, partition_by: Sequence[str], directory: Path) -> None:
    """Raise SchemaConflictError where a table cannot be partitioned like that."""
    for name in partition_by:
        if name not in schema.names:
            raise SchemaConflictError(
                f"{directory} cannot be partitioned by {name}: there is no such column, only "
                f"{', '.join(schema.names)}"
            )
        if not supported(schema.field(name).type):
            raise SchemaConflictError(
                f"{directory} cannot be partitioned by {name}: its type is {schema.field(name).type}"
            )
    if len(partition_by) >= len(schema.names):
        raise SchemaConflictError(f"{directory} cannot be partitioned by all of its columns")


def check_partition_columns(schema: pa.Schema, found: Sequence[str], directory: Path) -> None:
    """Raise SchemaConflictError where the load lacks a column that the table is partitioned by."""
    lacking = [name for name in found if name not in schema.names]
    if lacking:
        raise SchemaConflictError(
            f"the Delta table {directory} is partitioned by {', '.join(found)}, and the load has no column "
            f"{', '.join(lacking)}. Say what it is made of, as when the table was made (partition_by=…, "
            f"--partition-by 'date(_timestamp) AS {lacking[0]}'), or have it in the schema"
        )


def missing_columns(handle: DeltaTable, wanted: Schema, directory: Path) -> list[Field]:
    """The columns that the table lacks; raises SchemaConflictError for those that do not fit."""
    there = {column.name: column for column in handle.schema().fields}
    lower = {name.lower(): name for name in there}
    missing, wrong = [], []
    for column in wanted.fields:
        found = there.get(column.name)
        if found is not None:
            wrong += _differences(found, column)
        elif column.name.lower() in lower:
            wrong.append(f"{column.name} is spelt {lower[column.name.lower()]} there")
        else:
            missing.append(column)
    ours = {column.name for column in wanted.fields}
    wrong += [
        f"{n} must not be null, and the load does not have it"
        for n, c in there.items()
        if n not in ours and not c.nullable
    ]
    if wrong:
        raise SchemaConflictError(
            f"the columns of the Delta table {directory} do not fit the load's: {'; '.join(wrong)}. Types "
            "are never changed: load into another table, or change the schema of the load"
        )
    return missing


def check_files(snapshot: Snapshot, wanted: Schema, files: Iterable[DataFile], directory: Path) -> None:
    """Raise where files with these columns do not fit the table any more, as it was changed since."""
    missing = missing_columns(snapshot.handle, wanted, directory)
    if missing:
        names = ", ".join(column.name for column in missing)
        raise SchemaConflictError(
            f"the Delta table {directory} has lost the columns {names} while it was being loaded. Let the "
            "load add them again (add_columns=True, --add-columns), or leave them out of its schema"
        )
    divided = snapshot.handle.metadata().partition_columns
    if any(set(file.partition_values) != set(divided) for file in files):
        raise SinkError(
            f"the Delta table {directory} was partitioned anew while it was being loaded, by "
            f"({', '.join(divided)}): nothing was written to it, and running again is safe"
        )


def _differences(there: Field, ours: Field) -> list[str]:
    if _plain(there.type) != _plain(ours.type):
        return [f"{ours.name} is {_plain(there.type)} there and {_plain(ours.type)} in the load"]
    if ours.nullable and not there.nullable:
        return [f"{ours.name} must not be null there and may be null in the load"]
    return []


def _plain(kind: Any) -> str:
    return str(kind.to_json()).strip('"')


def fit(table: Table, wanted: Schema, *, allowed: bool) -> None:
    """See that the table has these columns; add those that it lacks, nullable, in one commit, if allowed."""
    for attempt in range(_ATTEMPTS):
        snapshot = table.look()
        if snapshot is None:
            raise SinkError(f"the Delta table {table.directory} is gone")
        missing = missing_columns(snapshot.handle, wanted, table.directory)
        if not missing:
            return
        names = ", ".join(column.name for column in missing)
        if not allowed:
            raise SchemaConflictError(
                f"the Delta table {table.directory} lacks the columns {names}. Let the load add them "
                "(add_columns=True, --add-columns), or leave them out of its schema"
            )
        try:
            snapshot.handle.alter.add_columns([Field(c.name, c.type, nullable=True) for c in missing])
        except DeltaError as error:  # another driver may have added them
            if attempt + 1 == _ATTEMPTS:
                raise SinkError(
                    f"the columns {names} could not be added to the Delta table {table.directory}: {error}"
                ) from error


def add_labels(table: Table, schema: pa.Schema) -> None:
    """Give a table with these columns the one for ``Progress.label``, unless it has it."""
    name = label_column(positions_among(schema.names))
    if name in schema.names:
        raise SchemaConflictError(
            f"the Delta table {table.directory} would hold two topics of one name, whose rows are told apart "
            f"by the column {name}, and the load has a column of that name itself: rename that one, or load "
            "the new topic into another table"
        )
    fit(table, delta_schema(schema.append(pa.field(name, pa.string())), table.directory), allowed=True)
