"""Which rejected rows a replay deletes when it adds the repaired rows, while loads run.

The two tables are committed one after the other. In between, a load may rewind over the same records: it
rejects them again, and deletes the repaired rows. So a replay deletes only rejected rows that existed before
the repaired ones were added. ``rejected_at`` tells them apart (files do not, as compaction joins them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Position, SinkError, Standing
from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.parquet.columns import Labels
from millstream.spark.sinks.delta.places.place import Place
from millstream.spark.sinks.delta.progress import partition_of
from millstream.spark.sinks.delta.replace import Remover, RowsToDelete, rows_to_delete
from millstream.spark.sinks.delta.table import DeltaSnapshot

Deletions = Mapping[TopicPartition, RowsToDelete]


def repaired_rows(
    rejected: DeltaSnapshot, directory: Place, positions: Sequence[Position], labels: Labels
) -> Deletions:
    """The rejected rows at these positions, as they are in this version."""
    rows = rows_to_delete(positions, labels)
    with explained(f"the Delta table {directory} cannot be read"):
        moments = Remover(directory, rows, "", "none").moments(rejected)
    return {where: replace(one, moments=moments) for where, one in rows.items()} if len(moments) else {}


def refuse_half_replaced(
    name: str, rows: DeltaSnapshot, rejected: DeltaSnapshot, positions: Iterable[Position]
) -> None:
    """Raise where a rewind, of any group, has committed the rejected rows and not yet the rows: its next
    commit would delete the repaired rows, and what it rejected would be deleted here.
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
                f"{name}: a rewind is between its two commits in {where} [{span.start}, {span.stop}). Let "
                "that load finish, or run it again if it was stopped, then replay: this step changed nothing"
            )
