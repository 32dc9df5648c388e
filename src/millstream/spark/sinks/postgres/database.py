"""Connections to PostgreSQL, and its errors as SinkErrors with a remedy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from millstream.spark.sinks.base import SinkError, SinkRefusedError, SinkUnavailableError
from millstream.spark.sinks.postgres.names import PostgresAddress

Connection = psycopg.Connection[tuple[object, ...]]

_DEFAULTS: Final = {"connect_timeout": 10, "application_name": "millstream", "keepalives_idle": 30}
"""Unless the address says otherwise."""
_NO_TIMEOUTS: Final = sql.SQL(
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
    "SET LOCAL lock_timeout = 0"
)
"""Timeouts that the database sets for queries do not apply to a load."""

_PASSING: Final = (
    "08",  # the connection failed
    "40",  # a deadlock, or a serialization failure
    "57P",  # the server stops, starts, or terminated this connection
    "53300",  # too many connections
    "55P03",  # a lock is not available
    "25006",  # a standby answers, as during a failover
)
_REFUSED: Final = ("28", "42501", "3D000")
_REFUSALS: Final = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")
"""Texts of refused connections: libpq does not pass on the code of such an error."""

_REMEDIES: Final = {
    "23": "A row violates a constraint of the table: keep such rows out with a check (--check), or drop the "
    "constraint",
    "42501": "Grant it to this user, or load as another",
    "42703": "The table was altered: put that column back, or run the load again with add_columns "
    "(--add-columns)",
    "42P01": "It was dropped or renamed: run the load again, which creates it",
    "53100": "Make room on the server's disk, and run it again: that is safe",
}


def connect(address: PostgresAddress) -> Connection:
    """A new connection, in autocommit; raises psycopg's errors."""
    given = conninfo_to_dict(address.url)
    extra: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    # No prepared statements: a connection pool (PgBouncer) could lose them.
    connection = psycopg.connect(
        address.url, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **extra
    )
    # The compare-and-set of a commit waits for another commit, and must then see its result.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


@contextmanager
def without_timeouts(connection: Connection) -> Iterator[Connection]:
    """One transaction, without the database's timeouts."""
    with connection.transaction():
        connection.execute(_NO_TIMEOUTS)
        yield connection


@contextmanager
def explained(address: PostgresAddress, doing: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into a SinkError that names the table and the operation."""
    try:
        yield
    except psycopg.Error as error:
        said = f"{address.name}: {doing}: {reason(error)}"
        raise _kind(error)(". ".join(filter(None, (said.rstrip("."), _remedy(error))))) from error


def _kind(error: psycopg.Error) -> type[SinkError]:
    """Transient errors are SinkUnavailableError, permanent ones SinkRefusedError, others SinkError."""
    if error.sqlstate is None:
        if not isinstance(error, psycopg.OperationalError):
            return SinkError
        refused = any(words in str(error) for words in _REFUSALS)
        return SinkRefusedError if refused else SinkUnavailableError
    if error.sqlstate.startswith(_REFUSED):
        return SinkRefusedError
    return SinkUnavailableError if error.sqlstate.startswith(_PASSING) else SinkError


def _remedy(error: psycopg.Error) -> str:
    state = error.sqlstate or ""
    return next((remedy for code, remedy in _REMEDIES.items() if state.startswith(code)), "")


def reason(error: psycopg.Error) -> str:
    """PostgreSQL's message on one line, with its detail and hint."""
    diagnosis = error.diag
    words = [diagnosis.message_primary, diagnosis.message_detail, diagnosis.message_hint]
    return "; ".join(" ".join(word.split()) for word in words if word) or " ".join(str(error).split())


class Database:
    """The driver's connection: opened on first use, and again when it is lost."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._lock = threading.RLock()
        self._connection: Connection | None = None

    @contextmanager
    def session(self, doing: str) -> Iterator[Connection]:
        """A working connection, for one thread at a time; raises SinkError."""
        with self._lock, explained(self.address, doing):
            yield self.connection()

    def connection(self) -> Connection:
        """The connection, or a new one if it does not answer; raises psycopg's errors."""
        if self._connection is not None and not _is_alive(self._connection):
            self.close()
        if self._connection is None:
            self._connection = connect(self.address)
        return self._connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _is_alive(connection: Connection) -> bool:
    if connection.closed:
        return False
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
