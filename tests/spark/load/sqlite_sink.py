"""A sink over SQLite, with two transactions as Delta has them: to try loads without another system.

Tasks leave their rows in a file; a commit takes them into the database.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Advance,
    Cycle,
    Loss,
    LostRange,
    Position,
    Progress,
    ProgressConflictError,
    Standing,
    Tables,
    TaskOutput,
    TaskWriter,
    Written,
)

ROWS, REJECTED = "rows", "rejected"


@dataclass(frozen=True)
class SqliteWriter:
    directory: str
    positions: tuple[str, str, str]

    def open(self) -> TaskOutput:
        return SqliteOutput(Path(self.directory), self.positions)


class SqliteOutput:
    def __init__(self, directory: Path, positions: tuple[str, str, str]) -> None:
        self._path = directory / f"{uuid.uuid4().hex}.task"
        self._positions = positions
        self._rows: dict[str, list[tuple[str, int, int, str]]] = {ROWS: [], REJECTED: []}

    def write_rows(self, batch: pa.RecordBatch) -> None:
        self._keep(ROWS, batch, self._positions)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        self._keep(REJECTED, batch, ("topic", "partition", "offset"))

    def _keep(self, table: str, batch: pa.RecordBatch, positions: tuple[str, str, str]) -> None:
        for row in batch.to_pylist():
            place = [row.pop(name) for name in positions]
            self._rows[table].append((*place, json.dumps(row, default=repr)))

    def finish(self) -> Written:
        self._path.write_bytes(pickle.dumps(self._rows))
        rows, rejected = len(self._rows[ROWS]), len(self._rows[REJECTED])
        return Written(rows, rejected, self._path.stat().st_size, 1, str(self._path).encode())

    def abort(self) -> None:
        with suppress(OSError):
            self._path.unlink()


class SqliteSink:
    """See ``Sink``. ``tables`` of the same directory are the same tables, whichever process asks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commits: list[Cycle] = []
        self._positions = ("topic", "partition", "offset")
        self._rejects = False

    @property
    def name(self) -> str:
        return f"sqlite:{self.directory}"

    def prepare(self, group_id: str, tables: Tables) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._positions = tables.positions
        self._rejects = tables.rejected is not None
        with self._database() as database:
            for table in (ROWS, REJECTED):
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} (topic, partition, offset, row, cycle_id)"
                )
            database.execute(
                "CREATE TABLE IF NOT EXISTS progress (name, group_id, topic, partition, next, high, topic_id,"
                " remade, low, gap_end, PRIMARY KEY (name, group_id, topic, partition))"
            )
            database.execute(
                "CREATE TABLE IF NOT EXISTS lost "
                "(group_id, topic, partition, start, end, reason, at, topic_id)"
            )

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        with self._database() as database:
            return {
                one: Standing(
                    self._progress(database, ROWS, group_id, one),
                    self._progress(database, REJECTED, group_id, one),
                )
                for one in partitions
            }

    def writer(self, cycle_id: str) -> TaskWriter:
        return SqliteWriter(str(self.directory), self._positions)

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        if self._rejects:
            with self._database() as database:
                self._advance(database, REJECTED, cycle)
            at("between tables")
        with self._database() as database:
            self._advance(database, ROWS, cycle)
            database.executemany(
                "INSERT INTO lost VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        cycle.group_id,
                        x.topic,
                        x.partition,
                        x.start,
                        x.end,
                        x.reason,
                        str(x.noticed_at),
                        x.topic_id,
                    )
                    for x in cycle.lost
                ],
            )
        self.commits.append(cycle)

    def _advance(self, database: sqlite3.Connection, table: str, cycle: Cycle) -> None:
        for advance in cycle.advances:
            where = TopicPartition(advance.topic, advance.partition)
            before = advance.expected.rows if table == ROWS else advance.expected.rejected
            if self._progress(database, table, cycle.group_id, where) != before:
                raise ProgressConflictError(f"{where} of {table} has moved")
            if advance.replaces(before):
                database.execute(
                    f"DELETE FROM {table} WHERE topic = ? AND partition = ? AND offset >= ? AND offset < ?",
                    (*where, advance.start, advance.end),
                )
            self._store(database, table, cycle.group_id, advance, before)
        for written in cycle.written:
            rows = pickle.loads(Path(written.payload.decode()).read_bytes())[table]
            database.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", [(*row, cycle.cycle_id) for row in rows]
            )

    def _store(
        self,
        database: sqlite3.Connection,
        table: str,
        group_id: str,
        advance: Advance,
        before: Progress | None,
    ) -> None:
        where = (table, group_id, advance.topic, advance.partition)
        database.execute(
            "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*where, *astuple(advance.after(before))),
        )

    def _progress(
        self, database: sqlite3.Connection, table: str, group_id: str, where: TopicPartition
    ) -> Progress | None:
        found = database.execute(
            "SELECT next, high, topic_id, remade, low, gap_end FROM progress "
            "WHERE name = ? AND group_id = ? AND topic = ? AND partition = ?",
            (table, group_id, *where),
        ).fetchone()
        return None if found is None else Progress(*found)

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        for one in written:
            with suppress(OSError):
                Path(one.payload.decode()).unlink()

    def lost(self, group_id: str) -> list[LostRange]:
        with self._database() as database:
            found = database.execute("SELECT * FROM lost WHERE group_id = ?", (group_id,)).fetchall()
        return [
            LostRange(topic, partition, start, end, Loss(reason), datetime.fromisoformat(at), topic_id)
            for _, topic, partition, start, end, reason, at, topic_id in found
        ]

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        raise NotImplementedError

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        raise NotImplementedError

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        return 0

    def close(self) -> None:
        pass

    # ---- for tests

    def positions(self, table: str = ROWS) -> list[tuple[str, int, int]]:
        """Where the rows came from, in order: a row that is there twice is there twice."""
        with self._database() as database:
            query = f"SELECT topic, partition, offset FROM {table} ORDER BY topic, partition, offset"
            return database.execute(query).fetchall()

    def values(self) -> list[dict[str, Any]]:
        with self._database() as database:
            found = database.execute("SELECT row FROM rows ORDER BY topic, partition, offset").fetchall()
        return [json.loads(row) for (row,) in found]

    def forget(self) -> None:
        """As if somebody had deleted the tables."""
        with self._database() as database:
            for table in (ROWS, REJECTED, "progress"):
                database.execute(f"DELETE FROM {table}")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        path = self.directory / "tables.sqlite"
        with closing(sqlite3.connect(path, timeout=120, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
