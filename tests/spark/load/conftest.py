"""What the tests of loads share: a table over SQLite, and loads into it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pytest

from millstream.spark.load import Detail, Load, Point
from tests.spark.load.sqlite_sink import SqliteSink
from tests.waiting import SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300, "metadata.max.age.ms": 500}
"""Settings of a member that notices soon, and is not left for dead when the machine stands still a while."""

LOAD_SECONDS: Final = 2 * SECONDS
"""How long anything may take that needs Spark, which may just have started."""
_END_SECONDS: Final = 20.0
"""How long a load may take to end when its test has failed already."""


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
        self.thread.join(LOAD_SECONDS)
        assert not self.thread.is_alive(), "the load does not end"
        if self.error is not None:
            raise self.error
        return self.report


@contextmanager
def running(load: Load, every: float = 0.0) -> Iterator[Background]:
    """The load runs continuously inside the block. What the block raises is raised, with the load's own error
    as a note; when it raises nothing, what the load did.
    """
    background = Background(lambda: load.run(every=every))
    background.thread.start()
    try:
        yield background
    except BaseException as error:
        error.add_note(f"the load at that moment: {load.snapshot()}")
        load.stop()
        background.thread.join(_END_SECONDS)
        if background.thread.is_alive():
            error.add_note("the load did not end when it was told to")
        elif background.error is not None:
            error.add_note(f"the load failed: {background.error!r}")
        raise
    load.stop()
    background.join()


class Pause:
    """An observer that holds a load at a point, once, until it is let go: at the latest when its block ends.

    Its block belongs inside that of the load, so that the load can end: ``with running(load), pause:``.
    """

    def __init__(self, point: Point) -> None:
        self._point = point
        self._reached = threading.Event()
        self._go = threading.Event()

    def __call__(self, point: Point, detail: Detail) -> None:
        if point is self._point and not self._reached.is_set():
            self._reached.set()
            assert self._go.wait(2 * LOAD_SECONDS), "the test did not let the load go on"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()

    def wait_reached(self) -> None:
        """Wait until the load stands at the point."""
        assert self._reached.wait(LOAD_SECONDS), f"the load did not get to {self._point}"

    def let_go(self) -> None:
        self._go.set()


def until_owned(count: int, *loads: Load) -> None:
    """Wait until each of the loads has so many partitions."""
    until(
        lambda: all(load.snapshot().partitions == count for load in loads),
        lambda: f"{count} partitions for each of {[load.snapshot() for load in loads]}",
        LOAD_SECONDS,
    )


def until_loaded(count: int, *loads: Load) -> None:
    """Wait until the loads have loaded so many rows together."""
    until(
        lambda: sum(load.snapshot().loaded for load in loads) == count,
        lambda: f"{count} rows from {[load.snapshot() for load in loads]}",
        LOAD_SECONDS,
    )


def offsets(topic: str, partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in range(start, end)]
