"""Creates the missing tables of a load, and checks the existing ones."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from psycopg import sql

from millstream.spark.sinks.base import SchemaConflictError, Tables, label_column
from millstream.spark.sinks.postgres.database import Connection
from millstream.spark.sinks.postgres.names import LOST, MOST_BYTES, PROGRESS, REJECTED, TableName, placed
from millstream.spark.sinks.postgres.partitions import check_partitions
from millstream.spark.sinks.postgres.relations import Relation, check_fit, read_columns, read_relation
from millstream.spark.sinks.postgres.types import column_type

REJECTED_POSITIONS: Final = ("topic", "partition", "offset")
_PROGRESS: Final = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} ("
    'group_id text, table_name text, topic text, "partition" integer, '
    "topic_id text NOT NULL, next_offset bigint NOT NULL, high_offset bigint NOT NULL, "
    "remade integer NOT NULL DEFAULT 0, "
    "low_offset bigint NOT NULL DEFAULT 0, gap_end bigint NOT NULL DEFAULT 0, "
    "cycle_id text NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(), "
    'PRIMARY KEY (group_id, table_name, topic, "partition")) WITH (fillfactor = 50)'
)
_ADDED_LATER: Final = {"remade": "integer", "low_offset": "bigint", "gap_end": "bigint"}
_ADD: Final = sql.SQL("ALTER TABLE {} ADD COLUMN {} {} NOT NULL DEFAULT 0")
_LOST: Final = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} ("
    'group_id text NOT NULL, topic text NOT NULL, "partition" integer NOT NULL, '
    "start_offset bigint NOT NULL, end_offset bigint NOT NULL, reason text NOT NULL, "
    "noticed_at timestamptz NOT NULL, cycle_id text NOT NULL, topic_id text NOT NULL DEFAULT '', "
    'PRIMARY KEY (group_id, topic, "partition", start_offset, end_offset, reason, topic_id))'
)
_LOST_KEY: Final = "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s) AND contype = 'p'"
_LOST_OF_EARLIER_VERSIONS: Final = sql.SQL(
    "ALTER TABLE {} ADD COLUMN topic_id text NOT NULL DEFAULT '', DROP CONSTRAINT {}, "
    'ADD PRIMARY KEY (group_id, topic, "partition", start_offset, end_offset, reason, topic_id)'
)


def check_columns(tables: Tables) -> None:
    """Raise for column names that PostgreSQL would truncate, and for types that it does not have."""
    for field in tables.rows:
        if len(field.name.encode()) > MOST_BYTES or "\0" in field.name:
            raise SchemaConflictError(
                f"PostgreSQL has no column with the name {field.name!r}: {MOST_BYTES} bytes are the most. "
                "Rename it, for example with SQL"
            )
        column_type(field.type)


def prepare(connection: Connection, name: TableName, tables: Tables) -> None:
    """Create missing tables and check existing ones, in one transaction.

    A new table starts without progress: that of an earlier table of the same name is deleted, so a dropped
    table is loaded from the beginning.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('millstream prepare', 0))")
    connection.execute(_PROGRESS.format(name.progress))
    there = read_columns(connection, name, PROGRESS) or ()
    for column, kind in _ADDED_LATER.items():
        if column not in there:  # created by an earlier version
            connection.execute(_ADD.format(name.progress, sql.Identifier(column), sql.SQL(kind)))
    relation = read_relation(connection, name, name.table)
    check_partitions(connection, name, tables)
    if relation is None:
        _create(connection, name.rows, tables.rows, tables.positions)
        forget = sql.SQL("DELETE FROM {} WHERE table_name = %s").format(placed(name.progress))
        connection.execute(forget, [name.table])
    else:
        _fit(connection, name, name.table, tables.rows, relation, add=tables.add_columns)
    _prepare_lost(connection, name)
    if tables.rejected is not None:
        _prepare_rejected(connection, name, tables.rejected)


def _prepare_lost(connection: Connection, name: TableName) -> None:
    connection.execute(_LOST.format(name.lost))
    if "topic_id" not in (read_columns(connection, name, name.table + LOST) or ()):
        (key,) = connection.execute(_LOST_KEY, [name.lost.as_string(connection)]).fetchone() or (None,)
        altered = _LOST_OF_EARLIER_VERSIONS.format(name.lost, sql.Identifier(str(key)))
        connection.execute(altered)


def _prepare_rejected(connection: Connection, name: TableName, schema: pa.Schema) -> None:
    table = name.table + REJECTED
    relation = read_relation(connection, name, table)
    if relation is None:
        _create(connection, name.rejected, schema, REJECTED_POSITIONS)
    else:
        _fit(connection, name, table, schema, relation, add=True)


def _create(
    connection: Connection, table: sql.Identifier, schema: pa.Schema, positions: tuple[str, ...]
) -> None:
    columns = sql.SQL(", ").join(_definition(field) for field in schema)
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, columns))
    # Not unique: rows of an aggregate share a position, and offsets of a recreated topic start from 0 again.
    # A block range index costs a load next to nothing, and lets a rewind find the rows it replaces.
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
    connection: Connection, name: TableName, table: str, schema: pa.Schema, relation: Relation, *, add: bool
) -> None:
    """Add missing columns if ``add`` allows it; raise where the table does not fit."""
    for field in check_fit(relation, table, schema, add=add):
        definition = _definition(field.with_nullable(True))
        connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(name.beside(table), definition))


def add_labels(connection: Connection, name: TableName, tables: Tables) -> None:
    """Add the column for ``Progress.label`` to both tables, unless they have it."""
    wanted = [(name.table, label_column(tables.positions))]
    if tables.rejected is not None:
        wanted.append((name.table + REJECTED, label_column(REJECTED_POSITIONS)))
    if wanted[0][1] in tables.rows.names:
        raise SchemaConflictError(
            f"the table {name} would hold two topics of one name, told apart by the column {wanted[0][1]}, "
            "but the load has a column of that name: rename it, or load the new topic into another table"
        )
    for table, column in wanted:
        if column not in (read_columns(connection, name, table) or ()):
            statement = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} text")
            connection.execute(statement.format(name.beside(table), sql.Identifier(column)))
