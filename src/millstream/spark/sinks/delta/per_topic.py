"""DeltaTopicsSink: a Delta table for each topic, under one load: ``delta:lake/{topic}``.

The table of a topic is that of a ``DeltaSink``, with rejected rows, lost ranges and progress of its own. As a
partition is in one table only, the rules of ``sinks.base`` hold for each table by itself. A cycle is
committed one table after the other: a driver that dies in between leaves some tables a cycle ahead, and the
next plan starts each partition where its table stands.
"""

from __future__ import annotations

import glob
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ConfigError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Cycle,
    LostRange,
    Position,
    Standing,
    Tables,
    TaskOutput,
    TaskWriter,
    Written,
)
from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.log import LOG
from millstream.spark.sinks.delta.places.place import place_of
from millstream.spark.sinks.delta.sink import TARGET_FILE_SIZE, DeltaSink
from millstream.spark.sinks.delta.steps import conflict

TOPIC: Final = "{topic}"
"""What a path has in the place of the topic's name."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_BESIDE: Final = ("_rejected", "_lost")
"""How the tables end that are beside a table of rows."""


class _EveryTable(DeltaSink):
    """What the tables of all topics have in common."""

    _of_topics = True


class DeltaTopicsSink:
    """Loads the rows of each topic into a Delta table of its own: ``DeltaTopicsSink("lake/{topic}")``.

    A topic's tables are created when it is first loaded. The parameters are those of ``DeltaSink``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        target_file_size: int = TARGET_FILE_SIZE,
        compression: str = "snappy",
    ) -> None:
        self._path = os.fspath(path)
        if self._path.count(TOPIC) != 1:
            raise ConfigError(f"a table for each topic needs {TOPIC} once in its path, not {self._path!r}")
        self._options = storage_options
        given: dict[str, Any] = {
            "storage_options": storage_options,
            "target_file_size": target_file_size,
            "compression": compression,
        }
        self._make: Callable[[str], DeltaSink] = partial(DeltaSink, **given)
        self._every = _EveryTable(self._path, **given)
        """Checks what is the same for all topics, and has the names."""
        self.names = self._every.names
        self._sinks: dict[str, DeltaSink] = {}
        self._tables: Tables | None = None
        self._loaded: dict[str, str] = {}
        """The topics that have progress, and of which group, as ``standing`` read it."""
        self._prepared: set[str] = set()

    def __repr__(self) -> str:
        return f"DeltaTopicsSink({self._path!r})"

    @property
    def name(self) -> str:
        return self._every.name

    def close(self) -> None:
        """Nothing is held open."""

    def table(self, topic: str) -> DeltaSink:
        """The sink of one topic. Raises ConfigError for a topic whose name cannot be that of a table here."""
        if topic not in self._sinks:
            self._check_name(topic)
            self._sinks[topic] = self._make(self._path.replace(TOPIC, topic))
        return self._sinks[topic]

    def _check_name(self, topic: str) -> None:
        if not _NAME.fullmatch(topic) or topic in (".", ".."):
            raise ConfigError(f"the topic {topic!r} cannot be part of a path: load it into a table by name")
        if self._path.endswith(TOPIC) and topic.endswith(_BESIDE):
            raise ConfigError(
                f"the topic {topic} cannot be loaded into {self.name}, where tables that end in "
                f"{' or '.join(_BESIDE)} are beside those of other topics: use {self.name}/rows"
            )

    def topics(self) -> list[str]:
        """The topics that have a table, of any load."""
        before, after = self._path.removeprefix("file://").split(TOPIC)
        if "://" in before:
            return [one for one in self._stored(before, after) if after or not one.endswith(_BESIDE)]
        found = glob.glob(f"{glob.escape(before)}*{glob.escape(after)}/{LOG}")
        names = [one[len(before) : len(one) - len(after) - len(LOG) - 1] for one in found]
        return sorted(one for one in names if after or not one.endswith(_BESIDE))

    def _stored(self, before: str, after: str) -> list[str]:
        """The names in an object store that make a table of the path."""
        parent, _, head = before.rpartition("/")
        tail, _, rest = after.partition("/")
        beside = place_of(f"{parent}/{TOPIC}", self._options).parent
        with explained(f"the tables at {self.name} cannot be listed"):
            return sorted(
                path.name[len(head) : len(path.name) - len(tail)]
                for path in beside.glob("*")
                if path.name.startswith(head) and path.name.endswith(tail)
                if ((path / rest if rest else path) / LOG).is_dir()
            )

    # -- before a load

    def check(self, tables: Tables) -> None:
        self._every.check(tables)

    def prepare(self, group_id: str, tables: Tables) -> None:
        """Remember what the tables are like: each is created or checked when its topic is loaded."""
        self._tables = tables
        self._prepared.clear()

    def _ready(self, group_id: str, topic: str) -> DeltaSink:
        if self._tables is None:
            raise MisuseError("call prepare() first")
        sink = self.table(topic)
        if topic not in self._prepared:
            sink.prepare(group_id, self._tables)
            self._prepared.add(topic)
        return sink

    def partitioned_by(self) -> tuple[str, ...]:
        """What the first table is partitioned by: a load partitions all of its tables alike."""
        return next((self.table(topic).partitioned_by() for topic in self.topics()), ())

    def standing(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Standing]:
        found: dict[TopicPartition, Standing] = {}
        for topic, ours in _by_topic(partitions).items():
            stands = self.table(topic).standing(group_id, ours)
            found.update(stands)
            if any(one.rows is not None for one in stands.values()):
                self._loaded[topic] = group_id
        return found

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        return {topic: self.table(topic).other_groups(group_id, [topic])[topic] for topic in topics}

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """As ``DeltaSink.range_start``, in the topic's table."""
        return self.table(topic).range_start(topic, partition, offset)

    # -- a cycle

    def writer(self, cycle_id: str) -> TaskWriter:
        """Writes to all tables with progress: before its first rows a topic's progress is committed."""
        ready = {topic: self._ready(group_id, topic) for topic, group_id in self._loaded.items()}
        assert self._tables is not None
        column = self._tables.positions[0]
        return TopicsWriter({topic: sink.writer(cycle_id) for topic, sink in ready.items()}, column)

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        found = self.standing(cycle.group_id, [advance.where for advance in cycle.advances])
        for advance in cycle.advances:  # find most conflicts before anything is written
            if found[advance.where] != advance.expected:
                raise conflict(self.name, advance, advance.expected, found[advance.where])
        written = _unpacked(cycle.written)
        done: list[str] = []
        for topic in dict.fromkeys(advance.topic for advance in cycle.advances):
            part = replace(
                cycle,
                advances=tuple(one for one in cycle.advances if one.topic == topic),
                written=tuple(written.get(topic, ())),
                lost=tuple(one for one in cycle.lost if one.topic == topic),
            )
            try:
                self._ready(cycle.group_id, topic).commit(part, at)
            except Exception as error:
                if done:
                    error.add_note(f"of this cycle what belongs to {', '.join(done)}")
                raise
            done.append(topic)
        assert written.keys() <= set(done), "rows of topics that no advance names"

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        for topic, ours in _unpacked(written).items():
            self.table(topic).abandon(cycle_id, ours)

    def lost(self, group_id: str) -> list[LostRange]:
        every = [one for topic in self._loaded or self.topics() for one in self.table(topic).lost(group_id)]
        return sorted(every, key=lambda one: one.noticed_at)

    # -- rejected rows

    def read_rejected(self, limit: int | None = None) -> pa.Table:
        tables = [self.table(topic).read_rejected(limit) for topic in self.topics()]
        filled = [table for table in tables if table.num_rows]
        if not filled:
            return tables[0] if tables else pa.table({})
        every = pa.concat_tables(filled, promote_options="default").sort_by("rejected_at")
        return every if limit is None else every.slice(max(0, every.num_rows - limit))

    def rejected_batches(self) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(self.table(topic).rejected_batches() for topic in self.topics())

    def readmit(
        self, positions: Sequence[Position], written: Iterable[Written], at: Callable[[str], None]
    ) -> None:
        rows = _unpacked(written)
        for topic in dict.fromkeys(one.topic for one in positions):
            ours = [one for one in positions if one.topic == topic]
            self.table(topic).readmit(ours, rows.get(topic, ()), at)

    # -- upkeep

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        """Join small files in the tables of all topics that were loaded."""
        return sum(self.table(topic).compact(target_bytes, at) for topic in self._loaded)


@dataclass(frozen=True, slots=True)
class TopicsWriter:
    """Pickled into the tasks of one cycle."""

    writers: Mapping[str, TaskWriter]
    column: str
    """The column of the rows that has the topic."""

    def open(self) -> TaskOutput:
        return TopicsOutput(self)


class TopicsOutput:
    """One attempt of one task: an output for each topic that it meets."""

    def __init__(self, writer: TopicsWriter) -> None:
        self._writer = writer
        self._outputs: dict[str, TaskOutput] = {}

    def write_rows(self, batch: pa.RecordBatch) -> None:
        for topic, rows in _split(batch, self._writer.column):
            self._output(topic).write_rows(rows)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        for topic, rows in _split(batch, "topic"):
            self._output(topic).write_rejected(rows)

    def _output(self, topic: str) -> TaskOutput:
        if topic not in self._outputs:
            self._outputs[topic] = self._writer.writers[topic].open()
        return self._outputs[topic]

    def finish(self) -> Written:
        found = {topic: output.finish() for topic, output in self._outputs.items()}
        every = found.values()
        return Written(
            rows=sum(one.rows for one in every),
            rejected=sum(one.rejected for one in every),
            size=sum(one.size for one in every),
            files=sum(one.files for one in every),
            payload=pickle.dumps(found),
        )

    def abort(self) -> None:
        for output in self._outputs.values():
            output.abort()


def _split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic."""
    topics = batch.column(column)
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(topics, name))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for one in partitions:
        found.setdefault(one.topic, []).append(one)
    return found


def _unpacked(written: Iterable[Written]) -> dict[str, list[Written]]:
    """What tasks wrote, by topic."""
    found: dict[str, list[Written]] = {}
    for one in written:
        for topic, part in pickle.loads(one.payload).items():
            found.setdefault(topic, []).append(part)
    return found
