"""Rejected rows: read for users and replays, and moved to the rows once they are repaired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from psycopg import sql

from millstream.model import TopicPartition
from millstream.spark.reading.schema import rejected_schema
from millstream.spark.sinks.base import Position, SinkError, Tables, Written, label_column
from millstream.spark.sinks.json_values import headers_of
from millstream.spark.sinks.postgres.database import Connection, without_timeouts
from millstream.spark.sinks.postgres.guard import check_kept, check_written, hold
from millstream.spark.sinks.postgres.moving import Labels, all_there, drop_moved, move
from millstream.spark.sinks.postgres.names import REJECTED, TableName, placed
from millstream.spark.sinks.postgres.relations import read_columns
from millstream.spark.sinks.postgres.tables import REJECTED_POSITIONS

_GIVEN: Final = sql.SQL(
    "unnest(%s::text[], %s::int[], %s::bigint[], %s::text[]) AS given(topic_, partition_, offset_, label_)"
)
_SAME: Final = sql.SQL("{0} = topic_ AND {1} = partition_ AND {2} = offset_")
_LEAVES: Final = (
    "SELECT oid::regclass::text, pg_relation_size(oid) / current_setting('block_size')::bigint FROM pg_class "
    "WHERE relkind = 'r' AND (oid = %(name)s::regclass "
    "OR oid IN (SELECT relid FROM pg_partition_tree(%(name)s::regclass)))"
)
"""The table or its partitions, with the number of blocks of each."""
_FIRST_BLOCKS: Final = 16
_MOST_GROWTH: Final = 8
_PAGE_ROWS: Final = 20_000
_PAGE_BYTES: Final = 16 << 20
"""The target size of a page. Rows take several times as much as Python objects."""
_LABELLED: Final = sql.SQL(" AND {} IS NOT DISTINCT FROM label_")


def readmit(
    connection: Connection,
    name: TableName,
    tables: Tables,
    positions: Sequence[Position],
    written: Sequence[Written],
    labels: Labels,
) -> None:
    """Move repaired rows in one transaction; see ``Sink.readmit``."""
    given = _Given(positions, labels)
    with without_timeouts(connection):
        # Serializes with a load that replaces the same rows.
        lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(name.rejected)
        connection.execute(lock)
        if not all_there(connection, name, written):
            _check_done(connection, name, given)
            return
        watched = hold(connection, name, tables, with_rejected=True)
        _delete(connection, name.rows, tables.positions, given)
        _delete(connection, name.rejected, REJECTED_POSITIONS, given)
        if watched:
            check_kept(connection, name.rows, _count(connection, name.rows, tables.positions, given))
            check_kept(
                connection, name.rejected, _count(connection, name.rejected, REJECTED_POSITIONS, given)
            )
        for each in written:
            move(connection, name, tables, each, labels)
        if name.table in watched:
            found = _count(connection, name.rows, tables.positions, given)
            check_written(connection, name.rows, sum(each.rows for each in written), found)
        drop_moved(connection, name, written)


class _Given:
    """The rows at some positions, of the current topics of these names."""

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


def _count(
    connection: Connection, table: sql.Identifier, columns: tuple[str, str, str], given: _Given
) -> int:
    statement = sql.SQL("SELECT count(*) FROM {}, {} WHERE {}").format(
        placed(table), _GIVEN, given.condition(columns)
    )
    (found,) = connection.execute(statement, given.values).fetchone() or (0,)
    return int(str(found))


def _check_done(connection: Connection, name: TableName, given: _Given) -> None:
    """Raise unless an earlier call has moved the rows: their staging tables are gone."""
    left = _count(connection, name.rejected, REJECTED_POSITIONS, given)
    if left:
        raise SinkError(
            f"{name}: the repaired rows are no longer staged, and {left} are still rejected: rerun"
        )


def read_rejected(connection: Connection, name: TableName, limit: int | None) -> pa.Table:
    """The newest rejected rows, at most ``limit`` of them, newest last."""
    columns = _columns(connection, name)
    if columns is None:
        return rejected_schema().empty_table()
    newest = sql.SQL('ORDER BY rejected_at DESC, topic DESC, "partition" DESC, "offset" DESC LIMIT {}')
    found = connection.execute(_select(columns, name.rejected) + newest.format(sql.Literal(limit))).fetchall()
    return _table(reversed(found), columns)


class Pages:
    """Reads the rejected rows page by page, in the order of blocks on disk: this needs no sort and no open
    transaction, and deleting rows meanwhile moves no others. Rows that are added meanwhile may be left out.
    """

    def __init__(self, connection: Connection, name: TableName) -> None:
        columns = _columns(connection, name)
        self._columns = rejected_schema() if columns is None else columns
        self._left: list[tuple[sql.SQL, int, int]] = []
        """The table or its partitions: the next block to read, and the number of blocks."""
        if columns is not None:
            found = connection.execute(_LEAVES, {"name": name.rejected.as_string(connection)}).fetchall()
            # regclass::text is quoted already.
            self._left = [(sql.SQL(str(table)), 0, int(str(blocks))) for table, blocks in found]
        self._blocks = _FIRST_BLOCKS

    def next(self, connection: Connection) -> pa.Table | None:
        """The next page, which may be empty; None at the end."""
        if not self._left:
            return None
        table, start, end = self._left.pop()
        stop = min(start + self._blocks, end)
        if stop < end:
            self._left.append((table, stop, end))
        statement = _select(self._columns, table) + sql.SQL(
            "WHERE ctid >= {}::tid AND ctid < {}::tid"
        ).format(sql.Literal(f"({start},0)"), sql.Literal(f"({stop},0)"))
        page = _table(connection.execute(statement).fetchall(), self._columns)
        self._adapt(page)
        return page

    def _adapt(self, page: pa.Table) -> None:
        """Adapt the number of blocks: a block has few rows or hundreds, and large values are elsewhere."""
        fraction = max(page.num_rows / _PAGE_ROWS, page.nbytes / _PAGE_BYTES, 1 / _MOST_GROWTH)
        self._blocks = max(1, int(self._blocks / fraction))


def _columns(connection: Connection, name: TableName) -> pa.Schema | None:
    """The columns to read; None where there is no such table."""
    there = read_columns(connection, name, name.table + REJECTED)
    if there is None:
        return None
    label = label_column(REJECTED_POSITIONS)
    schema: pa.Schema = rejected_schema()
    return schema.append(pa.field(label, pa.string())) if label in there else schema


def _select(columns: pa.Schema, table: sql.Composable) -> sql.Composed:
    return sql.SQL("SELECT {} FROM {} ").format(sql.SQL(", ").join(map(_selected, columns)), table)


def _table(found: Iterable[tuple[object, ...]], columns: pa.Schema) -> pa.Table:
    rows: list[dict[str, Any]] = [dict(zip(columns.names, row, strict=True)) for row in found]
    for row in rows:
        row["headers"] = headers_of(row["headers"])
    return pa.Table.from_pylist(rows, columns)


def _selected(field: pa.Field) -> sql.Composable:
    """Select timestamps as numbers: Python's end with the year 9999."""
    if pa.types.is_timestamp(field.type):
        return sql.SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(sql.Identifier(field.name))
    return sql.Identifier(field.name)
