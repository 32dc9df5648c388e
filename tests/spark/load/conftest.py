"""What the tests of loads share: a table over SQLite, and loads into it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from millstream.spark.load import Load
from tests.spark.load.sqlite_sink import SqliteSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300, "metadata.max.age.ms": 500}
"""Settings of a member that notices soon."""


class NewLoad(Protocol):
    """Makes a load of a topic into the test's table; more settings as keywords."""

    def __call__(self, topic: str, **settings: Any) -> Load: ...


@pytest.fixture
def sink(tmp_path: Path) -> SqliteSink:
    return SqliteSink(tmp_path / "table")


@pytest.fixture
def new_load(spark: SparkSession, bootstrap_servers: str, group: str, sink: SqliteSink) -> NewLoad:
    def make(topic: str, **settings: Any) -> Load:
        settings = {"group_id": group, "sink": sink, "properties": QUICK, **settings}
        return Load(spark, topics=[topic], bootstrap_servers=bootstrap_servers, **settings)

    return make


class Background:
    """A load on a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.report: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.report = self._work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def join(self) -> Any:
        """What came of it, as if the test had called it."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.report


@contextmanager
def running(load: Load, every: float = 0.0) -> Iterator[Background]:
    """The load runs continuously inside the block."""
    background = Background(lambda: load.run(every=every))
    background.thread.start()
    try:
        yield background
    finally:
        load.stop()
        background.join()


def until(
    condition: Callable[[], Any], seconds: float = 60.0, or_error: type[Exception] | None = None
) -> Any:
    """Wait for a condition, and return what it found; ``or_error`` means: not yet."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(*filter(None, [or_error])):
            if found := condition():
                return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def offsets(topic: str, partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in range(start, end)]
