"""TopicSink: loads into a topic, each record once and in source order, with its source position.

Tasks make records of rows and send them to the driver (``rows``), which alone writes them (``commit``): the
records of a source partition go to one partition of the output, in order. Progress is in the topic
``NAME_progress`` (``journal``), rejected records are in ``NAME_rejected``.

There is no transaction: readers see a cycle's records as they are written, and each source partition is
committed on its own. A written record stays: a rewind appends its records again, and of two records with the
same source position the later one counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from millstream.config import AdminConfig
from millstream.errors import (
    ConfigError,
    MillstreamError,
    MisuseError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.spark.reading.schema import rejected_schema
from millstream.spark.sinks.base import (
    Advance,
    Cycle,
    Loss,
    LostRange,
    Position,
    SinkError,
    SinkRefusedError,
    Standing,
    Tables,
    Written,
)
from millstream.spark.sinks.topic.commit import OutputTopics, PartitionCommit, conflict
from millstream.spark.sinks.topic.journal import Entry, Journal, OutputPosition
from millstream.spark.sinks.topic.log import TopicLog
from millstream.spark.sinks.topic.rows import TopicWriter, rows_of, source_of

PROGRESS: Final = "_progress"
REJECTED: Final = "_rejected"
_ADDED_HEADERS: Final = 4
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


class TopicSink:
    """Loads into the topic ``name``; creates it with ``partitions`` (the broker's default) if it is missing.

    ``key`` names the column that becomes the records' key; a raw load keeps the records' own keys. Client
    settings are those of ``Admin``, as keywords (``bootstrap_servers="localhost:9092"``) or in ``settings``.
    """

    replaces: Final = False
    """A rewind appends records again, and replaces none."""
    joins_files: Final = False
    cycle_records: Final = 200_000
    cycle_bytes: Final = 64 << 20
    """Limits of a cycle unless the user sets others: the driver holds its rows in memory."""

    def __init__(
        self,
        name: str,
        *,
        partitions: int = -1,
        key: str | None = None,
        settings: Mapping[str, object] | None = None,
        **more: object,
    ) -> None:
        if not name:
            raise ConfigError("topic: needs the name of a topic: topic:orders-clean")
        self._output = OutputTopics(name, name + REJECTED)
        self._partitions = partitions
        self._key = key
        given = {**(settings or {}), **more}
        self._settings = {name.replace("_", "."): value for name, value in given.items()}
        self._log: TopicLog | None = None
        self._tables: Tables | None = None
        self._journals: dict[tuple[str, str], Journal] = {}
        self._held: dict[tuple[str, TopicPartition], Entry] = {}
        """The entry that our last commit wrote, by group and source partition."""

    def __repr__(self) -> str:
        return f"TopicSink({self._output.rows!r})"

    @property
    def name(self) -> str:
        return f"topic:{self._output.rows}"

    # -- before

    def check(self, tables: Tables) -> None:
        """Raise ConfigError for rows that cannot become records."""
        if tables.partition_by:
            raise ConfigError(
                f"{self.name}: a topic has no partition columns: leave partition_by out",
                setting="partition_by",
            )
        if tables.add_columns:
            raise ConfigError(
                f"{self.name}: a topic has no columns to add to: leave add_columns out", setting="add_columns"
            )
        if self._key is None:
            return
        if tables.positions[0] == "topic":
            raise ConfigError(
                f"{self.name}: raw records keep their own keys: leave key out, or give a schema"
            )
        if self._key not in tables.rows.names:
            raise ConfigError(
                f"{self.name}: there is no column {self._key} for the key. There are "
                f"{', '.join(tables.rows.names)}"
            )

    def written_topics(self, servers: str) -> tuple[str, ...]:
        """The topics that the sink writes on the brokers at ``servers``."""
        config = AdminConfig.from_settings(self._settings)
        if (
            config.bootstrap_servers
            != AdminConfig.from_settings({"bootstrap.servers": servers}).bootstrap_servers
        ):
            return ()
        return self._output.rows, self._output.rejected, self._output.rows + PROGRESS

    def prepare(self, group_id: str, tables: Tables) -> None:
        del group_id
        self.check(tables)
        log = self._open()
        log.admin.create_topic(self._output.rows, partitions=self._partitions, exist_ok=True)
        count = len(log.partitions(self._output.rows))
        log.admin.create_topic(self._output.rejected, partitions=count, exist_ok=True)
        name = self._output.rows + PROGRESS
        if log.admin.create_topic(name, partitions=1, configs={_POLICY: _COMPACT}, exist_ok=True) is None:
            self._check_policy(log, name)
        self._tables = tables

    def _check_policy(self, log: TopicLog, name: str) -> None:
        """Raise where retention may delete progress: records would be loaded twice."""
        try:
            entry = log.admin.topic_configs(name, [_POLICY]).get(_POLICY)
        except TopicAuthorizationFailedError:  # this user may write there, but not read its settings
            return
        if entry is not None and entry.value != _COMPACT:
            raise SinkRefusedError(
                f"{self.name}: the topic {name} has {_POLICY}={entry.value}, so brokers would delete the "
                "load's progress, and records would be loaded twice: change it with 'millstream topic config "
                f"{name} --set {_POLICY}={_COMPACT}'"
            )

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        journal = self._journal(group_id)
        return {where: self._standing(journal, where) for where in partitions}

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        journal = self._journal(group_id)
        return (
            {} if journal is None else {topic: frozenset(journal.others.get(topic, ())) for topic in topics}
        )

    def _standing(self, journal: Journal | None, where: TopicPartition) -> Standing:
        progress = None if journal is None else journal.progress(where)
        rejects = self._tables is None or self._tables.rejected is not None
        return Standing(progress, progress if rejects else None)

    def writer(self, cycle_id: str) -> TopicWriter:
        del cycle_id
        return TopicWriter(self._prepared(), self._key)

    # -- the commit

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        del at
        journal = self._journal(cycle.group_id)
        assert journal is not None, "prepare() makes the topics"
        cycle.require_alone(journal.others, self.name)
        steps = sorted(cycle.advances, key=lambda step: (step.topic, step.partition))
        for step in steps:
            self._compare(journal, step)
        rejected, rows = (rows_of(cycle.written, rejected=each) for each in (True, False))
        lost = [one for one in cycle.lost if one.reason is not Loss.LOADED]  # with the first partition
        loaded = [one for one in cycle.lost if one.reason is Loss.LOADED]  # with its own rows
        for step in steps:
            where = step.where
            entry = journal.entry(where) or self._identify(journal, where)
            held = self._held.pop((cycle.group_id, where), None)
            part = PartitionCommit(
                self._open(), journal, self._output, cycle, step, trusted=held is not None and held == entry
            )
            lost += [one for one in loaded if (one.topic, one.partition) == where]
            done = part.run(entry, rejected.get(where, ()), rows.get(where, ()), lost)
            lost = []
            if part.is_sure:
                self._held[cycle.group_id, where] = done

    def _compare(self, journal: Journal, step: Advance) -> None:
        standing = self._standing(journal, step.where)
        if standing != step.expected:
            raise conflict(journal, self._output, step)

    def _identify(self, journal: Journal, where: TopicPartition) -> Entry:
        """Choose a partition of the output and a producer id, once for each source partition."""
        log = self._open()
        partition = where.partition % len(log.partitions(self._output.rows))
        ends = [
            log.bound(TopicPartition(topic, partition), "latest")
            for topic in (self._output.rows, self._output.rejected)
        ]
        first = Entry(
            log.new_producer_id(), 0, partition, 0, OutputPosition(ends[0], 0), OutputPosition(ends[1], 0)
        )
        return journal.identify(where, first)

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        """Does nothing: tasks write nothing outside ``written``."""

    # -- reading

    def lost(self, group_id: str) -> list[LostRange]:
        journal = self._journal(group_id)
        found = [] if journal is None else list(journal.lost.values())
        return sorted(found, key=lambda each: each.noticed_at)

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        """Always raises: a record in NAME_rejected stays there."""
        raise SinkError(
            f"{self.name}: rejected records cannot leave a topic: produce the repaired ones to the source"
        )

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        found = self._read_rejected()
        if limit is None:
            rows = sorted(found, key=_newness)
        else:
            rows = heapq.nlargest(limit, found, key=_newness)[::-1]
        return pa.Table.from_pylist(rows, rejected_schema())

    def _read_rejected(self) -> Iterator[dict[str, Any]]:
        log = self._open()
        try:
            partitions = log.partitions(self._output.rejected)
        except UnknownTopicOrPartitionError:
            return
        for partition in partitions:
            for record in log.read(partition, 0, ("offset", "timestamp", "key", "value", "headers")):
                if (row := _rejected_row(record)) is not None:
                    yield row

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Does nothing: there are no files to join."""
        del target_bytes, at
        return 0

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    # -- inside

    def _open(self) -> TopicLog:
        if self._log is None:
            self._log = TopicLog(self._settings)
        return self._log

    def _journal(self, group_id: str) -> Journal | None:
        """The journal of a group, read to its end; None where there are no topics yet."""
        log = self._open()
        names = self._output.rows, self._output.rows + PROGRESS
        try:
            output_id = log.admin.describe_topics(names)[self._output.rows].topic_id
        except UnknownTopicOrPartitionError:
            return None
        journal = self._journals.get((output_id, group_id))
        if journal is None:
            journal = self._journals[output_id, group_id] = Journal(log, names[1], output_id, group_id)
        try:
            journal.refresh()
        except MillstreamError as error:
            raise SinkError(f"{self.name}: the progress cannot be read from {names[1]}: {error}") from error
        return journal

    def _prepared(self) -> Tables:
        if self._tables is None:
            raise MisuseError("call prepare() first")
        return self._tables


def _newness(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["rejected_at"], row["topic"], row["partition"], row["offset"]


def _rejected_row(record: dict[str, Any]) -> dict[str, Any] | None:
    source = source_of(record["headers"])
    if source is None:
        return None
    headers = record["headers"][:-_ADDED_HEADERS]
    reason, at = (each["value"].decode() for each in record["headers"][-_ADDED_HEADERS:-2])
    (topic, partition), offset, _ = source
    return {
        **record,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "headers": headers or None,
        "reason": reason,
        "rejected_at": datetime.fromisoformat(at),
    }
