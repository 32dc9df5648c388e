"""Maintenance of a Delta table: compaction of small files, and vacuum."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.sinks.delta.log import LOG, named_files
from millstream.spark.sinks.delta.parquet.files import PREFIX, DataFile, Shape, TableWriter, remove
from millstream.spark.sinks.delta.parquet.reading import columns_of, has_deletion_vectors, stored, widened
from millstream.spark.sinks.delta.places.place import Place, readable, relative
from millstream.spark.sinks.delta.table import ActiveFile, CommitPlan, DeltaSnapshot, Table


def compact(table: Table, target_bytes: int, compression: str, at: Callable[[str], None]) -> int:
    """Join small files into files of up to ``target_bytes``; returns by how many files the table shrank.

    Files of more than half of ``target_bytes`` are large enough. The rows stay the same and no progress
    moves. Each join is a commit of its own, given up when another commit removed one of its files: a rewind
    goes first.

    However often this is called, rows are not copied needlessly: a join makes one file of several, at least
    half as large again as the largest of them.
    """
    snapshot = table.look()
    if snapshot is None or has_deletion_vectors(snapshot):
        return 0
    # A join must make exactly one file, or its files would be joined again: it may exceed the target, as its
    # parts may have been compressed better.
    shape = Shape(
        table.directory, columns_of(snapshot), target_file_size=sys.maxsize, compression=compression
    )
    return sum(_join(table, files, shape, at) for files in _bins(snapshot.files(), target_bytes))


def _bins(files: Sequence[ActiveFile], target_bytes: int) -> Iterator[list[ActiveFile]]:
    """Groups of neighbouring small files, each group enough for one large file."""
    small = [file for file in files if 2 * file.size <= target_bytes and file.can_be_removed]
    for _, together in groupby(sorted(small, key=_order), key=_partition):
        chosen: list[ActiveFile] = []
        for file in together:
            if sum(one.size for one in chosen) + file.size > target_bytes:
                yield from _worthwhile(chosen)
                chosen = []
            chosen.append(file)
        yield from _worthwhile(chosen)


def _worthwhile(files: Sequence[ActiveFile]) -> Iterator[list[ActiveFile]]:
    """The files without those that are too large beside the others; nothing where fewer than two are left."""
    left = list(files)
    while len(left) > 1:
        largest = max(left, key=lambda file: file.size)
        if 2 * sum(file.size for file in left if file is not largest) >= largest.size:
            yield left
            return
        left.remove(largest)


def _partition(file: ActiveFile) -> tuple[tuple[str, bool, str], ...]:
    """The partition as a sort key, in which null differs from the text "None"."""
    values = sorted(file.partition_values.items())
    return tuple((name, value is not None, str(value)) for name, value in values)


def _order(file: ActiveFile) -> tuple[Any, ...]:
    """By the table's partition, then by topic, partition and offset."""
    where = [
        str(_least(file, "topic")),
        int(_least(file, "partition") or 0),
        int(_least(file, "offset") or 0),
    ]
    return (_partition(file), *where, file.path)


def _least(file: ActiveFile, name: str) -> Any:
    return file.least.get(f"_{name}", file.least.get(name))


def _join(table: Table, files: list[ActiveFile], shape: Shape, at: Callable[[str], None]) -> int:
    joined = _write_joined(table.directory, files, shape)

    def undo() -> None:
        for file in joined:
            remove(table.directory, file.path)

    def decide(snapshot: DeltaSnapshot) -> CommitPlan | None:
        active = {file.path for file in snapshot.files()}
        if not all(file.path in active for file in files):
            return None
        return CommitPlan(joined, files, data_change=False)

    try:
        at("compacting")
    except BaseException:
        undo()
        raise
    return len(files) - len(joined) if table.transact(decide, undo) else 0


def _write_joined(directory: Place, files: list[ActiveFile], shape: Shape) -> list[DataFile]:
    values = files[0].partition_values
    kept = pa.schema([column for column in shape.schema if column.name not in values])
    footers = [pq.read_metadata(readable(file.where(directory))) for file in files]
    # The joined file has every column that any of the files has, and is laid out for the largest rows:
    # otherwise later rows would start another file.
    had = frozenset(name for footer in footers for name in footer.schema.to_arrow_schema().names)
    largest = max(map(_row_bytes, footers))
    writer = TableWriter(replace(shape, schema=kept, keep=had, row_bytes=largest), "compacted")
    try:
        for file in files:
            for batch in stored(file, directory, kept):
                writer.write(widened(batch, file, kept))
        return [replace(made, partition_values=values) for made in writer.finish()]
    except BaseException:
        writer.abort()
        raise


def _row_bytes(footer: Any) -> int:
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return int(sum(group.total_byte_size for group in groups) // max(1, footer.num_rows))


def vacuum(directory: Place, older_than: timedelta) -> int:
    """Delete millstream's files that the log does not name and that are older than ``older_than``."""
    if not (directory / LOG).is_dir():
        return 0
    before = time.time() - older_than.total_seconds()
    old = [path for path in directory.rglob(f"{PREFIX}*.parquet") if _is_older(path, before)]
    named = named_files(directory)  # after the listing, so that commits made since are included
    litter = [path for path in old if relative(path, directory) not in named]
    for path in litter:
        remove(directory, relative(path, directory))
    return len(litter)


def _is_older(path: Place, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:  # deleted by another process
        return False
