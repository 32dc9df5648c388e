"""Columns as files of a Delta table store them: the topic dictionary-encoded, and the label of its rows.

The label tells rows of several topics of one name apart (``Progress.label``). A table gets the column when
the second topic of a name is loaded into it: rows from before have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model import TopicPartition
from millstream.spark.sinks.base import label_column, positions_among

Labels = Mapping[TopicPartition, str]
"""The labels of those partitions whose rows have one."""
_TOPIC: Final = ("topic", "_topic")


def labelled(batch: pa.RecordBatch, labels: Labels) -> pa.RecordBatch:
    """Append the column of labels."""
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


def dictionary_encoded_topics(table: pa.Table) -> pa.Table:
    """Dictionary-encode the topic column, as Parquet stores it: the same name is not hashed for every row."""
    for name in _TOPIC:
        place = table.schema.get_field_index(name)
        if place >= 0 and pa.types.is_string(table.schema.field(place).type):
            table = table.set_column(place, name, _encoded(table[name])).unify_dictionaries()
    return table


def _encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Batches of one partition hold slices of one array: that array is encoded once."""
    done: dict[tuple[Any, ...], pa.DictionaryArray] = {}
    for chunk in sorted(column.chunks, key=len, reverse=True):
        if (start := _start(chunk)) not in done:
            done[start] = chunk.dictionary_encode()
    pieces = [done[_start(chunk)].slice(0, len(chunk)) for chunk in column.chunks]
    return pa.chunked_array(pieces, pa.dictionary(pa.int32(), pa.string()))


def _start(chunk: pa.Array) -> tuple[Any, ...]:
    """Where an array starts in memory: two arrays with the same start hold the same values."""
    return (chunk.offset, *(None if buffer is None else buffer.address for buffer in chunk.buffers()))
