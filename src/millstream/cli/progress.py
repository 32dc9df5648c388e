"""A progress bar on standard error, for people only: in a pipe it is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Meter = Callable[[int, int], None]
"""Told how far the input was read, and how many records came of it."""


@contextmanager
def meter(title: str, total: int | None, *, wanted: bool = True) -> Iterator[Meter]:
    """Show a bar of ``total`` bytes, or a count where the total is not known, until the block ends."""
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
        columns += [BarColumn(), DownloadColumn(), TimeRemainingColumn()]
    columns.append(TextColumn("{task.fields[records]:,} records"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, records=0)
        yield lambda position, records: progress.update(task, completed=position, records=records)
