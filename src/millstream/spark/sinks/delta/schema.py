"""The columns of a Delta table: created, compared with those of a load, and added where they are missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import SchemaConflictError, SinkError, label_column, positions_among
from millstream.spark.sinks.delta.errors import TROUBLE, failed
from millstream.spark.sinks.delta.parquet.files import DataFile
from millstream.spark.sinks.delta.parquet.partitions import supported
from millstream.spark.sinks.delta.places.place import Place, delta_options, sync
from millstream.spark.sinks.delta.table import DeltaSnapshot, Table
from millstream.spark.sinks.partitioning import DERIVED, require_same, spelled, spelled_in

_FORBIDDEN: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta does not allow in column names without column mapping."""
_ATTEMPTS: Final = 5


def create(table: Table, schema: Schema, partition_by: Sequence[str] = ()) -> DeltaSnapshot:
    """Create a table, unless another driver has just done so."""
    try:
        DeltaTable.create(
            str(table.directory),
            schema=schema,
            partition_by=list(partition_by),
            mode="ignore",
            storage_options=delta_options(table.directory),
        )
    except TROUBLE as error:
        if (snapshot := table.look()) is not None:  # another driver was faster
            return snapshot
        raise failed(f"the Delta table {table.directory} could not be created", error) from error
    snapshot = table.look()
    if snapshot is None:
        raise SinkError(f"the Delta table {table.directory} was deleted right after it was created")
    for directory in (table.directory, table.directory.parent):
        sync(directory)
    return snapshot


def delta_schema(schema: pa.Schema, directory: Place) -> Schema:
    """The columns as Delta's types; raises SchemaConflictError for what Delta does not support."""
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
            f"column names differ only in case, which Delta ignores: {', '.join(doubled)}"
        )
    try:
        return Schema.from_arrow(schema)
    except (DeltaError, ValueError, TypeError) as error:
        raise SchemaConflictError(
            f"the columns do not fit in the Delta table {directory}: {error}"
        ) from error


def check_partitioning(schema: pa.Schema, partition_by: Sequence[str], directory: Place) -> None:
    """Raise SchemaConflictError where a table cannot be partitioned by these columns."""
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


def partitioned_by(snapshot: DeltaSnapshot) -> tuple[str, ...]:
    """What the table is partitioned by; a derived column as it was when the table was created."""
    columns = {column.name: column.metadata.get(DERIVED) for column in snapshot.handle.schema().fields}
    return tuple(spelled(name, columns[name]) for name in snapshot.handle.metadata().partition_columns)


def check_partition_columns(
    snapshot: DeltaSnapshot, schema: pa.Schema, partition_by: Sequence[str], directory: Place
) -> None:
    """Raise SinkError where the load would partition the table in another way than it is, SchemaConflictError
    where it lacks a column that the table is partitioned by. An empty ``partition_by`` accepts the table's.
    """
    names, found = snapshot.handle.metadata().partition_columns, partitioned_by(snapshot)
    if partition_by:
        require_same(f"the Delta table {directory}", found, spelled_in(schema, partition_by))
    lacking = [name for name in names if name not in schema.names]
    if lacking:
        raise SchemaConflictError(
            f"the Delta table {directory} is partitioned by {', '.join(found)}, and the load has no column "
            f"{', '.join(lacking)}. Say how to compute it, as when the table was created: partition_by=… "
            f"(--partition-by 'date(_timestamp) AS {lacking[0]}'), or add it to the schema"
        )


def missing_columns(handle: DeltaTable, wanted: Schema, directory: Place) -> list[Field]:
    """The columns that the table lacks; raises SchemaConflictError for those that do not fit."""
    there = {column.name: column for column in handle.schema().fields}
    lower = {name.lower(): name for name in there}
    missing, wrong = [], []
    for column in wanted.fields:
        found = there.get(column.name)
        if found is not None:
            wrong += _differences(found, column)
        elif column.name.lower() in lower:
            wrong.append(f"{column.name} is spelled {lower[column.name.lower()]} there")
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


def check_files(snapshot: DeltaSnapshot, wanted: Schema, files: Iterable[DataFile], directory: Place) -> None:
    """Raise where the table was changed so that files with these columns no longer fit."""
    missing = missing_columns(snapshot.handle, wanted, directory)
    if missing:
        names = ", ".join(column.name for column in missing)
        raise SchemaConflictError(
            f"the Delta table {directory} has lost the columns {names} while it was being loaded. Let the "
            "load add them again with add_columns=True (--add-columns), or leave them out of its schema"
        )
    divided = snapshot.handle.metadata().partition_columns
    if any(set(file.partition_values) != set(divided) for file in files):
        raise SinkError(
            f"the Delta table {directory} was repartitioned while it was being loaded, by "
            f"({', '.join(divided)}): nothing was written to it, and running again is safe"
        )


def _differences(there: Field, ours: Field) -> list[str]:
    if found := _type_differences(
        ours.name, json.loads(there.type.to_json()), json.loads(ours.type.to_json())
    ):
        return found
    if ours.nullable and not there.nullable:
        return [f"{ours.name} must not be null there and may be null in the load"]
    return []


def _type_differences(path: str, there: Any, ours: Any) -> list[str]:
    """What differs between two types in Delta's JSON, by the path of the innermost one that does."""
    if there == ours:
        return []
    before, now = (one if isinstance(one, str) else one and one["type"] for one in (there, ours))
    if before != now:
        return [f"{path} is {before or 'missing'} there and {now or 'missing'} in the load"]
    sides = [_parts(one) for one in (there, ours)]
    names = dict.fromkeys(name for side in sides for name in side)
    found = [_type_differences(f"{path}.{name}", *(side.get(name) for side in sides)) for name in names]
    return list(chain.from_iterable(found)) or [
        f"{path} differs in the order of its fields, or in which may be null"
    ]


def _parts(kind: Any) -> dict[str, Any]:
    inner = {name[:-4]: kind[name] for name in ("elementType", "keyType", "valueType") if name in kind}
    return inner | {one["name"]: one["type"] for one in kind.get("fields", ())}


def fit(table: Table, wanted: Schema, *, allowed: bool) -> None:
    """Check that the table has these columns; if ``allowed``, add missing ones, nullable, in one commit."""
    for attempt in range(_ATTEMPTS):
        snapshot = table.look()
        if snapshot is None:
            raise SinkError(f"the Delta table {table.directory} was deleted")
        missing = missing_columns(snapshot.handle, wanted, table.directory)
        if not missing:
            return
        names = ", ".join(column.name for column in missing)
        if not allowed:
            raise SchemaConflictError(
                f"the Delta table {table.directory} lacks the columns {names}. Let the load add them "
                "with add_columns=True (--add-columns), or leave them out of its schema"
            )
        try:
            snapshot.handle.alter.add_columns([Field(c.name, c.type, nullable=True) for c in missing])
        except DeltaError as error:  # another driver may have added them
            if attempt + 1 == _ATTEMPTS:
                raise SinkError(
                    f"the columns {names} could not be added to the Delta table {table.directory}: {error}"
                ) from error


def add_labels(table: Table, schema: pa.Schema) -> None:
    """Add the column for ``Progress.label`` to a table with these columns, unless it has it."""
    name = label_column(positions_among(schema.names))
    if name in schema.names:
        raise SchemaConflictError(
            f"the Delta table {table.directory} would hold two topics of one name, told apart by the column "
            f"{name}, but the load has a column of that name: rename it, or load the new topic into another "
            "table"
        )
    fit(table, delta_schema(schema.append(pa.field(name, pa.string())), table.directory), allowed=True)
