"""A driver in small: what a load does around a sink, without Spark and without a broker.

The records of the tests are made up: the record at an offset always has the same key, and its row says in
``run`` which cycle wrote it, so that a row that was replaced can be told from one that stayed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from millstream.model import TopicPartition
from millstream.spark.sinks.base import (
    Advance,
    Cycle,
    LostRange,
    Position,
    Progress,
    Sink,
    Standing,
    Tables,
    Written,
)

TOPIC: Final = "orders"
TOPIC_ID: Final = "0123456789abcdef0123456789abcdef"
REMADE_ID: Final = "0123456789abcdef0123456789abcdee"
"""The id of a topic that was made anew; alike but for the last digit."""
NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)

HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
RAW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
ROWS_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.float64()),
        ("run", pa.string()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
    ]
)
REJECTED_SCHEMA: Final = pa.schema(
    [*RAW_SCHEMA, ("reason", pa.string()), ("rejected_at", pa.timestamp("us", "UTC"))]
)
TABLES: Final = Tables(ROWS_SCHEMA, REJECTED_SCHEMA)
RAW_TABLES: Final = Tables(RAW_SCHEMA, None)


@dataclass(frozen=True)
class Step:
    """One range of one partition; records at ``bad`` are rejected, at ``gaps`` there are none."""

    partition: int
    start: int
    end: int
    bad: frozenset[int] = frozenset()
    gaps: frozenset[int] = frozenset()
    topic_id: str = TOPIC_ID
    topic: str = TOPIC

    @property
    def good(self) -> list[int]:
        return [o for o in range(self.start, self.end) if o not in self.bad and o not in self.gaps]

    @property
    def rejects(self) -> list[int]:
        return [offset for offset in sorted(self.bad) if self.start <= offset < self.end]


def step(partition: int, start: int, end: int, bad: Iterable[int] = (), **more: Any) -> Step:
    return Step(partition, start, end, frozenset(bad), **more)


def rows_batch(topic: str, partition: int, offsets: Sequence[int], run: str) -> pa.RecordBatch:
    """Rows as a load with a schema writes them."""
    rows = [
        {"id": offset, "price": offset / 2, "run": run, "_timestamp": NOON}
        | {"_topic": topic, "_partition": partition, "_offset": offset}
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, ROWS_SCHEMA)


def raw_batch(topic: str, partition: int, offsets: Sequence[int]) -> pa.RecordBatch:
    """Rows as raw landing writes them."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "timestamp": NOON}
        | {"key": None, "value": b"value-%d" % offset, "headers": [{"key": "h", "value": b"1"}]}
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, RAW_SCHEMA)


def rejected_batch(
    topic: str, partition: int, offsets: Sequence[int], run: str, at: datetime = NOON
) -> pa.RecordBatch:
    """Rejected rows; the run is in the reason."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "timestamp": NOON, "key": b"k"}
        | {"value": b"\xff%d" % offset, "headers": None, "reason": run, "rejected_at": at}
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, REJECTED_SCHEMA)


def nowhere(point: str) -> None:
    """An observer that sees nothing."""


class Stopped(Exception):  # noqa: N818 - it stands for SIGKILL
    """The driver dies here."""


def dies_at(point: str) -> Callable[[str], None]:
    """An observer in whose sight the driver dies."""

    def at(reached: str) -> None:
        if reached == point:
            raise Stopped(point)

    return at


@dataclass
class Driver:
    """One driver of a load: plans from the sink's standing, writes as tasks do, commits."""

    sink: Sink
    tables: Tables = TABLES
    group: str = "lake"
    cycles: list[Cycle] = field(default_factory=list)
    now: datetime = NOON

    def prepared(self) -> Driver:
        self.sink.prepare(self.group, self.tables)
        return self

    def standing(self, partition: int = 0, topic: str = TOPIC) -> Standing:
        where = TopicPartition(topic, partition)
        return self.sink.standing(self.group, [where])[where]

    def rows_progress(self, partition: int = 0) -> Progress | None:
        return self.standing(partition).rows

    def next_offset(self, partition: int = 0) -> int | None:
        progress = self.rows_progress(partition)
        return None if progress is None else progress.next_offset

    def plan(self, *steps: Step, run: str = "", lost: tuple[LostRange, ...] = ()) -> Cycle:
        """A cycle whose tasks have all finished, and which waits for its commit."""
        cycle_id = uuid.uuid4().hex
        advances = [
            Advance(s.topic, s.partition, s.topic_id, s.start, s.end, self.standing(s.partition, s.topic))
            for s in steps
        ]
        written = [self.write(cycle_id, s, run or cycle_id) for s in steps if s.end > s.start]
        cycle = Cycle(self.group, cycle_id, tuple(advances), tuple(written), lost)
        self.cycles.append(cycle)
        return cycle

    def write(self, cycle_id: str, step: Step, run: str) -> Written:
        """What one task does; the writer and what it returns travel as they do with Spark."""
        output = pickle.loads(pickle.dumps(self.sink.writer(cycle_id))).open()
        if step.good:
            output.write_rows(self.rows(step, run))
        if rejects := step.rejects:
            output.write_rejected(rejected_batch(step.topic, step.partition, rejects, run, self.now))
        written: Written = pickle.loads(pickle.dumps(output.finish()))
        return written

    def rows(self, step: Step, run: str) -> pa.RecordBatch:
        if self.tables.rejected is None:
            return raw_batch(step.topic, step.partition, step.good)
        return rows_batch(step.topic, step.partition, step.good, run)

    def load(self, *steps: Step, run: str = "", lost: tuple[LostRange, ...] = ()) -> Cycle:
        """A whole cycle."""
        cycle = self.plan(*steps, run=run, lost=lost)
        self.sink.commit(cycle, nowhere)
        return cycle

    def anchor(self, partition: int, offset: int, *, topic_id: str = TOPIC_ID) -> Cycle:
        """Move the progress and nothing else, as after a reset of the group."""
        return self.load(step(partition, offset, offset, topic_id=topic_id))


def positions(rows: Iterable[dict[str, Any]]) -> list[Position]:
    """Which records these rows came from, in order, doubles and all."""
    return sorted(
        Position(row["_topic"], row["_partition"], row["_offset"])
        if "_offset" in row
        else Position(row["topic"], row["partition"], row["offset"])
        for row in rows
    )


def offsets(rows: Iterable[dict[str, Any]], partition: int = 0) -> list[int]:
    """The offsets of one partition's rows, in order, doubles and all."""
    return [position.offset for position in positions(rows) if position.partition == partition]


def runs(rows: Iterable[dict[str, Any]], partition: int = 0) -> dict[int, str]:
    """Which run wrote the row of each offset."""
    if not (rows := list(rows)):
        return {}
    names = ("_partition", "_offset", "run") if "_offset" in rows[0] else ("partition", "offset", "reason")
    return {row[names[1]]: row[names[2]] for row in rows if row[names[0]] == partition}


def by_run(rows: Iterable[dict[str, Any]], topic: str = TOPIC) -> dict[str, list[int]]:
    """The offsets that each run has in a table, of partition 0 of a topic."""
    found: dict[str, list[int]] = {}
    for row in rows:
        shaped = "_offset" in row
        place = row["_topic" if shaped else "topic"], row["_partition" if shaped else "partition"]
        if place == (topic, 0):
            found.setdefault(row["run" if shaped else "reason"], []).append(
                row["_offset" if shaped else "offset"]
            )
    return {run: sorted(offsets) for run, offsets in found.items()}
