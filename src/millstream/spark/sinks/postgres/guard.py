"""Guards against changes by others: locks tables during a transaction, and counts rows behind triggers."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from millstream.spark.sinks.base import SinkError, Tables
from millstream.spark.sinks.postgres.database import Connection
from millstream.spark.sinks.postgres.names import REJECTED, RowRange, TableName, in_range, placed
from millstream.spark.sinks.postgres.relations import check_fit, read_relation


def hold(connection: Connection, name: TableName, tables: Tables, *, with_rejected: bool) -> set[str]:
    """Lock the tables against ALTER until the transaction ends; returns those that have triggers or rules.

    The rejected rows are locked only if they are written to, as a replay locks them for itself. Raises
    SchemaConflictError where a table was altered since ``prepare``, so that rows would not fit.
    """
    wanted = {name.table: tables.rows}
    if with_rejected and tables.rejected is not None:
        wanted[name.table + REJECTED] = tables.rejected
    # Without the partitions, which may be many: they have the columns of the whole table.
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


class RowCountGuard:
    """Counts what a table with triggers or rules holds of some ranges, before and after rows are written.

    The rows of ``emptied`` have just been deleted; ``others`` may hold rows.
    """

    def __init__(
        self,
        table: sql.Identifier,
        positions: tuple[str, str, str],
        emptied: Sequence[RowRange],
        others: Sequence[RowRange],
    ) -> None:
        self._table = table
        self._positions = positions
        self._emptied = emptied
        self._others = others
        self._before = 0

    def begin(self, connection: Connection) -> None:
        """Raise where deleted rows are still there."""
        check_kept(connection, self._table, self._count(connection, self._emptied))
        self._before = self._count(connection, self._others)

    def end(self, connection: Connection, written: int) -> None:
        """Raise where the ranges have not grown by the number of rows that were written."""
        now = self._count(connection, self._emptied) + self._count(connection, self._others)
        check_written(connection, self._table, written, now - self._before)

    def _count(self, connection: Connection, ranges: Sequence[RowRange]) -> int:
        total = 0
        for each in ranges:
            condition, values = in_range(self._positions, each)
            statement = sql.SQL("SELECT count(*) FROM {} WHERE ").format(placed(self._table)) + condition
            (found,) = connection.execute(statement, values).fetchone() or (0,)
            total += int(str(found))
        return total


def check_kept(connection: Connection, table: sql.Identifier, left: int) -> None:
    """Raise where ``left`` rows remain of those that were deleted."""
    if left:
        raise SinkError(
            f"{table.as_string(connection)}: {left} rows remain after they were deleted: a trigger or "
            "rule of the table keeps them. Disable it for the load, or load into another table. Nothing "
            "was committed, and running again is safe"
        )


def check_written(connection: Connection, table: sql.Identifier, written: int, found: int) -> None:
    """Raise where the table has ``found`` new rows instead of those ``written``."""
    if found != written:
        raise SinkError(
            f"{table.as_string(connection)}: {written} rows were written and {found} of them are there: a "
            "trigger or rule of the table changes them, or puts them elsewhere. Disable it for the load, or "
            "load into another table. Nothing was committed, and running again is safe"
        )
