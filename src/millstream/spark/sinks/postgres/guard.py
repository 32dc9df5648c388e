"""Tables that others may have changed: held as they are while a transaction writes to them, and looked at
afterwards where triggers or rules may have made something else of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from millstream.spark.sinks.base import SinkError, Tables, label_column
from millstream.spark.sinks.postgres.database import Connection
from millstream.spark.sinks.postgres.names import REJECTED, TableName, placed
from millstream.spark.sinks.postgres.relations import check_fit, read_relation


def hold(connection: Connection, name: TableName, tables: Tables, *, with_rejected: bool) -> set[str]:
    """Keep the tables from being altered until the transaction ends; which of them have triggers or rules.
    The one of rejected rows only where it is written to: a replay at the same moment keeps others from it.

    Raises SchemaConflictError where somebody has altered one since it was prepared, so that rows would not
    fit it, or would be stored as something else.
    """
    wanted = {name.table: tables.rows}
    if with_rejected and tables.rejected is not None:
        wanted[name.table + REJECTED] = tables.rejected
    # Without the partitions, which may be many: their columns are those of the whole table.
    names = sql.SQL(", ").join(sql.SQL("ONLY {}").format(name.beside(table)) for table in wanted)
    connection.execute(sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(names))
    watched = set()
    for table, schema in wanted.items():
        relation = read_relation(connection, name, table)
        assert relation is not None, "it is locked"
        check_fit(relation, table, schema, add=False)
        if relation.is_watched:
            watched.add(table)
    return watched


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one partition, with this label if there is one."""

    topic: str
    partition: int
    start: int
    end: int
    label: str | None
    is_empty: bool
    """Whether what was there has just been deleted."""


class RowCountGuard:
    """Counts what a table with triggers or rules holds of some ranges, before rows come and after."""

    def __init__(self, table: sql.Identifier, positions: tuple[str, str, str], spans: Sequence[Span]) -> None:
        self._table = table
        self._positions = positions
        self._spans = spans
        self._before = 0

    def begin(self, connection: Connection) -> None:
        """Raise where rows are left that were deleted."""
        counts = [self._count(connection, span) for span in self._spans]
        emptied = zip(self._spans, counts, strict=True)
        check_kept(connection, self._table, sum(count for span, count in emptied if span.is_empty))
        self._before = sum(counts)

    def end(self, connection: Connection, written: int) -> None:
        """Raise where not all came that were written, each to its place."""
        now = sum(self._count(connection, span) for span in self._spans)
        check_written(connection, self._table, written, now - self._before)

    def _count(self, connection: Connection, span: Span) -> int:
        topic, partition, offset = map(sql.Identifier, self._positions)
        statement = sql.SQL("SELECT count(*) FROM {} WHERE {} = %s AND {} = %s AND {} >= %s AND {} < %s")
        composed = statement.format(placed(self._table), topic, partition, offset, offset)
        values: list[object] = [span.topic, span.partition, span.start, span.end]
        if span.label is not None:
            composed += sql.SQL(" AND {} = %s").format(sql.Identifier(label_column(self._positions)))
            values.append(span.label)
        (found,) = connection.execute(composed, values).fetchone() or (0,)
        return int(str(found))


def check_kept(connection: Connection, table: sql.Identifier, left: int) -> None:
    """Raise where so many rows are left of those that were deleted."""
    if left:
        raise SinkError(
            f"{table.as_string(connection)}: {left} rows are there still after they were deleted: a trigger "
            "or rule of the table keeps them. Disable it for the load, or load into another table. Nothing "
            "was committed, and running again is safe"
        )


def check_written(connection: Connection, table: sql.Identifier, written: int, found: int) -> None:
    """Raise where another number of rows came than were written."""
    if found != written:
        raise SinkError(
            f"{table.as_string(connection)}: {written} rows were written and {found} of them are there: a "
            "trigger or rule of the table changes them, or puts them elsewhere. Disable it for the load, or "
            "load into another table. Nothing was committed, and running again is safe"
        )
