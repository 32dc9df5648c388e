"""Where the loads of these tests write to: read as any user would read it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow.parquet as pq
from deltalake import DeltaTable
from psycopg.rows import dict_row

from millstream.spark.sinks.base import Sink
from millstream.spark.sinks.kinds import sink_for


class Place(Protocol):
    """A table and its rejected rows."""

    @property
    def address(self) -> str:
        """What ``--to`` takes."""

    def sink(self) -> Sink: ...

    def close(self) -> None:
        """Close the sinks that were made."""

    def rows(self) -> list[dict[str, Any]]: ...

    def rejected(self) -> list[dict[str, Any]]: ...

    def litter(self) -> set[str]:
        """What attempts of tasks have left that no commit names, and no reader sees."""


class DeltaPlace:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "orders"

    def close(self) -> None:
        """Nothing is held open."""

    @property
    def address(self) -> str:
        return f"delta:{self._path}"

    def sink(self) -> Sink:
        return sink_for(self.address, ["orders"], {})

    def rows(self) -> list[dict[str, Any]]:
        return _files(self._path)

    def rejected(self) -> list[dict[str, Any]]:
        return _files(self._path.with_name("orders_rejected"))

    def litter(self) -> set[str]:
        tables = [self._path, self._path.with_name("orders_rejected")]
        there = {str(file) for table in tables for file in table.rglob("*.parquet")}
        there = {file for file in there if "/_delta_log/" not in file}
        named = {
            uri.removeprefix("file://") for table in tables for uri in DeltaTable(str(table)).file_uris()
        }
        return there - named


def _files(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for uri in DeltaTable(str(path)).file_uris():
        found += pq.ParquetFile(uri.removeprefix("file://")).read().to_pylist()
    return found


class PostgresPlace:
    def __init__(self, url: str) -> None:
        self._url = url
        self._table = f"orders_{uuid.uuid4().hex[:12]}"
        self._sinks: list[Sink] = []

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    @property
    def address(self) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}table={self._table}"

    def sink(self) -> Sink:
        self._sinks.append(sink_for(self.address, ["orders"], {}))
        return self._sinks[-1]

    def rows(self) -> list[dict[str, Any]]:
        return self._read(self._table)

    def rejected(self) -> list[dict[str, Any]]:
        return self._read(f"{self._table}_rejected")

    def _read(self, table: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.cursor(row_factory=dict_row).execute(f'SELECT * FROM "{table}"').fetchall()

    def litter(self) -> set[str]:
        """Of any load: the names of staging tables do not say whose they are."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(
                "SELECT tablename FROM pg_tables WHERE tablename LIKE 'millstream\\_staging%'"
            )
            return {str(name) for (name,) in found}

    @contextmanager
    def commits_held(self) -> Iterator[Callable[[], bool]]:
        """Inside, a commit stops in the middle of its transaction; gives a function: whether one has.

        A server that crashes forgets that it holds anything up.
        """
        key = uuid.uuid4().int % (1 << 31)
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(
                f"""
                CREATE FUNCTION hold_{self._table}() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_advisory_xact_lock({key}); RETURN NULL; END $$;
                CREATE TRIGGER hold AFTER INSERT ON "{self._table}"
                FOR EACH STATEMENT EXECUTE FUNCTION hold_{self._table}();
                SELECT pg_advisory_lock({key})
                """
            )
            waiting = f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = {key} AND NOT granted"
            try:
                yield lambda: connection.execute(waiting).fetchone() is not None
            finally:
                with suppress(psycopg.OperationalError):  # the lock is gone with the connection
                    connection.execute(f"SELECT pg_advisory_unlock({key})")
                    connection.execute(
                        f'DROP TRIGGER hold ON "{self._table}"'
                    )  # once the transaction is over
