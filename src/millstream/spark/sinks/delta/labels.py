"""Which of several topics of one name a row of a Delta table came from: see ``Progress.label``.

A table is given the column when the second topic of a name is loaded into it. Rows from before have none.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model import TopicPartition
from millstream.spark.sinks.base import label_column, positions_among

Labels = Mapping[TopicPartition, str]
"""Of the partitions whose rows have one."""


def labelled(batch: pa.RecordBatch, labels: Labels) -> pa.RecordBatch:
    """The rows with the column of labels behind the others."""
    positions = positions_among(batch.schema.names)
    topics, partitions = (batch.column(name) for name in positions[:2])
    found = pa.nulls(batch.num_rows, pa.string())
    for where, label in labels.items():
        here = pc.and_(pc.equal(topics, where.topic), pc.equal(partitions, where.partition))
        found = pc.if_else(pc.fill_null(here, False), label, found)
    return batch.append_column(pa.field(label_column(positions), pa.string()), found)


def labels_of(batch: pa.RecordBatch, positions: tuple[str, str, str]) -> pa.Array:
    """The labels of a file's rows; null where the file is older than the column."""
    name = label_column(positions)
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, pa.string())
