"""Declarative partitions of a PostgreSQL table: compared with a load's, and how derived columns are derived.

A load does not create partitions. Its user creates the table with PARTITION BY and its partitions. How a load
derives a partition column is kept as that column's comment, if it has no comment and the load may write one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from millstream.spark.sinks.base import SinkError, Tables
from millstream.spark.sinks.partitioning import DERIVED, derivation, require_same, spelled, spelled_in
from millstream.spark.sinks.postgres.database import Connection
from millstream.spark.sinks.postgres.names import TableName

_KEY: Final = (
    "SELECT attname, col_description(attrelid, attnum), pg_has_role(relowner, 'USAGE') "
    "FROM pg_partitioned_table JOIN pg_class ON pg_class.oid = partrelid, "
    "unnest(partattrs::smallint[]) WITH ORDINALITY AS key (number, place) "
    "LEFT JOIN pg_attribute ON attrelid = to_regclass(%s) AND attnum = number "
    "WHERE partrelid = to_regclass(%s) ORDER BY place"
)
_REMEMBERED: Final = f"{DERIVED}: "


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a table's partition key."""

    name: str | None
    """None for an expression."""
    comment: str | None
    may_comment: bool

    @property
    def expression(self) -> str:
        """As in ``partition_by``."""
        comment = self.comment or ""
        return spelled(
            str(self.name), comment.removeprefix(_REMEMBERED) if comment.startswith(_REMEMBERED) else None
        )


def read_key(connection: Connection, name: TableName) -> list[KeyColumn]:
    """The partition key of the table; empty where it has none, or does not exist."""
    table = name.rows.as_string(connection)
    rows: list[tuple[Any, ...]] = connection.execute(_KEY, [table, table]).fetchall()
    return [KeyColumn(*row) for row in rows]


def partitioned_by(connection: Connection, name: TableName) -> tuple[str, ...]:
    """The columns of the partition key, as in ``partition_by``; empty where it has expressions."""
    key = read_key(connection, name)
    return () if any(column.name is None for column in key) else tuple(column.expression for column in key)


def check_partitions(connection: Connection, name: TableName, tables: Tables) -> None:
    """Raise SinkError unless the table is partitioned as the load says; keep how its columns are derived.

    A partition may be partitioned further: the table's own key comes first.
    """
    if not tables.partition_by:
        return
    key = read_key(connection, name)
    if not key:
        raise SinkError(
            f"PostgreSQL needs partitions to be created first: create {name} with PARTITION BY "
            f"({', '.join(tables.partition_by)}) and its partitions, or leave out "
            "partition_by (--partition-by)"
        )
    if any(column.name is None for column in key):
        return
    there = [column.expression for column in key]
    require_same(f"the table {name}", there, spelled_in(tables.rows, tables.partition_by[: len(key)]))
    for column in key:
        derived = derivation(tables.rows.field(column.name))
        if derived is not None and column.comment is None and column.may_comment:
            _remember(connection, name, str(column.name), derived)


def _remember(connection: Connection, name: TableName, column: str, expression: str) -> None:
    comment = sql.SQL("COMMENT ON COLUMN {}.{} IS {}")
    text = sql.Literal(_REMEMBERED + expression)
    connection.execute(comment.format(name.rows, sql.Identifier(column), text))
