"""A schema of a real PostgreSQL for one test, read as any client reads it, and faults in its commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from millstream.spark.sinks.postgres import commit as postgres_commit
from millstream.spark.sinks.postgres.database import Connection, without_timeouts
from millstream.spark.sinks.postgres.sink import PostgresSink

TABLE: Final = "orders"

Transaction = Callable[[Connection], AbstractContextManager[Connection]]


class PostgresSite:
    """See ``Site``."""

    def __init__(self, url: str, table: str = TABLE) -> None:
        self.url = url
        self.table = table
        self.schema = f"t{uuid.uuid4().hex}"
        self.sinks: list[PostgresSink] = []
        self.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        self.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.schema)))

    def sink(self) -> PostgresSink:
        name = self.table.replace('"', '""')
        self.sinks.append(PostgresSink(self.url, table=f'{self.schema}."{name}"'))
        return self.sinks[-1]

    def rows(self) -> list[dict[str, Any]]:
        return self.read(self.table)

    def rejected(self) -> list[dict[str, Any]]:
        return self.read(f"{self.table}_rejected")

    def read(self, table: str) -> list[dict[str, Any]]:
        try:
            return self.query(sql.SQL("SELECT * FROM {}").format(sql.Identifier(self.schema, table)))
        except psycopg.errors.UndefinedTable:
            return []

    def query(self, statement: sql.Composed) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.cursor(row_factory=dict_row).execute(statement).fetchall()

    def execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def run(self, statement: str, *, schema: bool = False, only_schema: bool = False) -> None:
        """Run a statement with the table for ``{}``, or with the schema and then the table."""
        names = [sql.Identifier(self.schema)] if schema or only_schema else []
        if not only_schema:
            names.append(sql.Identifier(self.schema, self.table))
        self.execute(sql.SQL(statement).format(*names))

    def tables(self) -> set[str]:
        """The names of all tables of the schema."""
        statement = sql.SQL("SELECT tablename FROM pg_tables WHERE schemaname = {}")
        return {row["tablename"] for row in self.query(statement.format(self.schema))}

    def staged(self) -> set[str]:
        return {name for name in self.tables() if name.startswith("millstream_staging")}

    # -- faults

    def refusing(self) -> AbstractContextManager[None]:
        return _instead(_refused)

    def answer_lost(self) -> AbstractContextManager[None]:
        return _instead(_answer_lost)

    def swallowing(self) -> AbstractContextManager[None]:
        return _instead(_swallowed)


@contextmanager
def _instead(transaction: Transaction) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_commit, "without_timeouts", transaction)
        yield


@contextmanager
def _refused(connection: Connection) -> Iterator[Connection]:
    """The database goes away in the middle of the transaction."""
    with without_timeouts(connection):
        yield connection
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        with psycopg.connect(connection.info.dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        connection.execute("SELECT 1")


@contextmanager
def _answer_lost(connection: Connection) -> Iterator[Connection]:
    with without_timeouts(connection):
        yield connection
    connection.close()
    raise psycopg.OperationalError("the connection was cut")


@contextmanager
def _swallowed(connection: Connection) -> Iterator[Connection]:
    with without_timeouts(connection) as inner:
        yield inner
        raise psycopg.Rollback
