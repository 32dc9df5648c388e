"""Reading the rows of a Delta table, file by file.

Not with ``DeltaTable.to_pyarrow_table``: the threads that it leaves behind can abort the interpreter at exit.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.sinks.delta.errors import explained
from millstream.spark.sinks.delta.table import ActiveFile, Snapshot

_CUT_OFF: Final = timedelta(milliseconds=1)
"""Statistics of moments may leave out what is less."""


def has_deletion_vectors(snapshot: Snapshot) -> bool:
    """Whether files of the table may hold rows that were deleted."""
    return "deletionVectors" in (snapshot.handle.protocol().reader_features or ())


def columns_of(snapshot: Snapshot) -> pa.Schema:
    """The columns of the table, those that it is partitioned by among them."""
    return pa.schema(snapshot.handle.schema().to_arrow())


def read_rows(snapshot: Snapshot, directory: Path) -> pa.Table:
    """All rows of the table at this version; raises SinkError where a file cannot be read."""
    return pa.Table.from_batches(read_batches(snapshot, directory), columns_of(snapshot))


def read_batches(snapshot: Snapshot, directory: Path) -> Iterator[pa.RecordBatch]:
    """The rows of the table at this version, some at a time and one file after the other, in no order.

    Commits that are made meanwhile change nothing: files that they take out stay where they are. Raises
    SinkError where a file cannot be read.
    """
    schema = columns_of(snapshot)
    with explained(f"the Delta table {directory} cannot be read"):
        if has_deletion_vectors(snapshot):
            for batch in pa.RecordBatchReader.from_stream(snapshot.handle.scan()):
                yield batch.select(schema.names).cast(schema)
            return
        for file in snapshot.files():
            yield from _batches(file, directory, schema)


def read_ordered(snapshot: Snapshot, directory: Path, by: Sequence[str], most: int | None) -> pa.Table:
    """The rows of the table in the order of these columns, or the last ``most`` of them."""
    if most is not None:
        return read_newest(snapshot, directory, by, most)
    return read_rows(snapshot, directory).sort_by([(name, "ascending") for name in by])


def read_newest(snapshot: Snapshot, directory: Path, by: Sequence[str], most: int) -> pa.Table:
    """The last ``most`` rows of the table in the order of these columns, of which the first is a moment.

    Files are read one at a time, the newest first, as long as they can hold any of them.
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
    """What is not known may be the newest."""
    return (True, 0) if value is None else (False, value)


def _batches(file: ActiveFile, directory: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in stored(file, directory, schema):
        yield widened(batch, file, schema)


def stored(file: ActiveFile, directory: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a file holds of these columns, in these types. Engines store them in types of their own: text that
    delta-rs has written anew comes back as ``string_view``, which Arrow can hardly compare.
    """
    with pq.ParquetFile(file.where(directory)) as source:
        kept = only(columns, source.schema_arrow.names)
        for batch in source.iter_batches(columns=kept.names):
            yield batch.cast(kept)


def stored_columns(file: ActiveFile, directory: Path, columns: pa.Schema) -> pa.Schema:
    """Those of the columns that a file holds."""
    return only(columns, pq.read_schema(file.where(directory)).names)


def only(columns: pa.Schema, names: Container[str]) -> pa.Schema:
    """Those of the columns that are among these names."""
    return pa.schema([column for column in columns if column.name in names])


def widened(batch: pa.RecordBatch, file: ActiveFile, schema: pa.Schema) -> pa.RecordBatch:
    """What is ``stored``, with what the file does not have: the columns that name its partition, and those
    that were added to the table after it was written.
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
