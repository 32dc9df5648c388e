"""The tables of a load: made when they are missing, checked when they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from psycopg import sql

from millstream.spark.sinks.base import SchemaConflictError, SinkError, Tables, label_column
from millstream.spark.sinks.postgres_database import Connection
from millstream.spark.sinks.postgres_names import MOST_BYTES, PROGRESS, REJECTED, TableName, placed
from millstream.spark.sinks.postgres_types import column_type, holds

REJECTED_POSITIONS: Final = ("topic", "partition", "offset")
_PROGRESS: Final = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} ("
    'group_id text, table_name text, topic text, "partition" integer, '
    "topic_id text NOT NULL, next_offset bigint NOT NULL, high_offset bigint NOT NULL, "
    "remade integer NOT NULL DEFAULT 0, "
    "cycle_id text NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(), "
    'PRIMARY KEY (group_id, table_name, topic, "partition")) WITH (fillfactor = 50)'
)
_REMADE: Final = sql.SQL("ALTER TABLE {} ADD COLUMN remade integer NOT NULL DEFAULT 0")
_LOST: Final = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} ("
    'group_id text NOT NULL, topic text NOT NULL, "partition" integer NOT NULL, '
    "start_offset bigint NOT NULL, end_offset bigint NOT NULL, reason text NOT NULL, "
    "noticed_at timestamptz NOT NULL, cycle_id text NOT NULL, "
    'PRIMARY KEY (group_id, topic, "partition", start_offset, end_offset, reason))'
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that is there."""

    type: str
    must_be_given: bool
    """It takes no null, and has no default."""


def check_columns(tables: Tables) -> None:
    """Raise for names and types that PostgreSQL does not have; it cuts names off without an error."""
    for field in tables.rows:
        if len(field.name.encode()) > MOST_BYTES or "\0" in field.name:
            raise SchemaConflictError(
                f"PostgreSQL has no column with the name {field.name!r}: {MOST_BYTES} bytes are the most. "
                "Rename it, as with SQL"
            )
        column_type(field.type)


def prepare(connection: Connection, name: TableName, tables: Tables) -> None:
    """In one transaction: make what is missing, check what is there.

    A table that is made anew has no progress: what an earlier one of the same name had come to is forgotten,
    so that a table which someone dropped is loaded from the beginning.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('millstream prepare', 0))")
    connection.execute(_PROGRESS.format(name.progress))
    if "remade" not in (read_columns(connection, name, PROGRESS) or ()):  # made by an earlier version
        connection.execute(_REMADE.format(name.progress))
    columns = read_columns(connection, name, name.table)
    _check_partitions(connection, name, tables)
    if columns is None:
        _make(connection, name.rows, tables.rows, tables.positions)
        forget = sql.SQL("DELETE FROM {} WHERE table_name = %s").format(placed(name.progress))
        connection.execute(forget, [name.table])
    else:
        _fit(connection, name.rows, name.table, tables.rows, columns, add=tables.add_columns)
    connection.execute(_LOST.format(name.lost))
    if tables.rejected is not None:
        _prepare_rejected(connection, name, tables.rejected)


def _prepare_rejected(connection: Connection, name: TableName, schema: pa.Schema) -> None:
    table = name.table + REJECTED
    columns = read_columns(connection, name, table)
    if columns is None:
        _make(connection, name.rejected, schema, REJECTED_POSITIONS)
    else:
        _fit(connection, name.rejected, table, schema, columns, add=True)


def _check_partitions(connection: Connection, name: TableName, tables: Tables) -> None:
    if not tables.partition_by:
        return
    kind = sql.SQL("SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)")
    found = connection.execute(kind, [name.rows.as_string(connection)]).fetchone()
    if found is None or found[0] != "p":
        raise SinkError(
            f"PostgreSQL wants partitions to be made ahead: create {name} with PARTITION BY "
            f"({', '.join(tables.partition_by)}) and its partitions, or leave partition_by out"
        )


def read_columns(connection: Connection, name: TableName, table: str) -> dict[str, Column] | None:
    """The columns of a table by their names; None where there is no such table."""
    found = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), "
        "attnotnull AND NOT atthasdef AND attidentity = '' "
        "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        [name.beside(table).as_string(connection)],
    ).fetchall()
    return {str(each): Column(str(kind), bool(given)) for each, kind, given in found} or None


def _make(
    connection: Connection, table: sql.Identifier, schema: pa.Schema, positions: tuple[str, ...]
) -> None:
    columns = sql.SQL(", ").join(_definition(field) for field in schema)
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, columns))
    # Not unique: rows of an aggregate share a position, and a topic made anew under its name counts from 0
    # again. A block range index costs a load next to nothing, and lets a rewind find what it replaces.
    connection.execute(
        sql.SQL("CREATE INDEX ON {} USING brin ({}) WITH (autosummarize = on)").format(
            table, sql.Identifier(positions[2])
        )
    )


def _definition(field: pa.Field) -> sql.Composed:
    constraint = sql.SQL("" if field.nullable else " NOT NULL")
    kind = sql.SQL(column_type(field.type).target)
    return sql.SQL("{} {}{}").format(sql.Identifier(field.name), kind, constraint)


def _fit(
    connection: Connection,
    table: sql.Identifier,
    name: str,
    schema: pa.Schema,
    columns: dict[str, Column],
    *,
    add: bool,
) -> None:
    """Add missing columns, if that is allowed; raise SchemaConflictError where the table does not fit."""
    wrong = [
        f"{field.name} is {columns[field.name].type}, not {column_type(field.type).target}"
        for field in schema
        if field.name in columns and not holds(columns[field.name].type, column_type(field.type).target)
    ]
    unfilled = [each for each in columns if columns[each].must_be_given and each not in schema.names]
    wrong += [f"{each} must not be null, and the load does not fill it" for each in unfilled]
    missing = [field for field in schema if field.name not in columns]
    if missing and not add:
        wrong.append(f"it has no {_listed(missing)}: allow add_columns, or add them yourself")
    if wrong:
        raise SchemaConflictError(f"the table {name} does not fit: {'; '.join(wrong)}")
    for field in missing:
        definition = _definition(field.with_nullable(True))
        connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(table, definition))


def add_labels(connection: Connection, name: TableName, tables: Tables) -> None:
    """Give both tables the column for ``Progress.label``, unless they have it."""
    wanted = [(name.table, label_column(tables.positions))]
    if tables.rejected is not None:
        wanted.append((name.table + REJECTED, label_column(REJECTED_POSITIONS)))
    if wanted[0][1] in tables.rows.names:
        raise SchemaConflictError(
            f"the table {name} would hold two topics of one name, whose rows are told apart by the column "
            f"{wanted[0][1]}, and the load has a column of that name itself: rename that one, or load the "
            "new topic into another table"
        )
    for table, column in wanted:
        if column not in (read_columns(connection, name, table) or ()):
            statement = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
            connection.execute(statement.format(name.beside(table), sql.Identifier(column)))


def _listed(fields: list[pa.Field]) -> str:
    return ", ".join(f"{field.name} {column_type(field.type).target}" for field in fields)


def exists(connection: Connection, name: TableName, table: str) -> bool:
    """Whether there is such a table beside."""
    found = connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL", [name.beside(table).as_string(connection)]
    )
    return found.fetchone() == (True,)
