"""Runs the demo: a broker, both parts, and the result."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millstream import EmbeddedBroker
from millstream.demo.counting import Counting
from millstream.demo.loading import Loading
from millstream.demo.story import Story, holds
from millstream.demo.tables import look_at
from millstream.terminal.outcome import DONE, FAILED, Terminated
from millstream.terminal.output import print_json


def show(*, as_json: bool, picture: Path | None = None) -> int:
    """Run the demo, and save it as a picture if asked to; returns the exit code."""
    story = Story(silent=as_json, picture=picture)
    table = Path(tempfile.mkdtemp(prefix="millstream-demo-")) / "orders"
    with (
        _removed_if_interrupted(table.parent),
        tempfile.TemporaryDirectory(prefix="millstream-demo-broker-") as directory,
        _broker(story, Path(directory)) as servers,
    ):
        proofs = _run(story, servers, Path(directory), table)
    is_right = all(proof["holds"] for proof in proofs.values())
    _tell_end(story, is_right, table if "loading" in proofs else None)
    story.draw()
    if as_json:
        print_json({**proofs, "holds": is_right, "table": str(table), "seconds": round(story.seconds, 1)})
    return DONE if is_right else FAILED


@contextmanager
def _removed_if_interrupted(place: Path) -> Iterator[None]:
    """Remove the table when the demo is interrupted."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        shutil.rmtree(place, ignore_errors=True)
        raise


@contextmanager
def _broker(story: Story, directory: Path) -> Iterator[str]:
    story.step("A broker")
    started = time.monotonic()
    with EmbeddedBroker(directory / "broker") as broker:
        milliseconds = (time.monotonic() - started) * 1000
        story.tell(
            f"It speaks Kafka's own protocol on {broker.bootstrap_servers}, keeps its data on disk, and was "
            f"ready after {milliseconds:.0f} ms. By hand:"
        )
        story.by_hand("millstream broker")
        yield broker.bootstrap_servers


def _run(story: Story, servers: str, directory: Path, table: Path) -> dict[str, dict[str, Any]]:
    """Both parts of the demo, the second only where Spark is installed. Returns their numbers."""
    counting = Counting(story, servers, directory)
    if importlib.util.find_spec("pyspark") is None:
        counted = counting.run()
        story.tell("Loads through Spark need one more package: [bold]pip install 'millstream[spark]'[/bold].")
        return {"counting": asdict(counted) | {"holds": holds(counted)}}
    loading = Loading(story, servers, directory, table)
    with loading.feed() as feed:
        counted = counting.run()
        loaded = loading.run(feed)
    return {
        "counting": asdict(counted) | {"holds": holds(counted)},
        "loading": asdict(loaded) | {"holds": holds(loaded)},
    }


def _tell_end(story: Story, is_right: bool, table: Path | None) -> None:
    story.pause()
    if not is_right:
        story.tell("[bold red]The numbers are wrong. This is a bug: please report it.[/bold red]")
        return
    if table is not None:
        story.tell(f"The table stays at [bold]{table}[/bold]. To query it:")
        story.by_hand(*look_at(table))
        story.pause()
    story.tell(
        f"Nothing was lost and nothing doubled in {story.seconds:.0f} s, although two processes were killed."
    )
    story.tell("How to use it: [bold]millstream --help[/bold], and docs/README.md.")
