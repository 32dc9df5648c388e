"""Replays rejected rows after a fix: those that are good now move to the table.

They are read from the sink, as the topic may no longer have them: a rejected row keeps all of its record. No
progress moves, and a load may run at the same time. A crash, or a second replay, does no harm: a row replaces
any row of the same position.

A record that was rejected more than once, as by two groups that load into one table, becomes one row, and all
of its rejected rows are removed.

Rows are replayed in steps, each a transaction of its own: after a crash the rest is still rejected. Memory
holds one step, however many rows there are.

Two kinds of rejected rows are left alone: those of a commit that stopped between the two tables, as the load
will reload their offsets and write them again; and those of an earlier topic of the same name.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MisuseError
from millstream.model import TopicPartition
from millstream.spark.load.engine.requirements import tables_for
from millstream.spark.load.pipeline import columns
from millstream.spark.load.pipeline.pipeline import Pipeline, ReplayedRows
from millstream.spark.load.pipeline.spark_schema import conformed
from millstream.spark.load.pipeline.work import refusals
from millstream.spark.sinks.base import Position, Sink, TaskWriter, label_column
from millstream.spark.sinks.capabilities import StreamsRejected

if TYPE_CHECKING:
    import pyarrow as pa

_AT_A_TIME: Final = 100_000
_MOST_BYTES: Final = 64 << 20
"""The most rows and about the most bytes of one step."""
_MOST_REASONS: Final = 1_000
"""Reasons may quote values, so that each differs: at most this many are counted separately."""
NOT_LOADED: Final = "not loaded yet: run the load first"
EARLIER_TOPIC: Final = "of an earlier topic of this name: produce it again"
OTHER_REASONS: Final = "other reasons"
"""Counts the reasons beyond ``_MOST_REASONS``."""
_POSITION: Final = ["topic", "partition", "offset"]
_LABEL: Final = label_column(("topic", "partition", "offset"))


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What became of the rejected rows that were replayed."""

    examined: int = 0
    readmitted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why rows are still rejected, and how many for each reason."""

    @property
    def still_rejected(self) -> int:
        return self.examined - self.readmitted

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "examined": self.examined,
            "readmitted": self.readmitted,
            "still_rejected": self.still_rejected,
            "reasons": dict(self.reasons.most_common()),
        }


def replay(
    spark: Any,
    sink: Sink,
    pipeline: Pipeline,
    *,
    group_id: str,
    limit: int | None = None,
    at: Callable[[str], None] = lambda _: None,
) -> ReplayReport:
    """Parse and check the rejected rows again, the newest ``limit`` or all, and readmit those that are good.

    The others stay rejected; the report says what is wrong with them now, or that the load of ``group_id``
    has not reached them. ``spark`` may be None unless ``pipeline.needs_spark_for_tables``. Raises MisuseError
    for a query that aggregates: a record cannot be added to a row afterwards; rewind the group instead.
    """
    tables = tables_for(sink, pipeline, spark)
    if pipeline.aggregates:
        raise MisuseError(
            "replay cannot add records to rows that aggregate others: rewind the group with "
            "'millstream group reset' and load again"
        )
    sink.prepare(group_id, tables)
    examined = readmitted = 0
    reasons: Counter[str] = Counter()
    for found in map(_records, _steps(rejected_batches(sink, limit))):
        examined += found.num_rows
        batch = _of_these_topics_and_loaded(sink, group_id, found, reasons)
        if not batch.num_rows:
            continue
        batch, times = _each_once(batch)
        step_id = f"replay-{uuid.uuid4().hex}"
        writer = sink.writer(step_id)
        tried = _accepted(pipeline.again(spark, batch), writer, one_to_one=pipeline.shaping.sql is None)
        _count(reasons, tried.reasons, times)
        if tried.good:
            _readmit(sink, step_id, batch, tried, writer, at)
            readmitted += sum(times[place] for place in tried.good)
    return ReplayReport(examined, readmitted, reasons)


def rejected_batches(sink: Sink, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rejected rows, in batches if the sink can stream them."""
    if limit is None and isinstance(sink, StreamsRejected):
        yield from sink.rejected_batches()
    else:
        yield from sink.read_rejected(limit).to_batches()


def _steps(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in steps: large enough to be worth a transaction, small enough for memory."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in (piece for batch in batches for piece in _cut(batch)):
        if held and (rows + piece.num_rows > _AT_A_TIME or size + piece.nbytes > _MOST_BYTES):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield _joined(held)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of a batch that are not larger than a step."""
    if not batch.num_rows:
        return
    most = max(1, min(_AT_A_TIME, batch.num_rows * _MOST_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _records(rejected: pa.RecordBatch) -> pa.RecordBatch:
    """The records of rejected rows, and their labels where there are any."""
    import pyarrow as pa

    wanted = columns.raw_schema(headers=True)
    if _LABEL in rejected.schema.names:
        wanted = wanted.append(pa.field(_LABEL, pa.string()))
    return conformed(rejected.select(wanted.names), wanted)


def _each_once(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Each record once, and the number of its rejected rows."""
    import pyarrow as pa

    places = pa.array(range(batch.num_rows), pa.int64())
    table = pa.table([*batch.select(_POSITION).columns, places], [*_POSITION, "place"])
    found = table.group_by(_POSITION).aggregate([("place", "min"), ("place", "count")])
    found = found.sort_by("place_min")
    return batch.take(found["place_min"].combine_chunks()), found["place_count"].to_pylist()


def _count(reasons: Counter[str], found: Mapping[int, str], times: Sequence[int]) -> None:
    """Count reasons, up to ``_MOST_REASONS`` different ones."""
    for place, reason in found.items():
        known = reason in reasons or len(reasons) < _MOST_REASONS
        reasons[reason if known else OTHER_REASONS] += times[place]


def _of_these_topics_and_loaded(
    sink: Sink, group_id: str, batch: pa.RecordBatch, reasons: Counter[str]
) -> pa.RecordBatch:
    """The records whose topic was not recreated since, and whose offsets the load has passed.

    A record of an earlier topic shares its position with a new record, and would replace that one's row.
    """
    import pyarrow as pa

    topics, partitions = (batch.column(name).to_pylist() for name in ("topic", "partition"))
    places = [TopicPartition(*place) for place in zip(topics, partitions, strict=True)]
    standing = sink.standing(group_id, set(places))
    kept = batch.select(columns.raw_schema(headers=True).names)
    now = {one: None if it.rejected is None else it.rejected.label for one, it in standing.items()}
    # Rows from before the table had labels are of the first topic, which may be recreated by now.
    labelled = _LABEL in batch.schema.names
    labels = batch.column(_LABEL).to_pylist() if labelled else [None] * batch.num_rows
    current = [label == now[place] for label, place in zip(labels, places, strict=True)]
    reasons.update([EARLIER_TOPIC] * current.count(False))
    kept, places = kept.filter(pa.array(current, pa.bool_())), list(compress(places, current))
    ends = {one: 0 if it.rows is None else it.rows.high_offset for one, it in standing.items()}
    again = {one: it.half_replaced for one, it in standing.items()}
    passed = [
        offset < ends[place] and offset not in again[place]
        for place, offset in zip(places, kept.column("offset").to_pylist(), strict=True)
    ]
    loaded = kept.filter(pa.array(passed, pa.bool_()))
    reasons.update([NOT_LOADED] * (kept.num_rows - loaded.num_rows))
    return loaded


def _accepted(tried: ReplayedRows, writer: TaskWriter, *, one_to_one: bool) -> ReplayedRows:
    """Without the rows that the sink cannot hold, if each row is known to be of one record."""
    refused = refusals(writer, tried.rows) if one_to_one else None
    if refused is None:
        return tried
    said = dict(zip(tried.good, refused.to_pylist(), strict=True))
    good = [place for place, reason in said.items() if reason is None]
    refusing = {place: reason for place, reason in said.items() if reason is not None}
    return ReplayedRows(good, tried.rows.filter(refused.is_null()), {**tried.reasons, **refusing})


def _readmit(
    sink: Sink,
    step_id: str,
    batch: pa.RecordBatch,
    tried: ReplayedRows,
    writer: TaskWriter,
    at: Callable[[str], None],
) -> None:
    import pyarrow as pa

    output = writer.open()
    try:
        if tried.rows.num_rows:
            output.write_rows(tried.rows)
        written = output.finish()
    except BaseException:
        output.abort()
        raise
    chosen = batch.select(_POSITION).take(pa.array(tried.good, pa.int64()))
    positions = [Position(*row.values()) for row in chosen.to_pylist()]
    try:
        sink.readmit(positions, [written], at)
    except BaseException:
        # The sink knows whether it happened, and deletes only leftovers.
        sink.abandon(step_id, [written])
        raise
