"""Parquet files of a Delta table, as tasks write them into its directory, under unique names.

Until a commit names them they are litter.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model import TopicPartition
from millstream.spark.sinks.base import SinkError, Written
from millstream.spark.sinks.delta.parquet.columns import dictionary_encoded_topics, labelled
from millstream.spark.sinks.delta.parquet.partitions import directory_of, split
from millstream.spark.sinks.delta.parquet.stats import Statistics
from millstream.spark.sinks.delta.places.place import Place, begin, finish, sync

PREFIX: Final = "millstream-"
_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
"""A row group is written at either limit; until then its rows are in memory."""
_MOST_OPEN: Final = 64
"""Files that are open at once, where rows go to many partitions of the table."""
_MOST_BYTES: Final = 2 * _GROUP_BYTES
"""What all open files may hold in memory: past this, the largest writes a row group early."""
_PAGE_BYTES: Final = 1 << 20
_FEWEST_TOGETHER: Final = 1 << 10
_MOST_TOGETHER: Final = 1 << 14
"""How many values of a column are encoded before Parquet checks whether the page is full."""
_MOST_GROWTH: Final = 8
"""By what factor later rows of a file may be larger than its first, for which its pages are laid out."""
_SEQUENCES: Final = frozenset({"offset", "timestamp", "_offset", "_timestamp"})
_REPEATING: Final = frozenset({"partition", "_partition"})


@dataclass(frozen=True, slots=True)
class Shape:
    """How the files of one table are written."""

    directory: Place
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    target_file_size: int = 128 << 20
    compression: str = "snappy"
    labels: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Of partitions whose topic is not the first of its name in the table: see ``Progress.label``."""
    keep: frozenset[str] = frozenset()
    """Columns that are in every file, even where they are null in all rows."""
    row_bytes: int | None = None
    """The largest average row size of a batch, if known: files are laid out for it, and larger rows do not
    start another file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A finished file, as a commit names it."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    partition_values: Mapping[str, str | None]
    modified_ms: int
    stats: str


def pack(rows: Sequence[DataFile], rejected: Sequence[DataFile]) -> bytes:
    """A task's files as the payload of a ``Written``."""
    return json.dumps([[asdict(file) for file in files] for files in (rows, rejected)]).encode()


def unpack(written: Iterable[Written]) -> tuple[list[DataFile], list[DataFile]]:
    """The files of rows and of rejected rows that tasks wrote."""
    rows: list[DataFile] = []
    rejected: list[DataFile] = []
    for one in written:
        for into, files in zip((rows, rejected), json.loads(one.payload), strict=True):
            into.extend(DataFile(**file) for file in files)
    return rows, rejected


class TableWriter:
    """Writes batches to files of about the target size, one at a time for each partition of the table."""

    def __init__(self, shape: Shape, tag: str) -> None:
        self._shape = shape
        self._tag = f"{PREFIX}{re.sub(r'[^A-Za-z0-9-]', '-', tag)[:40]}-{uuid.uuid4().hex}"
        self._names = 0
        self._open: dict[tuple[tuple[str, str | None], ...], _OpenFile] = {}
        self._done: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        batch = _conforming(batch, self._shape.schema)
        if self._shape.labels:
            batch = labelled(batch, self._shape.labels)
        for values, part in split(batch, self._shape.partition_by):
            if values in self._open and not self._open[values].has_room_for(part):
                self._close(values)
            self._file(values).write(part)
            if self._open[values].size >= self._shape.target_file_size:
                self._close(values)
        if len(self._open) > 1:
            self._relieve()

    def _relieve(self) -> None:
        while sum(file.held_bytes for file in self._open.values()) > _MOST_BYTES:
            max(self._open.values(), key=lambda file: file.held_bytes).flush()

    def finish(self) -> list[DataFile]:
        """Close open files; returns all files, each of them on disk."""
        for values in list(self._open):
            self._close(values)
        _sync_directories(self._shape.directory, self._done)
        return self._done

    def abort(self) -> None:
        """Delete what was written, as far as possible."""
        for file in self._open.values():
            file.discard()
        self._open.clear()
        for done in self._done:
            remove(self._shape.directory, done.path)

    def _file(self, values: tuple[tuple[str, str | None], ...]) -> _OpenFile:
        if (file := self._open.get(values)) is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            self._names += 1
            path = f"{directory_of(values)}{self._tag}-{self._names}.parquet"
            file = self._open[values] = _OpenFile(self._shape, path, dict(values))
        return file

    def _close(self, values: tuple[tuple[str, str | None], ...]) -> None:
        self._done.append(self._open[values].close())
        del self._open[values]  # only now: abort() deletes a file that failed to close


def missing_files(directory: Place, files: Iterable[DataFile]) -> list[str]:
    """The files that tasks reported and that are missing, or have another size."""
    gone = []
    for file in files:
        try:
            found = (directory / file.path).stat().st_size
        except FileNotFoundError:
            found = -1
        if found != file.size:
            gone.append(file.path)
    return gone


def remove(directory: Place, path: str) -> None:
    """Delete a file that no commit names; if that fails, it stays as litter."""
    with suppress(OSError):
        (directory / path).unlink(missing_ok=True)


@dataclass(slots=True)
class _OpenFile:
    """A Parquet file that is being written."""

    shape: Shape
    path: str
    values: Mapping[str, str | None]
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _local: Path | None = None
    _sink: Any = None
    _writer: Any = None
    _left_out: Sequence[str] = ()
    _row_bytes: int = 0
    _handed_over: int = 0
    _metadata: list[Any] = field(default_factory=list)
    _statistics: Statistics = field(default_factory=Statistics)

    @property
    def _where(self) -> Place:
        return self.shape.directory / self.path

    @property
    def size(self) -> int:
        """Bytes in the file so far."""
        return 0 if self._sink is None else int(self._sink.tell())

    @property
    def held_bytes(self) -> int:
        """Bytes that are not in the file yet."""
        return self._bytes

    def has_room_for(self, batch: pa.RecordBatch) -> bool:
        """Whether the file can take these rows: the columns that it leaves out are empty in them, and they
        are not much larger than its first rows.
        """
        if self._writer is None:
            return True
        grown = batch.nbytes > _MOST_GROWTH * self._row_bytes * batch.num_rows
        if grown and self.shape.row_bytes is None:
            return False
        return all(_is_empty(batch.column(name)) for name in self._left_out)

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a row group."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._left_out = self._superfluous(table)
        table = dictionary_encoded_topics(table.drop_columns(self._left_out))
        if self._writer is None:
            self._begin(table)
        self._statistics.see(table)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._handed_over += table.num_rows
        self._batches, self._rows, self._bytes = [], 0, 0

    def _superfluous(self, table: pa.Table) -> list[str]:
        """The columns that the file leaves out. One always stays: it holds the number of rows."""
        found = [column.name for column in table.schema if _can_be_left_out(column, table)]
        found = [name for name in found if name not in self.shape.keep]
        return found[1:] if len(found) == table.num_columns else found

    def _begin(self, table: pa.Table) -> None:
        self._local = begin(self._where)
        self._sink = pa.OSFile(str(self._local), "wb")
        self._row_bytes = max(1, self.shape.row_bytes or table.nbytes // table.num_rows)
        settings = writer_settings(table.schema, self.shape, self._row_bytes)
        self._writer = pq.ParquetWriter(
            self._sink, table.schema, metadata_collector=self._metadata, **settings
        )

    def close(self) -> DataFile:
        """Finish the file and fsync it."""
        self.flush()
        self._writer.close()
        self._sink.close()
        assert self._local is not None
        size = self._local.stat().st_size
        finish(self._local, self._where)
        (metadata,) = self._metadata
        if metadata.num_rows != self._handed_over:
            raise SinkError(f"{self._where} has {metadata.num_rows} rows instead of {self._handed_over}")
        return DataFile(
            path=self.path,
            size=size,
            rows=metadata.num_rows,
            partition_values=self.values,
            modified_ms=time.time_ns() // 1_000_000,
            stats=self._statistics.of(metadata),
        )

    def discard(self) -> None:
        """Close and delete it, as far as possible."""
        if self._sink is None:
            return
        if self._writer is not None:
            self._writer.is_open = False  # or its finalizer would try to finish the file, and fail
        with suppress(OSError):
            self._sink.close()
        if self._local is not None:
            with suppress(OSError):
                self._local.unlink(missing_ok=True)
        remove(self.shape.directory, self.path)


def writer_settings(schema: pa.Schema, shape: Shape, row_bytes: int) -> dict[str, Any]:
    """How Parquet is written, as measured with records of 100 bytes: 10 to 12 M rows per second and core.

    - snappy, which every engine reads: lz4 is as fast, zstd takes half as long again, none saves nothing
      and writes seven times as much when values are JSON.
    - A dictionary pays where values repeat, as topic, partition and most text do. For keys, values, offsets
      and timestamps it costs a hash of each value and is thrown away.
    - Offsets and timestamps are sequences: as differences they take half the time and a hundredth of the
      space.
    - Statistics of bytes cost a comparison each, and no query filters by them.
    - Pages of 1 MiB: 256 KiB costs a third, more gains nothing. Parquet checks after every
      ``write_batch_size`` values whether a page is full: a page's worth instead of 1,024 saves a tenth.
    """
    repeating = [f.name for f in schema if _is_text(f.type) or f.name in _REPEATING]
    measured = [f.name for f in schema if not pa.types.is_nested(f.type) and not pa.types.is_binary(f.type)]
    return {
        "compression": shape.compression,
        "use_dictionary": repeating,
        "column_encoding": {f.name: "DELTA_BINARY_PACKED" for f in schema if _is_sequence(f)},
        "write_statistics": measured,
        "version": "2.6",
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": min(_MOST_TOGETHER, max(_FEWEST_TOGETHER, _PAGE_BYTES // row_bytes)),
        "store_schema": False,
    }


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _is_sequence(column: pa.Field) -> bool:
    return column.name in _SEQUENCES and (
        pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)
    )


def _can_be_left_out(column: pa.Field, table: pa.Table) -> bool:
    """Readers of Delta fill a missing column with nulls. Nested columns cost as much as two others even where
    all values are null, like headers in most topics; other null columns cost next to nothing.
    """
    return column.nullable and pa.types.is_nested(column.type) and _is_empty(table[column.name])


def _is_empty(column: pa.Array | pa.ChunkedArray) -> bool:
    nulls: int = column.null_count
    return nulls == len(column)


def _conforming(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of ``schema``, in its order and types."""
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise SinkError(f"rows lack the columns {', '.join(missing)}")
    return batch.select(schema.names).cast(schema)


def _sync_directories(root: Place, files: Iterable[DataFile]) -> None:
    """Fsync the directories of these files, and the directories above them up to ``root``."""
    if not isinstance(root, Path):
        return
    directories = {root}
    for file in files:
        directories.update(root / parent for parent in Path(file.path).parents)
    for directory in sorted(directories, key=lambda path: -len(path.parts)):
        if directory.exists():
            sync(directory)
