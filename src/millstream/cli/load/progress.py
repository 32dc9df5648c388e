"""The progress bar of a load on standard error, if that is a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.spark.load.engine.watching import LoadSnapshot
    from millstream.spark.load.load import Load

_EVERY_SECONDS: Final = 0.2


@contextmanager
def shown(load: Load) -> Iterator[None]:
    """Show the progress of a load until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    load.watched = True
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    over = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None, numbers="")

        def follow() -> None:
            while not over.wait(_EVERY_SECONDS):
                progress.update(task, **values(load.snapshot()))

        thread = threading.Thread(target=follow, name="millstream-load-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def values(snapshot: LoadSnapshot) -> dict[str, Any]:
    """What the progress bar shows."""
    done, left = snapshot.offsets_done, snapshot.offsets_left
    speed = snapshot.rows_per_second
    numbers = f"{snapshot.loaded:,} rows"
    if snapshot.rejected:
        numbers += f", {snapshot.rejected:,} rejected"
    if speed:
        numbers += f", {speed:,.0f}/s"
    numbers += f", lag {left:,}"
    if speed and left:
        numbers += f", {clock(left / speed)} left"
    return {
        "description": snapshot.state,
        "completed": done,
        "total": done + left if done + left else None,
        "numbers": numbers,
    }


def clock(seconds: float) -> str:
    """``0:05``, ``1:02:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
