"""The commit of a cycle: progress, rows, rejected rows and lost ranges in one transaction.

The progress rows come first. Each is compared and set by one statement, which waits for any other transaction
that has changed the row and then sees its result: of two drivers that start from the same progress, one moves
it and the other finds it moved. Partitions are updated in order, so two commits cannot deadlock.

The transaction holds an advisory lock named after the cycle. If the connection is lost during the commit, a
new connection takes that lock: by then the transaction has ended, and the progress rows show how, as they
hold the id of the cycle that wrote them.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from typing import Final

import psycopg
from psycopg import sql

from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Advance,
    Cycle,
    LostRange,
    Progress,
    ProgressConflictError,
    SinkError,
    SinkUnavailableError,
    Tables,
)
from millstream.spark.sinks.postgres.database import Connection, Database, without_timeouts
from millstream.spark.sinks.postgres.guard import RowCountGuard, hold
from millstream.spark.sinks.postgres.moving import drop_moved, move
from millstream.spark.sinks.postgres.names import REJECTED, RowRange, TableName, in_range, placed
from millstream.spark.sinks.postgres.tables import REJECTED_POSITIONS, add_labels

_PATIENCE_S: Final = 60.0
"""How long to try to read the outcome of a commit whose connection was lost."""
_GRACE_MS: Final = 5_000
"""How long its transaction may run before it is terminated: it may wait for a client that is gone."""

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_HOLDERS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks, hashtextextended(%s, 0) AS key "
    "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = (key >> 32) & 4294967295 AND objid::bigint = key & 4294967295"
)
_FIRST: Final = sql.SQL(
    'INSERT INTO {} (group_id, table_name, topic, "partition", topic_id, next_offset, high_offset, '
    "low_offset, cycle_id) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_NEXT: Final = sql.SQL(
    "UPDATE {} SET topic_id = %s, next_offset = %s, high_offset = %s, remade = %s, low_offset = %s, "
    "gap_end = %s, cycle_id = %s, committed_at = now() "
    'WHERE group_id = %s AND table_name = %s AND topic = %s AND "partition" = %s '
    "AND topic_id = %s AND next_offset = %s AND high_offset = %s AND low_offset = %s AND gap_end = %s"
)
_STALE_REJECTED: Final = sql.SQL(
    'DELETE FROM {} WHERE topic = %s AND "partition" = %s AND "offset" >= %s AND NOT EXISTS '
    '(SELECT FROM {} WHERE group_id <> %s AND table_name = %s AND topic = %s AND "partition" = %s)'
)
_LOST: Final = sql.SQL(
    'INSERT INTO {} (group_id, topic, "partition", start_offset, end_offset, reason, noticed_at, cycle_id, '
    "topic_id) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)


def read_progress(
    connection: Connection, name: TableName, group_id: str
) -> dict[TopicPartition, tuple[Progress, str]]:
    """Each partition's progress, and the id of the cycle that wrote it."""
    found = connection.execute(
        sql.SQL(
            'SELECT topic, "partition", next_offset, high_offset, topic_id, cycle_id, '
            "coalesce((to_jsonb(p) ->> 'remade')::bigint, 0), "  # earlier versions lack these columns
            "coalesce((to_jsonb(p) ->> 'low_offset')::bigint, 0), "
            "coalesce((to_jsonb(p) ->> 'gap_end')::bigint, 0) "
            "FROM {} AS p WHERE group_id = %s AND table_name = %s"
        ).format(placed(name.progress)),
        [group_id, name.table],
    )
    return {
        TopicPartition(str(topic), int(str(partition))): (
            Progress(int(str(next_offset)), int(str(high_offset)), str(topic_id), *map(int, map(str, rare))),
            str(cycle_id),
        )
        for topic, partition, next_offset, high_offset, topic_id, cycle_id, *rare in found
    }


def read_groups(connection: Connection, name: TableName) -> dict[str, set[str]]:
    """The groups that have progress in the table, by topic."""
    statement = sql.SQL("SELECT DISTINCT topic, group_id FROM {} WHERE table_name = %s")
    found: dict[str, set[str]] = {}
    for topic, group_id in connection.execute(statement.format(placed(name.progress)), [name.table]):
        found.setdefault(str(topic), set()).add(str(group_id))
    return found


class CycleCommit:
    """The commit of one cycle; see the module."""

    def __init__(self, database: Database, name: TableName, tables: Tables, cycle: Cycle) -> None:
        self._database = database
        self._name = name
        self._tables = tables
        self._cycle = cycle
        self._advances = sorted(cycle.advances, key=lambda step: (step.topic, step.partition))
        self._labels = {
            step.where: label
            for step in self._advances
            if (label := step.after(step.expected.rows).label) is not None
        }

    def run(self, connection: Connection) -> None:
        """Commit, and read the progress back; raises when nothing was committed."""
        try:
            with without_timeouts(connection):
                connection.execute(_LOCK, [self._cycle.cycle_id])
                self._apply(connection)
        except psycopg.OperationalError:
            if not connection.closed:
                raise
            self._find_out()
        else:
            self._read_back(connection)

    def _apply(self, connection: Connection) -> None:
        self._move_progress(connection)
        if self._labels:
            add_labels(connection, self._name, self._tables)
        watched = self._hold(connection) if self._cycle.written else set()
        self._replace(connection)
        guards = self._guards(watched)
        for guard, _ in guards:
            guard.begin(connection)
        for written in self._cycle.written:
            move(connection, self._name, self._tables, written, self._labels)
        for guard, count in guards:
            guard.end(connection, count)
        self._add_lost(connection)
        drop_moved(connection, self._name, self._cycle.written)

    # -- progress

    def _move_progress(self, connection: Connection) -> None:
        """Compare and set the progress; waits here while another commit's transaction runs."""
        if any(step.alone for step in self._advances):  # of groups that begin together, one goes first
            connection.execute(_LOCK, [f"millstream first {self._name}"])
            self._cycle.require_alone(read_groups(connection, self._name), f"the table {self._name}")
        if self._tables.rejected is not None and any(
            step.expected.rows != step.expected.rejected for step in self._advances
        ):
            raise self._conflict(connection)  # both tables must have the same progress
        further = [step for step in self._advances if step.expected.rows is not None]
        first = [step for step in self._advances if step.expected.rows is None]
        if self._changed(connection, _NEXT, [self._next(step) for step in further]) < len(further):
            raise self._conflict(connection)
        if self._changed(connection, _FIRST, [self._first(step) for step in first]) < len(first):
            raise self._conflict(connection)

    def _changed(self, connection: Connection, statement: sql.SQL, values: Sequence[list[object]]) -> int:
        if not values:
            return 0
        with connection.cursor() as cursor:
            cursor.executemany(statement.format(placed(self._name.progress)), values)
            return cursor.rowcount

    def _key(self, step: Advance) -> list[object]:
        return [self._cycle.group_id, self._name.table, step.topic, step.partition]

    def _first(self, step: Advance) -> list[object]:
        after = step.after(None)
        return [
            *self._key(step),
            after.topic_id,
            after.next_offset,
            after.high_offset,
            after.low_offset,
            self._cycle.cycle_id,
        ]

    def _next(self, step: Advance) -> list[object]:
        before = step.expected.rows
        assert before is not None
        after = step.after(before)
        new = [after.topic_id, after.next_offset, after.high_offset, after.remade]
        new += [after.low_offset, after.gap_end, self._cycle.cycle_id]
        old = [before.topic_id, before.next_offset, before.high_offset, before.low_offset, before.gap_end]
        return [*new, *self._key(step), *old]

    def _conflict(self, connection: Connection) -> ProgressConflictError:
        return self._conflict_of(read_progress(connection, self._name, self._cycle.group_id))

    def _conflict_of(self, found: Mapping[TopicPartition, tuple[Progress, str]]) -> ProgressConflictError:
        """Names the partitions whose progress is not the expected one, and the cycle that moved them."""
        moved = []
        for step in self._advances:
            now = found.get(step.where)
            if (now and now[0]) != step.expected.rows:
                moved.append(f"{step.where} {_told(step.expected.rows, now)}")
        what = "; ".join(moved) or "at this moment"
        return ProgressConflictError(
            f"another driver moved the group {self._cycle.group_id} in the table {self._name}: {what}"
        )

    # -- rows

    def _replace(self, connection: Connection) -> None:
        for step in self._advances:
            if step.expected.rows is None and self._tables.rejected is not None:
                self._delete_stale(connection, step)
            if step.replaces(step.expected.rows):
                self._delete(connection, self._name.rows, self._tables.positions, step)
                if self._tables.rejected is not None:
                    self._delete(connection, self._name.rejected, REJECTED_POSITIONS, step)

    def _delete_stale(self, connection: Connection, step: Advance) -> None:
        """Delete rejected rows of a dropped table that is loaded again, as they will be rejected again. Those
        before the start stay: they are not read again.
        """
        statement = _STALE_REJECTED.format(placed(self._name.rejected), placed(self._name.progress))
        group = [self._cycle.group_id, self._name.table]
        connection.execute(statement, [*step.where, step.start, *group, *step.where])

    def _delete(
        self, connection: Connection, table: sql.Identifier, positions: tuple[str, str, str], step: Advance
    ) -> None:
        condition, values = in_range(positions, self._rows(step))
        connection.execute(sql.SQL("DELETE FROM {} WHERE ").format(placed(table)) + condition, values)

    def _rows(self, step: Advance) -> RowRange:
        return RowRange(*step.where, step.start, step.end, self._labels.get(step.where))

    def _hold(self, connection: Connection) -> set[str]:
        rejects = any(written.rejected for written in self._cycle.written)
        replaces = any(step.replaces(step.expected.rows) for step in self._advances)
        return hold(connection, self._name, self._tables, with_rejected=rejects or replaces)

    def _guards(self, watched: Container[str]) -> list[tuple[RowCountGuard, int]]:
        """For each table with triggers or rules: its guard, and how many rows are written to it."""
        emptied: list[RowRange] = []
        others: list[RowRange] = []
        for step in self._advances:
            (emptied if step.replaces(step.expected.rows) else others).append(self._rows(step))
        found = []
        if self._name.table in watched:
            count = sum(written.rows for written in self._cycle.written)
            found.append((RowCountGuard(self._name.rows, self._tables.positions, emptied, others), count))
        if self._name.table + REJECTED in watched:
            count = sum(written.rejected for written in self._cycle.written)
            found.append((RowCountGuard(self._name.rejected, REJECTED_POSITIONS, emptied, others), count))
        return found

    def _add_lost(self, connection: Connection) -> None:
        if not self._cycle.lost:
            return
        with connection.cursor() as cursor:
            cursor.executemany(
                _LOST.format(placed(self._name.lost)), [self._lost_row(each) for each in self._cycle.lost]
            )

    def _lost_row(self, lost: LostRange) -> list[object]:
        offsets = [lost.topic, lost.partition, lost.start, lost.end]
        found = [lost.reason.value, lost.noticed_at, self._cycle.cycle_id, lost.topic_id]
        return [self._cycle.group_id, *offsets, *found]

    # -- afterwards

    def _read_back(self, connection: Connection) -> None:
        """Raise unless the progress is what was committed, or has moved on from it."""
        found = read_progress(connection, self._name, self._cycle.group_id)
        for step in self._advances:
            now = found.get(step.where)
            after = step.after(step.expected.rows)
            ours = now == (after, self._cycle.cycle_id)
            if not ours and (now is None or now[1] == self._cycle.cycle_id or now[0] == step.expected.rows):
                raise SinkError(
                    f"{self._database.address.name}: the progress of {step.where} was committed as "
                    f"{step.end} and reads {'nothing' if now is None else now[0].next_offset}: is there a "
                    "trigger on the tables, or a connection pool that answers for the database?"
                )

    def _find_out(self) -> None:
        """Return if the transaction was committed; raise if it was not, or if that is unknown."""
        found = self._progress_afterwards()
        now = [found.get(step.where) for step in self._advances]
        if all(each is not None and each[1] == self._cycle.cycle_id for each in now):
            return
        if any(
            (each and each[0]) != step.expected.rows for step, each in zip(self._advances, now, strict=True)
        ):
            raise self._conflict_of(found)
        raise SinkUnavailableError(
            f"{self._database.address.name}: the connection was lost and nothing was committed; "
            f"rerunning is safe"
        )

    def _progress_afterwards(self) -> dict[TopicPartition, tuple[Progress, str]]:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                connection = self._database.connection()
                self._wait_for_end(connection)
                return read_progress(connection, self._name, self._cycle.group_id)
            except psycopg.OperationalError as error:
                if time.monotonic() >= deadline_s:
                    raise SinkUnavailableError(
                        f"{self._database.address.name}: the connection was lost during a commit, and the "
                        f"database does not say whether it was made ({' '.join(str(error).split())}); "
                        "rerunning is safe: a load continues from the progress in the table"
                    ) from error
                time.sleep(0.2)

    def _wait_for_end(self, connection: Connection) -> None:
        """Wait until the lost connection's transaction has ended; terminate it after ``_GRACE_MS``."""
        try:
            with connection.transaction():
                connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(_GRACE_MS))
                connection.execute(_LOCK, [self._cycle.cycle_id])
        except psycopg.errors.LockNotAvailable:
            connection.execute(_HOLDERS, [self._cycle.cycle_id])
            raise  # the caller tries again until it has ended


def _told(expected: Progress | None, now: tuple[Progress, str] | None) -> str:
    before = "nothing" if expected is None else str(expected.next_offset)
    if now is None:
        return f"was at {before} and has no progress now"
    return f"was at {before} and is at {now[0].next_offset} (cycle {now[1]})"
