"""What these tests share: places to load to, a topic with records, drivers that come to grief."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from millstream.admin import Admin
from millstream.producer import Producer
from millstream.spark.load import Load
from tests.conftest import NewTopic
from tests.spark.burying import bury
from tests.spark.chaos.crashing import CrashingServer, crashing_postgresql
from tests.spark.chaos.places import DeltaPlace, Place, PostgresPlace
from tests.spark.chaos.records import SHAPE, send
from tests.spark.load.conftest import QUICK
from tests.system.postgresql import postgresql
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SECONDS = 200.0
"""How long a driver may take, which may start a Spark of its own."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(params=["delta", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place: Place
    if request.param == "delta":
        place = DeltaPlace(tmp_path)
    else:
        place = PostgresPlace(request.getfixturevalue("postgres_url"))
    yield place
    place.close()


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    """Two partitions with 30 records each."""
    name = new_topic(partitions=2)
    send(producer, name, 0, 0, 30)
    send(producer, name, 1, 100, 130)
    return name


class NewLoad(Protocol):
    """A load in this process."""

    def __call__(self, topic: str, place: Place, **settings: Any) -> Load: ...


@pytest.fixture
def new_load(spark: SparkSession, bootstrap_servers: str, group: str) -> NewLoad:
    def make(topic: str, place: Place, **settings: Any) -> Load:
        settings = {"sink": place.sink(), "properties": QUICK, **SHAPE, **settings}
        return Load(spark, topics=[topic], group_id=group, bootstrap_servers=bootstrap_servers, **settings)

    return make


class Driver:
    """A driver in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], bury: Callable[[], None]) -> None:
        """``bury`` takes it out of its group."""
        self.process = process
        self._bury = bury
        self._lines: list[str] = []
        self._grief = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)
            if line.endswith("grief\n"):  # Java writes there, too
                self._grief.set()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_frozen(self) -> None:
        """Wait until it has stopped at its point, and is left for dead."""
        assert self._grief.wait(SECONDS), self.output
        until(self._is_stopped, lambda: f"it stops: {self.output}")
        self._bury()

    def _is_stopped(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return "\nState:\tT" in status

    def wait_killed(self) -> None:
        """Wait until it has died as it was meant to, and is known to be dead."""
        assert self.process.wait(SECONDS) == -signal.SIGKILL, self.output
        self._bury()

    def report(self) -> dict[str, Any]:
        """Wait for its end, and return what it says."""
        assert self.process.wait(SECONDS) == 0, self.output
        self._reader.join()
        (line,) = (line for line in self._lines if line.startswith("{"))
        found: dict[str, Any] = json.loads(line)
        return found


class NewDriver(Protocol):
    """Starts a driver that comes to grief the nth time it gets to a point.

    ``with_spark``: with a Spark of its own, for points at which that is at work.
    """

    def __call__(
        self,
        topic: str,
        place: Place,
        point: str,
        nth: int = 1,
        *,
        signal_name: str = "SIGKILL",
        once: bool = True,
        with_spark: bool = False,
        **settings: Any,
    ) -> Driver: ...


@pytest.fixture
def new_driver(bootstrap_servers: str, group: str, admin: Admin, tmp_path: Path) -> Iterator[NewDriver]:
    started: list[Driver] = []

    def start(
        topic: str,
        place: Place,
        point: str,
        nth: int = 1,
        *,
        signal_name: str = "SIGKILL",
        once: bool = True,
        with_spark: bool = False,
        **settings: Any,
    ) -> Driver:
        client_id = f"driver-{len(started)}"
        order = {
            "servers": bootstrap_servers,
            "topic": topic,
            "group": group,
            "to": place.address,
            "point": point,
            "nth": nth,
            "signal": signal_name,
            "once": once,
            "with_spark": with_spark,
            "settings": {"properties": {**QUICK, "client.id": client_id}, **SHAPE, **settings},
        }
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(tmp_path)}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.chaos.driver", json.dumps(order)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(Driver(process, partial(bury, admin, group, client_id)))
        return started[-1]

    yield start
    for driver in started:
        if driver.process.poll() is None:
            driver.process.kill()
            driver.process.wait()
        assert driver.process.stdout is not None
        driver._reader.join(10)
        driver.process.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[CrashingServer]:
    """A database of the tests of one file, which may be killed."""
    with crashing_postgresql() as server:
        yield server
