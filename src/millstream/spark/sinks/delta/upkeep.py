"""Keeping a Delta table in shape: joining small files, and deleting litter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.sinks.delta.log import LOG, named_files
from millstream.spark.sinks.delta.parquet.files import PREFIX, DataFile, Shape, TableWriter, remove
from millstream.spark.sinks.delta.parquet.reading import columns_of, has_deletion_vectors, stored, widened
from millstream.spark.sinks.delta.table import ActiveFile, Change, Snapshot, Table


def compact(table: Table, target_bytes: int, compression: str, at: Callable[[str], None]) -> int:
    """Join small files into some of up to ``target_bytes``; how many files the table has less.

    Files of more than half of that are large enough. The rows stay the same and no progress moves. Each join
    is a commit of its own, given up when another commit took one of its files away in the meantime: a rewind
    goes first.

    Rows are not copied for nothing, however often this is called: a join makes one file of several, and that
    is half as large again as the largest of them, at least.
    """
    snapshot = table.look()
    if snapshot is None or has_deletion_vectors(snapshot):
        return 0
    # What was chosen for one file must not come out in several, which would be chosen again: it may grow, as
    # what it is made of may have been compressed better.
    shape = Shape(
        str(table.directory), columns_of(snapshot), target_file_size=sys.maxsize, compression=compression
    )
    return sum(_join(table, files, shape, at) for files in _bins(snapshot.files(), target_bytes))


def _bins(files: Sequence[ActiveFile], target_bytes: int) -> Iterator[list[ActiveFile]]:
    """Small files that lie side by side, as many as make a large one."""
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
    """The files without those that are too large to be copied for the sake of the others; nothing where no
    two are left.
    """
    left = list(files)
    while len(left) > 1:
        largest = max(left, key=lambda file: file.size)
        if 2 * sum(file.size for file in left if file is not largest) >= largest.size:
            yield left
            return
        left.remove(largest)


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

    try:
        at("compacting")
    except BaseException:
        undo()
        raise
    return len(files) - len(joined) if table.transact(decide, undo) else 0


def _write_joined(directory: Path, files: list[ActiveFile], shape: Shape) -> list[DataFile]:
    values = files[0].partition_values
    kept = pa.schema([column for column in shape.schema if column.name not in values])
    footers = [pq.read_metadata(file.where(directory)) for file in files]
    # What one of them has the joined file has from its beginning, and it has room for the largest rows: or
    # rows that come later would begin another.
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


def vacuum(directory: Path, older_than: timedelta) -> int:
    """Delete files of millstream that nothing in the log names and that have not changed for so long."""
    if not (directory / LOG).is_dir():
        return 0
    before = time.time() - older_than.total_seconds()
    old = [path for path in directory.rglob(f"{PREFIX}*.parquet") if _is_older(path, before)]
    named = named_files(directory)  # after the listing: what was committed since is in here
    litter = [path for path in old if path.relative_to(directory).as_posix() not in named]
    for path in litter:
        remove(directory, path.relative_to(directory).as_posix())
    return len(litter)


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:  # somebody else cleans up
        return False
