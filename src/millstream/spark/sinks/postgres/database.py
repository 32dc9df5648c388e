"""Connections to PostgreSQL, and its errors in a user's words."""

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
_UNHURRIED: Final = sql.SQL(
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
    "SET LOCAL lock_timeout = 0"
)
"""A load may take as long as it takes, whatever limits the database sets for people's queries."""

_PASSING: Final = (
    "08",  # the connection broke, or was not made
    "40",  # a deadlock, or two transactions that cannot both be
    "57P",  # the server stops, starts, or ended this connection
    "53300",  # too many connections
    "55P03",  # somebody holds a lock
    "25006",  # a standby answers, as in the middle of a failover
)
_REFUSED: Final = ("28", "42501", "3D000")
_REFUSALS: Final = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")
"""In the words of a server that lets nobody in: libpq does not hand on the code of such an error."""

_REMEDIES: Final = {
    "23": "The table has a rule of its own that a row breaks: keep such rows out with a check (--check), or "
    "drop that rule",
    "42501": "Grant it to this user, or load as another",
    "42703": "Somebody has altered the table: put that column back, or run the load again with add_columns "
    "(--add-columns)",
    "42P01": "Somebody has dropped or renamed it: run the load again, which makes it anew",
    "53100": "Make room on the server's disk, and run it again: that is safe",
}


def connect(address: PostgresAddress) -> Connection:
    """A new connection, in autocommit; raises psycopg's errors."""
    given = conninfo_to_dict(address.url)
    extra: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    # Nothing is prepared on the server, so that a pool between (PgBouncer) does not lose it.
    connection = psycopg.connect(
        address.url, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **extra
    )
    # The compare-and-set of a commit waits for the other's, and then looks at what it left.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


@contextmanager
def without_timeouts(connection: Connection) -> Iterator[Connection]:
    """One transaction, without the database's limits on time."""
    with connection.transaction():
        connection.execute(_UNHURRIED)
        yield connection


@contextmanager
def explained(address: PostgresAddress, doing: str) -> Iterator[None]:
    """What PostgreSQL raises becomes a SinkError that names the table, and what was being done."""
    try:
        yield
    except psycopg.Error as error:
        said = f"{address.name}: {doing}: {reason(error)}"
        raise _kind(error)(". ".join(filter(None, (said.rstrip("."), _remedy(error))))) from error


def _kind(error: psycopg.Error) -> type[SinkError]:
    """Whether it may pass (SinkUnavailableError), lasts (SinkRefusedError), or who knows (SinkError)."""
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
    """PostgreSQL's own words, on one line, with its detail and hint."""
    diagnosis = error.diag
    words = [diagnosis.message_primary, diagnosis.message_detail, diagnosis.message_hint]
    return "; ".join(" ".join(word.split()) for word in words if word) or " ".join(str(error).split())


class Database:
    """The driver's connection: opened when it is first needed, and again when it is lost."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._lock = threading.RLock()
        self._connection: Connection | None = None

    @contextmanager
    def session(self, doing: str) -> Iterator[Connection]:
        """A connection that works, for one thread at a time; raises SinkError."""
        with self._lock, explained(self.address, doing):
            yield self.connection()

    def connection(self) -> Connection:
        """The connection; a new one where there was none, or where it does not answer. Raises psycopg's
        errors.
        """
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
