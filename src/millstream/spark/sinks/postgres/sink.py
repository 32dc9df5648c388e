"""PostgresSink: loads rows, rejected rows, lost ranges and progress in one PostgreSQL transaction.

A task copies its rows into staging tables of its own (``staging``). The driver moves them (``commit``) into
tables that ``prepare`` created or checked (``tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from millstream.errors import MissingExtraError, MisuseError

try:
    import psycopg
except ModuleNotFoundError as error:
    raise MissingExtraError("psycopg", "postgres") from error

from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Cycle,
    Loss,
    LostRange,
    Position,
    Progress,
    SinkError,
    Standing,
    Tables,
    Written,
)
from millstream.spark.sinks.postgres.commit import CycleCommit, read_groups, read_progress
from millstream.spark.sinks.postgres.database import Connection, Database
from millstream.spark.sinks.postgres.names import (
    LOST,
    PROGRESS,
    PostgresAddress,
    RowRange,
    TableName,
    in_range,
    placed,
)
from millstream.spark.sinks.postgres.partitions import partitioned_by
from millstream.spark.sinks.postgres.rejected import Pages, read_rejected, readmit
from millstream.spark.sinks.postgres.relations import exists
from millstream.spark.sinks.postgres.staging import (
    LITTER_S,
    PostgresWriter,
    Staged,
    cycle_hash,
    drop,
    staging_tables,
)
from millstream.spark.sinks.postgres.tables import check_columns, prepare


class PostgresSink:
    """A table of a PostgreSQL database; see ``Sink``.

    ``url`` is what libpq takes (``postgresql://user@host/database``); the table is given as ``table``, or in
    the URL as ``?table=``: ``orders``, ``sales.orders``, or in double quotes where a name has a dot in it.
    """

    joins_files: Final = False
    cycle_records: Final = 1_000_000
    """The most records of a cycle, unless the user bounds it: one transaction moves all of them."""

    def __init__(self, url: str, table: str | None = None) -> None:
        self._address = PostgresAddress.parse(url, table)
        self._database = Database(self._address)
        self._tables: Tables | None = None
        self._located: TableName | None = None
        self._labels: dict[TopicPartition, str] = {}
        """Of partitions whose rows have a label, as ``standing`` last read them."""
        self._unclean: set[str] = set()
        """Hashes of cycles that may have left staging tables behind, as the database was unavailable."""

    def __repr__(self) -> str:
        return f"PostgresSink({self.name})"

    @property
    def name(self) -> str:
        return self._address.name

    def check(self, tables: Tables) -> None:
        """Raise SchemaConflictError or SinkError for columns that PostgreSQL does not support."""
        check_columns(tables)

    def prepare(self, group_id: str, tables: Tables) -> None:
        self.check(tables)
        del group_id  # progress is stored by group, the tables are the same for all
        with self._database.session("preparing the tables") as connection:
            name = self._locate(connection)
            with connection.transaction():
                prepare(connection, name, tables)
            assert name.schema is not None
            old = [each for each, _, age_s in staging_tables(connection, name.schema) if age_s > LITTER_S]
            drop(connection, name, old)
        self._tables = tables

    def exists(self) -> bool:
        """Whether the table exists; ``prepare`` creates it where it does not."""
        with self._database.session("looking for the table") as connection:
            name = self._locate(connection)
            return exists(connection, name, name.table)

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        with self._database.session("reading progress") as connection:
            name = self._locate(connection)
            there = exists(connection, name, name.table) and exists(connection, name, PROGRESS)
            found = read_progress(connection, name, group_id) if there else {}
        standing = {partition: self._standing(found.get(partition)) for partition in partitions}
        for where, one in standing.items():
            self._label(where, one.rows)
        return standing

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        with self._database.session("reading progress") as connection:
            name = self._locate(connection)
            there = exists(connection, name, name.table) and exists(connection, name, PROGRESS)
            found = read_groups(connection, name) if there else {}
        return {topic: frozenset(found.get(topic, ())) - {group_id} for topic in topics}

    def partitioned_by(self) -> tuple[str, ...]:
        with self._database.session("reading the table's partitions") as connection:
            return partitioned_by(connection, self._locate(connection))

    def _label(self, where: TopicPartition, progress: Progress | None) -> None:
        if progress is not None and progress.label is not None:
            self._labels[where] = progress.label
        else:
            self._labels.pop(where, None)

    def _standing(self, found: tuple[Any, str] | None) -> Standing:
        """Both tables have the same progress; a load that rejects nothing has no second table."""
        if found is None:
            return Standing(None, None)
        rejects = self._tables is None or self._tables.rejected is not None
        return Standing(found[0], found[0] if rejects else None)

    def writer(self, cycle_id: str) -> PostgresWriter:
        address = replace(self._address, table=self._name_prepared())
        return PostgresWriter(address, self._tables_prepared(), cycle_id)

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        del at  # there is only one transaction
        with self._database.session("committing") as connection:
            CycleCommit(self._database, self._name_prepared(), self._tables_prepared(), cycle).run(connection)
        self._clean_up(cycle.cycle_id, ())

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        self._clean_up(cycle_id, written)

    def _clean_up(self, cycle_id: str, written: Iterable[Written]) -> None:
        """Drop the staging tables left of a cycle: of speculative tasks, and all if it was not committed.

        What cannot be dropped now is dropped with the next cycle's.
        """
        self._unclean.add(cycle_hash(cycle_id))
        with suppress(SinkError, psycopg.Error), self._database.session("cleaning up") as connection:
            name = self._locate(connection)
            named = {each for one in written for each in Staged.of(one).names}
            assert name.schema is not None
            found = staging_tables(connection, name.schema)
            left = drop(
                connection, name, named | {each for each, hash_, _ in found if hash_ in self._unclean}
            )
            self._unclean = {hash_ for each, hash_, _ in found if each in left}

    def lost(self, group_id: str) -> list[LostRange]:
        with self._database.session("reading lost ranges") as connection:
            name = self._locate(connection)
            if not exists(connection, name, name.table + LOST):
                return []
            return _read_lost(connection, name, group_id)

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        del at
        with self._database.session("moving repaired rows") as connection:
            name, tables = self._name_prepared(), self._tables_prepared()
            readmit(connection, name, tables, positions, list(written), dict(self._labels))

    def read_rejected(self, limit: int | None = None) -> Any:
        with self._database.session("reading rejected rows") as connection:
            return read_rejected(connection, self._locate(connection), limit)

    def rejected_batches(self) -> Iterator[Any]:
        with self._database.session("reading rejected rows") as connection:
            pages = Pages(connection, self._locate(connection))
        while True:
            with self._database.session("reading rejected rows") as connection:
                page = pages.next(connection)
            if page is None:
                return
            yield from page.to_batches()

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest offset of a row up to ``offset``: where the range of an aggregate starts."""
        names = self._tables_prepared().positions
        label = self._labels.get(TopicPartition(topic, partition))
        condition, values = in_range(names, RowRange(topic, partition, 0, offset + 1, label))
        statement = psycopg.sql.SQL("SELECT max({}) FROM {} WHERE ").format(
            psycopg.sql.Identifier(names[2]), placed(self._name_prepared().rows)
        )
        with self._database.session("reading positions") as connection:
            found = connection.execute(statement + condition, values).fetchone()
        return None if found is None or found[0] is None else int(str(found[0]))

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Does nothing: there are no files to join."""
        del target_bytes, at
        return 0

    def close(self) -> None:
        self._database.close()

    def _locate(self, connection: Connection) -> TableName:
        """The table with its schema: the given one, or the first of the search path."""
        if self._located is None:
            schema = self._address.table.schema
            if schema is None:
                (first,) = connection.execute("SELECT current_schema()").fetchone() or (None,)
                if first is None:
                    raise SinkError(
                        f"{self.name}: no schema of the search path exists: give table=SCHEMA.TABLE"
                    )
                schema = str(first)
            self._located = self._address.table.within(schema)
        return self._located

    def _name_prepared(self) -> TableName:
        self._tables_prepared()
        assert self._located is not None
        return self._located

    def _tables_prepared(self) -> Tables:
        if self._tables is None:
            raise MisuseError("call prepare() first")
        return self._tables


def _read_lost(connection: Connection, name: TableName, group_id: str) -> list[LostRange]:
    found = connection.execute(
        psycopg.sql.SQL(
            'SELECT topic, "partition", start_offset, end_offset, reason, noticed_at, '
            "coalesce(to_jsonb(l) ->> 'topic_id', '') FROM {} AS l "  # earlier versions lack this column
            "WHERE group_id = %s ORDER BY noticed_at, topic, 2, start_offset"
        ).format(placed(name.lost)),
        [group_id],
    )
    rows: list[tuple[Any, ...]] = found.fetchall()
    return [
        LostRange(topic, partition, start, end, Loss(reason), noticed_at, topic_id)
        for topic, partition, start, end, reason, noticed_at, topic_id in rows
    ]
