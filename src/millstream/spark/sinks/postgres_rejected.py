"""Rejected rows: read again, and moved among the rows once they are repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from psycopg import sql

from millstream.spark.schema import arrow_schema
from millstream.spark.sinks.base import Position, SinkError, Tables, Written
from millstream.spark.sinks.json_values import headers_of
from millstream.spark.sinks.postgres_commit import REJECTED_POSITIONS, all_there, drop_moved, move
from millstream.spark.sinks.postgres_database import Connection, unhurried
from millstream.spark.sinks.postgres_names import REJECTED, TableName, placed
from millstream.spark.sinks.postgres_tables import exists

_OF_RECORD: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_GIVEN: Final = sql.SQL("unnest(%s::text[], %s::int[], %s::bigint[]) AS given(topic_, partition_, offset_)")
_SAME: Final = sql.SQL("{0} = topic_ AND {1} = partition_ AND {2} = offset_")


def readmit(
    connection: Connection,
    name: TableName,
    tables: Tables,
    positions: Sequence[Position],
    written: Sequence[Written],
) -> None:
    """Move repaired rows, in one transaction; see ``Sink.readmit``."""
    with unhurried(connection):
        # A load that replaces the same rows at this moment waits here, or lets this wait for it.
        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(name.rejected)
        connection.execute(lock)
        if not all_there(connection, name, written):
            _check_done(connection, name, positions)
            return
        _delete(connection, name.rows, tables.positions, positions)
        _delete(connection, name.rejected, REJECTED_POSITIONS, positions)
        for each in written:
            move(connection, name, tables, each)
        drop_moved(connection, name, written)


def _delete(
    connection: Connection,
    table: sql.Identifier,
    columns: tuple[str, str, str],
    positions: Sequence[Position],
) -> None:
    same = _SAME.format(*map(sql.Identifier, columns))
    statement = sql.SQL("DELETE FROM {} USING {} WHERE {}").format(placed(table), _GIVEN, same)
    connection.execute(statement, _columns(positions))


def _check_done(connection: Connection, name: TableName, positions: Sequence[Position]) -> None:
    """What was staged is gone: that is right where an earlier call has moved it."""
    same = _SAME.format(*map(sql.Identifier, REJECTED_POSITIONS))
    statement = sql.SQL("SELECT count(*) FROM {}, {} WHERE {}").format(placed(name.rejected), _GIVEN, same)
    (left,) = connection.execute(statement, _columns(positions)).fetchone() or (0,)
    if left:
        raise SinkError(
            f"{name}: the repaired rows are no longer staged, and {left} are still rejected: rerun"
        )


def _columns(positions: Sequence[Position]) -> list[list[Any]]:
    return [[position[index] for position in positions] for index in range(3)]


def schema() -> pa.Schema:
    """The columns of the rejected rows."""
    record: pa.Schema = arrow_schema(_OF_RECORD)
    for field in (pa.field("reason", pa.string()), pa.field("rejected_at", pa.timestamp("us", "UTC"))):
        record = record.append(field)
    return record


def read_rejected(connection: Connection, name: TableName, limit: int | None) -> pa.Table:
    """The newest rejected rows, at most ``limit`` of them, newest last."""
    columns = schema()
    if not exists(connection, name, name.table + REJECTED):
        return columns.empty_table()
    newest = sql.SQL('ORDER BY rejected_at DESC, topic DESC, "partition" DESC, "offset" DESC LIMIT {}')
    found = connection.execute(
        sql.SQL("SELECT {} FROM {} {}").format(
            sql.SQL(", ").join(map(_selected, columns)),
            name.rejected,
            newest.format(sql.Literal(limit)),
        )
    ).fetchall()
    rows = [dict(zip(columns.names, row, strict=True)) for row in reversed(found)]
    for row in rows:
        row["headers"] = headers_of(row["headers"])
    return pa.Table.from_pylist(rows, columns)


def _selected(field: pa.Field) -> sql.Composable:
    """Times as numbers: Python's end with the year 9999."""
    if pa.types.is_timestamp(field.type):
        return sql.SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(sql.Identifier(field.name))
    return sql.Identifier(field.name)
