"""Reading rows of a Delta table, file by file: all of them, the newest, or the last position of a partition.

Not with ``DeltaTable.to_pyarrow_table``: the threads that it leaves behind can abort the interpreter at exit.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model import TopicPartition
from millstream.spark.sinks.base import label_column, positions_among
from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.parquet.columns import labels_of
from millstream.spark.sinks.delta.places.place import Place, readable
from millstream.spark.sinks.delta.table import ActiveFile, DeltaSnapshot

_CUT_OFF: Final = timedelta(milliseconds=1)
"""Statistics of timestamps may be cut off to milliseconds."""


def has_deletion_vectors(snapshot: DeltaSnapshot) -> bool:
    """Whether files of the table may hold deleted rows."""
    return "deletionVectors" in (snapshot.handle.protocol().reader_features or ())


def columns_of(snapshot: DeltaSnapshot) -> pa.Schema:
    """The columns of the table, including those that it is partitioned by."""
    return pa.schema(snapshot.handle.schema().to_arrow())


def read_rows(snapshot: DeltaSnapshot, directory: Place) -> pa.Table:
    """All rows of the table at this version; raises SinkError where a file cannot be read."""
    return pa.Table.from_batches(read_batches(snapshot, directory), columns_of(snapshot))


def read_batches(snapshot: DeltaSnapshot, directory: Place) -> Iterator[pa.RecordBatch]:
    """The rows of the table at this version in batches, file by file, in no particular order.

    Later commits change nothing: the files that they remove stay on disk. Raises SinkError where a file
    cannot be read.
    """
    schema = columns_of(snapshot)
    with explained(f"the Delta table {directory} cannot be read"):
        if has_deletion_vectors(snapshot):
            for batch in pa.RecordBatchReader.from_stream(snapshot.handle.scan()):
                yield batch.select(schema.names).cast(schema)
            return
        for file in snapshot.files():
            yield from _batches(file, directory, schema)


def read_ordered(snapshot: DeltaSnapshot, directory: Place, by: Sequence[str], most: int | None) -> pa.Table:
    """The rows sorted by the columns ``by``; only the last ``most`` of them, unless that is None."""
    if most is not None:
        return read_newest(snapshot, directory, by, most)
    return read_rows(snapshot, directory).sort_by([(name, "ascending") for name in by])


def read_newest(snapshot: DeltaSnapshot, directory: Place, by: Sequence[str], most: int) -> pa.Table:
    """The last ``most`` rows sorted by the columns ``by``, the first of which is a timestamp.

    Files are read newest first, as long as they can hold any of these rows.
    """
    order = [(name, "ascending") for name in by]
    schema = columns_of(snapshot)
    if has_deletion_vectors(snapshot):
        return _last(read_rows(snapshot, directory), order, most)
    found = schema.empty_table()
    files = sorted(snapshot.files(), key=lambda file: _sortable(file.most.get(by[0])), reverse=True)
    for file in files:
        newest = file.most.get(by[0])
        if found.num_rows >= most and newest is not None and newest + _CUT_OFF < found[by[0]][0].as_py():
            break
        with explained(f"the Delta table {directory} cannot be read"):
            more = pa.Table.from_batches(_batches(file, directory, schema), schema)
        found = _last(pa.concat_tables([found, more]), order, most)
    return found


def _last(table: pa.Table, order: list[tuple[str, str]], most: int) -> pa.Table:
    table = table.sort_by(order)
    return table.slice(max(0, table.num_rows - most)).combine_chunks()


def _sortable(value: Any) -> tuple[bool, Any]:
    """An unknown value sorts as the newest."""
    return (True, 0) if value is None else (False, value)


def _batches(file: ActiveFile, directory: Place, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in stored(file, directory, schema):
        yield widened(batch, file, schema)


def stored(file: ActiveFile, directory: Place, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns that a file holds, cast to these types: engines store others, such as ``string_view`` in
    files that delta-rs rewrote, which Arrow can hardly compare.
    """
    with pq.ParquetFile(readable(file.where(directory))) as source:
        kept = only(columns, source.schema_arrow.names)
        for batch in source.iter_batches(columns=kept.names):
            yield batch.cast(kept)


def stored_columns(file: ActiveFile, directory: Place, columns: pa.Schema) -> pa.Schema:
    """The columns that a file holds."""
    return only(columns, pq.read_schema(readable(file.where(directory))).names)


def only(columns: pa.Schema, names: Container[str]) -> pa.Schema:
    """The columns with these names."""
    return pa.schema([column for column in columns if column.name in names])


def widened(batch: pa.RecordBatch, file: ActiveFile, schema: pa.Schema) -> pa.RecordBatch:
    """A ``stored`` batch with the columns that are not in the file: those of its partition, and those that
    were added to the table later.
    """
    columns = [
        batch.column(column.name)
        if column.name in batch.schema.names
        else _constant(file, column, batch.num_rows)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant(file: ActiveFile, column: pa.Field, rows: int) -> pa.Array:
    value = file.least.get(column.name) if column.name in file.partition_values else None
    return pa.repeat(pa.scalar(value, column.type), rows)


# -- positions


def positions_of(snapshot: DeltaSnapshot) -> tuple[str, str, str]:
    """The columns that hold a row's topic, partition and offset."""
    return positions_among({column.name for column in snapshot.handle.schema().fields})


def last_position(
    snapshot: DeltaSnapshot, directory: Place, where: TopicPartition, offset: int, label: str | None
) -> int | None:
    """The greatest offset of a partition's rows up to ``offset``; with ``label``, of rows that have it."""
    names = positions_of(snapshot)
    wanted = dict(zip(names, where, strict=False))
    columns = only(columns_of(snapshot), (*names, label_column(names)))
    best = -1
    for file in sorted(snapshot.files(), key=lambda file: -_greatest(file, names[2])):
        if _greatest(file, names[2]) <= best:
            break
        first = file.least.get(names[2])
        if (first is not None and first > offset) or not all(
            file.may_hold(name, value, value) for name, value in wanted.items()
        ):
            continue
        for batch in stored(file, directory, columns):
            mask = pc.less_equal(batch.column(names[2]), offset)
            for name in batch.schema.names:  # without those that the table is partitioned by
                if name in wanted:
                    mask = pc.and_(mask, pc.equal(batch.column(name), pa.scalar(wanted[name])))
            if label is not None:
                mask = pc.and_(mask, pc.equal(labels_of(batch, names), label))
            found = pc.max(batch.filter(mask).column(names[2])).as_py()
            best = best if found is None else max(best, found)
    return None if best < 0 else best


def _greatest(file: ActiveFile, name: str) -> int:
    most = file.most.get(name)
    return (1 << 63) - 1 if most is None else int(most)
