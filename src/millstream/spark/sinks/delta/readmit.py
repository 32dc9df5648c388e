"""Which rejected rows leave as repaired ones enter the table, while loads go on.

The two tables change one after the other, and a load may rewind over the same records meanwhile: it rejects
them again, and takes the repaired rows out. So only those rejected rows leave that were there before the
repaired ones entered, told apart by when they were rejected: files do not tell, as they are joined at times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Position, SinkError, Standing
from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.labels import Labels
from millstream.spark.sinks.delta.parquet.search import positions_of
from millstream.spark.sinks.delta.progress import partition_of
from millstream.spark.sinks.delta.replace import Doomed, Remover, doomed_positions
from millstream.spark.sinks.delta.table import Snapshot

Leaving = Mapping[TopicPartition, Doomed]


def leaving(rejected: Snapshot, directory: Path, positions: Sequence[Position], labels: Labels) -> Leaving:
    """The rejected rows of these positions, as they are in this version."""
    doomed = doomed_positions(positions, labels)
    with explained(f"the Delta table {directory} cannot be read"):
        moments = Remover(directory, doomed, "", "none").moments(rejected, positions_of(rejected))
    return {where: replace(one, moments=moments) for where, one in doomed.items()} if len(moments) else {}


def refuse_half_replaced(
    name: str, rows: Snapshot, rejected: Snapshot, positions: Iterable[Position]
) -> None:
    """Raise where a rewind, of any group, stands between the two tables: its next commit takes out of the
    rows whatever has entered them there, and what it rejected would have left.
    """
    offsets: dict[TopicPartition, set[int]] = {}
    for topic, partition, offset in positions:
        offsets.setdefault(TopicPartition(topic, partition), set()).add(offset)
    for application in rejected.transactions:
        where = partition_of(application)
        if where is None or where not in offsets:
            continue
        span = Standing(rows.progress(application), rejected.progress(application)).half_replaced
        if any(offset in span for offset in offsets[where]):
            raise SinkError(
                f"{name}: a load is being rewound and stands between the two tables, in {where} "
                f"[{span.start}, {span.stop}). Let it end, or run it again if it was stopped, then replay: "
                "nothing of this step was changed"
            )
