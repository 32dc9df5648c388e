"""A progress bar on standard error, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Meter = Callable[[int, int], None]
"""Called with the position in the input and the number of records so far."""


@contextmanager
def meter(title: str, total: int | None, *, wanted: bool = True, in_records: bool = False) -> Iterator[Meter]:
    """Show a bar of ``total`` bytes, or records, until the block ends; a count where no total is known."""
    if not wanted or not sys.stderr.isatty():
        yield lambda position, records: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}")]
    if total:
        columns += [BarColumn(), *([] if in_records else [DownloadColumn()]), TimeRemainingColumn()]
    columns.append(TextColumn("{task.fields[records]:,} records"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, records=0)
        yield lambda position, records: progress.update(task, completed=position, records=records)
