"""Moves staged rows into the tables, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from millstream.model import TopicPartition
from millstream.spark.sinks.base import SinkUnavailableError, Tables, Written, label_column
from millstream.spark.sinks.postgres.database import Connection
from millstream.spark.sinks.postgres.names import TableName
from millstream.spark.sinks.postgres.relations import exists
from millstream.spark.sinks.postgres.staging import Staged
from millstream.spark.sinks.postgres.tables import REJECTED_POSITIONS
from millstream.spark.sinks.postgres.types import column_type

Labels = Mapping[TopicPartition, str]
"""The labels of those partitions whose rows have one: see ``Progress.label``."""


def move(connection: Connection, name: TableName, tables: Tables, written: Written, labels: Labels) -> None:
    """Insert what one attempt staged into the tables."""
    staged = Staged.of(written)
    if staged.rows is not None:
        rows = _Moved(staged.rows, tables.rows, tables.positions, written.rows)
        _insert(connection, name, name.rows, rows, labels)
    if staged.rejected is not None:
        assert tables.rejected is not None, "a raw load rejects nothing"
        rejected = _Moved(staged.rejected, tables.rejected, REJECTED_POSITIONS, written.rejected)
        _insert(connection, name, name.rejected, rejected, labels)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A staging table: its columns, the names of its positions, and how many rows it has."""

    staged: str
    schema: pa.Schema
    positions: tuple[str, str, str]
    count: int


def _insert(
    connection: Connection, name: TableName, table: sql.Identifier, moved: _Moved, labels: Labels
) -> None:
    columns: list[sql.Composable] = [sql.Identifier(field.name) for field in moved.schema]
    values: list[sql.Composable] = [
        sql.SQL("{}::{}").format(sql.Identifier(field.name), sql.SQL(column_type(field.type).target))
        for field in moved.schema
    ]
    if labels:
        columns.append(sql.Identifier(label_column(moved.positions)))
        values.append(_label(labels, moved.positions))
    statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
        table, sql.SQL(", ").join(columns), sql.SQL(", ").join(values), name.beside(moved.staged)
    )
    count = connection.execute(statement).rowcount
    if count != moved.count:
        raise SinkUnavailableError(
            f"{name}: a task wrote {moved.count} rows and {count} of them are there: did the server restart? "
            f"Or does a trigger or rule of the table keep rows out? Nothing was committed; rerunning is safe"
        )


def _label(labels: Labels, positions: tuple[str, str, str]) -> sql.Composable:
    """The label of a row, by its partition."""
    topic, partition = map(sql.Identifier, positions[:2])
    cases = [
        sql.SQL("WHEN {} = {} AND {} = {} THEN {}").format(
            topic, sql.Literal(where.topic), partition, sql.Literal(where.partition), sql.Literal(label)
        )
        for where, label in labels.items()
    ]
    return sql.SQL("CASE {} END").format(sql.SQL(" ").join(cases))


def drop_moved(connection: Connection, name: TableName, written: Iterable[Written]) -> None:
    """Drop the staging tables in the same transaction that inserts their rows."""
    names = [name.beside(each) for one in written for each in Staged.of(one).names]
    if names:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.SQL(", ").join(names)))


def all_there(connection: Connection, name: TableName, written: Iterable[Written]) -> bool:
    """Whether all staging tables still exist."""
    return all(exists(connection, name, each) for one in written for each in Staged.of(one).names)
