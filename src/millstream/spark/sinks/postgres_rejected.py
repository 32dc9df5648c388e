"""Rejected rows: read again, and moved among the rows once they are repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from psycopg import sql

from millstream.model import TopicPartition
from millstream.spark.schema import arrow_schema
from millstream.spark.sinks.base import Position, SinkError, Tables, Written, label_column
from millstream.spark.sinks.json_values import headers_of
from millstream.spark.sinks.postgres_commit import Labels, all_there, drop_moved, move
from millstream.spark.sinks.postgres_database import Connection, unhurried
from millstream.spark.sinks.postgres_names import REJECTED, TableName, placed
from millstream.spark.sinks.postgres_tables import REJECTED_POSITIONS, read_columns

_OF_RECORD: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_GIVEN: Final = sql.SQL(
    "unnest(%s::text[], %s::int[], %s::bigint[], %s::text[]) AS given(topic_, partition_, offset_, label_)"
)
_SAME: Final = sql.SQL("{0} = topic_ AND {1} = partition_ AND {2} = offset_")
_LABELLED: Final = sql.SQL(" AND {} IS NOT DISTINCT FROM label_")


def readmit(
    connection: Connection,
    name: TableName,
    tables: Tables,
    positions: Sequence[Position],
    written: Sequence[Written],
    labels: Labels,
) -> None:
    """Move repaired rows, in one transaction; see ``Sink.readmit``."""
    given = _Given(positions, labels)
    with unhurried(connection):
        # A load that replaces the same rows at this moment waits here, or lets this wait for it.
        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(name.rejected)
        connection.execute(lock)
        if not all_there(connection, name, written):
            _check_done(connection, name, given)
            return
        _delete(connection, name.rows, tables.positions, given)
        _delete(connection, name.rejected, REJECTED_POSITIONS, given)
        for each in written:
            move(connection, name, tables, each, labels)
        drop_moved(connection, name, written)


class _Given:
    """The rows that are meant: from these positions, of the topics that they are of now."""

    def __init__(self, positions: Sequence[Position], labels: Labels) -> None:
        self._labels = labels
        self.values: list[list[Any]] = [[position[index] for position in positions] for index in range(3)] + [
            [labels.get(TopicPartition(one.topic, one.partition)) for one in positions]
        ]

    def condition(self, columns: tuple[str, str, str]) -> sql.Composed:
        same = _SAME.format(*map(sql.Identifier, columns))
        return same + _LABELLED.format(sql.Identifier(label_column(columns))) if self._labels else same


def _delete(
    connection: Connection, table: sql.Identifier, columns: tuple[str, str, str], given: _Given
) -> None:
    statement = sql.SQL("DELETE FROM {} USING {} WHERE {}").format(
        placed(table), _GIVEN, given.condition(columns)
    )
    connection.execute(statement, given.values)


def _check_done(connection: Connection, name: TableName, given: _Given) -> None:
    """What was staged is gone: that is right where an earlier call has moved it."""
    statement = sql.SQL("SELECT count(*) FROM {}, {} WHERE {}").format(
        placed(name.rejected), _GIVEN, given.condition(REJECTED_POSITIONS)
    )
    (left,) = connection.execute(statement, given.values).fetchone() or (0,)
    if left:
        raise SinkError(
            f"{name}: the repaired rows are no longer staged, and {left} are still rejected: rerun"
        )


def schema() -> pa.Schema:
    """The columns of the rejected rows."""
    record: pa.Schema = arrow_schema(_OF_RECORD)
    for field in (pa.field("reason", pa.string()), pa.field("rejected_at", pa.timestamp("us", "UTC"))):
        record = record.append(field)
    return record


def read_rejected(connection: Connection, name: TableName, limit: int | None) -> pa.Table:
    """The newest rejected rows, at most ``limit`` of them, newest last."""
    columns = schema()
    there = read_columns(connection, name, name.table + REJECTED)
    if there is None:
        return columns.empty_table()
    label = label_column(REJECTED_POSITIONS)
    if label in there:
        columns = columns.append(pa.field(label, pa.string()))
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
