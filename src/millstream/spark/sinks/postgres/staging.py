"""A task's output: rows in staging tables of its own, by binary COPY, until a commit moves them.

An attempt creates its tables and their rows in one transaction, so an attempt that dies leaves nothing. One
that finishes leaves at most two tables, named after the time and the cycle. A commit moves and drops those
that it names, and drops those of speculative tasks. What a dead driver left is dropped after a day.

The tables are unlogged: they cost no WAL, but are empty after a crash of PostgreSQL. So a commit counts the
rows that it moves.
"""

from __future__ import annotations

import json
import re
import select
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter

from millstream.spark.sinks.base import SinkError, Tables, Written
from millstream.spark.sinks.postgres.copy import HEADER, TRAILER, encoded
from millstream.spark.sinks.postgres.database import Connection, connect, explained, without_timeouts
from millstream.spark.sinks.postgres.names import PostgresAddress, TableName
from millstream.spark.sinks.postgres.types import column_type, refusal

LITTER_S: Final = 86_400
"""Older staging tables are dropped: no cycle takes a day."""
_PIECE: Final = 128 << 10
_NAME: Final = re.compile(r"millstream_staging_(?P<made>\d+)_(?P<cycle>[0-9a-f]{16})_[0-9a-f]{8}_(rows|bad)")


@dataclass(frozen=True, slots=True)
class Staged:
    """The staging tables of one attempt, as in ``Written.payload``; None where it wrote no such rows."""

    rows: str | None
    rejected: str | None

    def to_bytes(self) -> bytes:
        return json.dumps([self.rows, self.rejected]).encode()

    @classmethod
    def of(cls, written: Written) -> Staged:
        return cls(*json.loads(written.payload))

    @property
    def names(self) -> list[str]:
        return [name for name in (self.rows, self.rejected) if name is not None]


@dataclass(frozen=True, slots=True)
class PostgresWriter:
    """Pickled into tasks; see ``TaskWriter``."""

    address: PostgresAddress
    tables: Tables
    cycle_id: str

    def open(self) -> PostgresOutput:
        return PostgresOutput(self)

    def refusals(self, batch: pa.RecordBatch) -> pa.Array | None:
        """See ``RefusesRows``. A row that does not fit and is passed to ``write_rows`` fails the task."""
        return refusals(batch)


class PostgresOutput:
    """One attempt; see ``TaskOutput``. Connects when the first row is written."""

    def __init__(self, writer: PostgresWriter) -> None:
        self._writer = writer
        self._stack = ExitStack()
        self._connection: Connection | None = None
        self._streams: dict[str, _Stream] = {}
        self._open: _Stream | None = None
        self._stem = _stem(writer.cycle_id)
        self._size = 0

    def write_rows(self, batch: pa.RecordBatch) -> None:
        self._check(batch)
        self._write("rows", self._writer.tables.rows, batch)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        assert self._writer.tables.rejected is not None, "a raw load rejects nothing"
        self._write("bad", self._writer.tables.rejected, _without_nul(batch))

    def _write(self, kind: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        with explained(self._writer.address, "writing rows"):
            stream = self._stream(kind, schema)
            self._size += stream.write(batch.select(schema.names))

    def _check(self, batch: pa.RecordBatch) -> None:
        reasons = refusals(batch)
        if reasons is None:
            return
        row = pc.index(pc.is_valid(reasons), True).as_py()
        topic, partition, offset = (batch.column(name)[row] for name in self._writer.tables.positions)
        raise SinkError(
            f"{self._writer.address.name}: {topic}-{partition} offset {offset}: {reasons[row]}; keep such "
            f"rows out with a check, change them with SQL, or store the column as BINARY"
        )

    def _stream(self, kind: str, schema: pa.Schema) -> _Stream:
        """The open COPY of one of the tables. A connection has one at a time, so this ends the other's."""
        stream = self._streams.get(kind)
        if stream is None or stream is not self._open:
            self._end_stream()
            if stream is None:
                connection = self._connection or self._connect()
                name = f"{self._stem}_{kind}"
                stream = self._streams[kind] = _Stream(connection, self._writer.address.table, name, schema)
            stream.begin()
            self._open = stream
        return stream

    def _connect(self) -> Connection:
        connection = self._stack.enter_context(connect(self._writer.address))
        self._stack.enter_context(without_timeouts(connection))
        connection.execute("SET LOCAL synchronous_commit = off")  # a commit counts the rows it moves
        self._connection = connection
        return connection

    def _end_stream(self) -> None:
        if self._open is not None:
            self._open.end()
            self._open = None

    def finish(self) -> Written:
        with explained(self._writer.address, "ending a task's rows"):
            self._end_stream()
            self._stack.close()
        rows, rejected = self._streams.get("rows"), self._streams.get("bad")
        staged = Staged(rows.name if rows else None, rejected.name if rejected else None)
        return Written(
            rows=rows.count if rows else 0,
            rejected=rejected.count if rejected else 0,
            size=self._size,
            files=len(staged.names),
            payload=staged.to_bytes(),
        )

    def abort(self) -> None:
        """Close the connection: its transaction, which created the tables, is rolled back."""
        if self._connection is not None:
            self._connection.close()
        if self._open is not None:
            self._open.give_up()
            self._open = None
        with suppress(Exception):
            self._stack.close()


class FlushingWriter(LibpqWriter):
    """Flushes after each piece. Otherwise libpq buffers what the server has not read, without bound, and
    copies the buffer with each write, which takes most of the time of a COPY.
    """

    def write(self, data: Buffer) -> None:
        whole = memoryview(data)
        for start in range(0, len(whole), _PIECE):
            super().write(whole[start : start + _PIECE])
            self._flush()

    def _flush(self) -> None:
        connection = self.connection.pgconn
        while connection.flush():
            poller = select.poll()
            poller.register(connection.socket, select.POLLIN | select.POLLOUT)
            if any(event & select.POLLIN for _, event in poller.poll()):
                connection.consume_input()


class _Stream:
    """The binary COPY into one staging table."""

    def __init__(self, connection: Connection, beside: TableName, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.count = 0
        self._connection = connection
        self._types = tuple(column_type(field.type) for field in schema)
        self._table = beside.beside(name)
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(kind.staging))
            for field, kind in zip(schema, self._types, strict=True)
        ]
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = off)").format(
                self._table, sql.SQL(", ").join(columns)
            )
        )

    def begin(self) -> None:
        cursor = self._connection.cursor()
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(self._table)
        self._context = cursor.copy(statement, writer=FlushingWriter(cursor))
        self._copy = self._context.__enter__()
        self._copy.write(HEADER)

    def write(self, batch: pa.RecordBatch) -> int:
        size = 0
        for piece in encoded(batch, self._types):
            self._copy.write(piece)
            size += len(piece)
        self.count += batch.num_rows
        return size

    def end(self) -> None:
        self._copy.write(TRAILER)
        self._context.__exit__(None, None, None)

    def give_up(self) -> None:
        """Release a COPY whose connection is closed."""
        error = ConnectionAbortedError("the task was aborted")
        with suppress(Exception):
            self._context.__exit__(type(error), error, None)


def refusals(batch: pa.RecordBatch) -> pa.Array | None:
    """For each row why PostgreSQL cannot hold it, null where it can; None where it can hold all."""
    reasons = None
    for field, column in zip(batch.schema, batch.columns, strict=True):
        found = refusal(column, column_type(field.type).form)
        if found is not None:
            said = pc.if_else(found[0], f"{field.name} {found[1]}", pa.scalar(None, pa.string()))
            reasons = said if reasons is None else pc.coalesce(reasons, said)
    return reasons


def _without_nul(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Reasons quote what was wrong, which may be just that character: a person reads them, so show it."""
    if "reason" not in batch.schema.names:
        return batch
    index = batch.schema.get_field_index("reason")
    reasons = pc.replace_substring(batch.column(index), "\0", "\\u0000")
    return batch.set_column(index, batch.schema.field(index), reasons)


def cycle_hash(cycle_id: str) -> str:
    """The hash of a cycle in the names of its staging tables."""
    return blake2b(cycle_id.encode(), digest_size=8).hexdigest()


def _stem(cycle_id: str) -> str:
    return f"millstream_staging_{int(time.time())}_{cycle_hash(cycle_id)}_{uuid.uuid4().hex[:8]}"


def staging_tables(connection: Connection, schema: str) -> list[tuple[str, str, int]]:
    """The staging tables in a schema: name, ``cycle_hash``, age in seconds."""
    found = connection.execute(
        "SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace "
        "WHERE nspname = %s AND relkind = 'r' AND relname LIKE 'millstream\\_staging\\_%%'",
        [schema],
    )
    matches = [match for (name,) in found if (match := _NAME.fullmatch(str(name)))]
    return [(match[0], match["cycle"], int(time.time()) - int(match["made"])) for match in matches]


def drop(connection: Connection, beside: TableName, names: Iterable[str]) -> set[str]:
    """Drop staging tables, each in its own transaction; returns those that are still in use."""
    left = set(names)
    for name in tuple(left):
        with suppress(psycopg.Error):
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '2s'")
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(beside.beside(name)))
            left.discard(name)
    return left
