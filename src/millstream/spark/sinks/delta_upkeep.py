"""Keeping a Delta table in shape: joining small files, and deleting litter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.sinks.delta_files import PREFIX, DataFile, Shape, TableWriter, remove
from millstream.spark.sinks.delta_log import LOG, named_files
from millstream.spark.sinks.delta_reading import columns_of, has_deletion_vectors, widened
from millstream.spark.sinks.delta_table import ActiveFile, Change, Snapshot, Table


def compact(table: Table, target_bytes: int, compression: str, at: Callable[[str], None]) -> int:
    """Join files smaller than ``target_bytes``; how many files the table has less.

    The rows stay the same and no progress moves. Each join is a commit of its own, given up when another
    commit took one of its files away in the meantime: a rewind goes first.
    """
    snapshot = table.look()
    if snapshot is None or has_deletion_vectors(snapshot):
        return 0
    # A joined file is closed at twice the size, so that what was chosen for one does not end up in two.
    shape = Shape(
        str(table.directory), columns_of(snapshot), target_file_size=2 * target_bytes, compression=compression
    )
    return sum(_join(table, files, shape, at) for files in _bins(snapshot.files(), target_bytes))


def _bins(files: Sequence[ActiveFile], target_bytes: int) -> Iterator[list[ActiveFile]]:
    """Small files that lie side by side, as many as make a large one."""
    small = sorted((file for file in files if file.size < target_bytes and file.can_be_removed), key=_order)
    for _, together in groupby(small, key=_partition):
        chosen: list[ActiveFile] = []
        for file in together:
            if chosen and sum(one.size for one in chosen) + file.size > target_bytes:
                if len(chosen) > 1:
                    yield chosen
                chosen = []
            chosen.append(file)
        if len(chosen) > 1:
            yield chosen


def _partition(file: ActiveFile) -> tuple[tuple[str, bool, str], ...]:
    """(Null is not the text "None".)"""
    values = sorted(file.partition_values.items())
    return tuple((name, value is not None, str(value)) for name, value in values)


def _order(file: ActiveFile) -> tuple[Any, ...]:
    """Beside each other in the table's partition, then by position."""
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

    def decide(snapshot: Snapshot) -> Change | None:
        active = {file.path for file in snapshot.files()}
        if not all(file.path in active for file in files):
            return None
        return Change(joined, files, data_change=False)

    if len(joined) >= len(files):  # nothing is won
        undo()
        return 0
    try:
        at("compacting")
    except BaseException:
        undo()
        raise
    return len(files) - len(joined) if table.transact(decide, undo) else 0


def _write_joined(directory: Path, files: list[ActiveFile], shape: Shape) -> list[DataFile]:
    values = files[0].partition_values
    kept = pa.schema([column for column in shape.schema if column.name not in values])
    # What one of them has no file may lack, or all would come out in several again.
    had = frozenset(name for file in files for name in pq.read_schema(file.where(directory)).names)
    writer = TableWriter(replace(shape, schema=kept, keep=had), "compacted")
    try:
        for file in files:
            with pq.ParquetFile(file.where(directory)) as source:
                for batch in source.iter_batches():
                    writer.write(widened(batch, file, kept))
        return [replace(made, partition_values=values) for made in writer.finish()]
    except BaseException:
        writer.abort()
        raise


def vacuum(directory: Path, older_than: timedelta) -> int:
    """Delete files of millstream that nothing in the log names and that have not changed for so long."""
    if not (directory / LOG).is_dir():
        return 0
    before = time.time() - older_than.total_seconds()
    old = [path for path in directory.rglob(f"{PREFIX}*.parquet") if path.stat().st_mtime < before]
    named = named_files(directory)  # after the listing: what was committed since is in here
    litter = [path for path in old if path.relative_to(directory).as_posix() not in named]
    for path in litter:
        remove(directory, path.relative_to(directory).as_posix())
    return len(litter)
