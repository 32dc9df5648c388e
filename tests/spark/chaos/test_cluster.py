"""On a Spark cluster of real processes: executors and Python workers are killed, tasks run twice or fail.

The table holds exactly what the topic does, and one cycle sufficed: Spark ran the tasks again, the load did
not begin anew. One cluster and one application serve all tests of this file.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.spark.chaos.faults import ATTEMPT_SECONDS, LET_GO, Attempt, Fault, attempts
from tests.spark.chaos.loading import ROOT, Loader, loader
from tests.spark.chaos.places import DeltaPlace, Place
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled, send
from tests.spark.spark_cluster import UNHURRIED, python_without_millstream, standalone
from tests.waiting import until

pytestmark = pytest.mark.slow

PARTITIONS = 4
EACH = 100

ROUTES: dict[str, dict[str, Any]] = {
    "fused": SHAPE,
    # Only Spark knows this function, so rows pass through a DataFrame.
    "frame": {**SHAPE, "checks": ["abs(price) = price"]},
    # Rows are kept by Spark and shuffled: an executor that dies takes some of both along.
    "sql": {**SHAPE, "sql": "SELECT /*+ REPARTITION(2, _offset) */ * FROM batch"},
}

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before a better compiler would pay."""
SETTINGS = {
    **UNHURRIED,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.sql.shuffle.partitions": "2",
    # A second attempt after two seconds, once half of the tasks have ended.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    place = tmp_path_factory.mktemp("cluster")
    python = python_without_millstream(place)
    hosts = ("127.0.0.1", "localhost")
    with (
        standalone(place, hosts=hosts, PYSPARK_PYTHON=python, SPARK_DAEMON_JAVA_OPTS=SHORT_LIVED) as cluster,
        loader(place, cluster.address, SETTINGS, PYSPARK_PYTHON=python) as process,
    ):
        yield process


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    name = new_topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        send(producer, name, partition, 1000 * partition, 1000 * partition + EACH)
    return name


class Trial:
    """One load with a fault, and what must be true afterwards."""

    def __init__(
        self,
        process: Loader,
        servers: str,
        topic: str,
        group: str,
        admin: Admin,
        place: Place,
        scratch: Path,
    ) -> None:
        self.process = process
        self.place = place
        self.directory = scratch / "attempts"
        self.directory.mkdir()
        self._servers = servers
        self._topic = topic
        self._group = group
        self._admin = admin
        self.notes: list[str] = []
        self._litter = set() if isinstance(place, DeltaPlace) else place.litter()

    def begin(self, route: str, **fault: Any) -> None:
        wanted = Fault(str(self.directory), **fault)
        self.process.begin(
            self._servers, self._topic, self._group, self.place, wanted, **ROUTES[route], max_records=100_000
        )

    def waiting(self, count: int) -> list[Attempt]:
        """The attempts that wait to be killed."""

        def found() -> list[Attempt]:
            assert self.process.process.poll() is None, self.process.told()
            there = attempts(self.directory, "waiting")
            return there if len(there) == count else []

        return until(found, lambda: f"{count} attempts wait: {self.process.told()}", seconds=ATTEMPT_SECONDS)

    def kill(self, *processes: int) -> None:
        """Kill what first attempts run in; then others may go on."""
        for process in processes:
            os.kill(process, signal.SIGKILL)
        (self.directory / LET_GO).touch()

    def assert_exact(self) -> None:
        """The sink is the topic, in one cycle; nothing that attempts left is to be seen."""
        report = self.process.report()
        assert report["records"] == PARTITIONS * EACH == report["loaded"] + report["rejected"]
        assert report["cycles"] == 1
        ranges = [(one["partition"], one["start"], one["end"]) for one in report["ranges"]]
        assert ranges == [(partition, 0, EACH) for partition in range(PARTITIONS)]
        assert_exact(self.place, self._servers, self._topic)
        assert_settled(self._admin, self._group, self._topic, self.place)
        self.notes = report["notes"]

    def litter(self) -> set[str]:
        """What attempts left, besides what was there before."""
        return self.place.litter() - self._litter

    def others(self, one: Attempt, point: str = "written") -> list[Attempt]:
        """Other attempts of the same task that came to the point."""
        same = [each for each in attempts(self.directory, point) if each.partition == one.partition]
        return [each for each in same if each.number != one.number]


@pytest.fixture
def trial(
    on_cluster: Loader,
    bootstrap_servers: str,
    topic: str,
    group: str,
    admin: Admin,
    place: Place,
    tmp_path: Path,
) -> Iterator[Trial]:
    trial = Trial(on_cluster, bootstrap_servers, topic, group, admin, place, tmp_path)
    yield trial
    for name in ("go", LET_GO):
        (trial.directory / name).touch()  # who waits still shall not wait for the deadline


ONE_EACH = pytest.mark.parametrize(
    ("place", "route"), [("delta", "fused"), ("postgresql", "sql")], indirect=["place"]
)
THE_OTHERS = pytest.mark.parametrize(
    ("place", "route"), [("delta", "sql"), ("postgresql", "fused")], indirect=["place"]
)


@ONE_EACH
def test_an_executor_is_killed(trial: Trial, route: str) -> None:
    """Its task has written everything, and nobody knows: another attempt writes it again."""
    trial.begin(route, point="written", times=1, holds=True)
    (victim,) = trial.waiting(1)
    trial.kill(victim.executor)
    trial.assert_exact()
    assert trial.others(victim)
    assert any("and ran its tasks again" in note for note in trial.notes), trial.notes


@THE_OTHERS
def test_all_executors_are_killed_at_once(trial: Trial, route: str) -> None:
    """What Spark had kept of the rows, and shuffled, is gone with them."""
    trial.begin(route, point="written", times=2, holds=True)
    victims = trial.waiting(2)
    assert len({each.executor for each in victims}) == 2
    trial.kill(*(victim.executor for victim in victims))
    trial.assert_exact()
    assert all(trial.others(victim) for victim in victims)


@THE_OTHERS
def test_a_python_worker_is_killed(trial: Trial, route: str) -> None:
    trial.begin(route, point="writing", times=1, holds=True)
    (victim,) = trial.waiting(1)
    trial.kill(victim.worker)
    trial.assert_exact()
    assert trial.others(victim)


@pytest.mark.parametrize("route", ["fused", "frame"])
def test_a_task_runs_twice_at_the_same_time(trial: Trial, route: str) -> None:
    """Speculation: one attempt is slow to tell that it has written everything, so Spark starts another."""
    trial.begin(route, point="written", times=1)
    (slow,) = trial.waiting(1)
    trial.assert_exact()
    (twin,) = trial.others(slow)
    assert twin.executor != slow.executor
    if isinstance(trial.place, DeltaPlace):
        assert trial.litter(), "both have written: one of them for nothing"
    else:
        assert not trial.litter(), "what the slow one had staged was dropped"


@pytest.mark.parametrize("route", ["fused", "sql"])
def test_tasks_fail_and_run_again(trial: Trial, route: str) -> None:
    """Three attempts fail after they have written; Spark gives a task four."""
    trial.begin(route, kind="fail", point="written", times=3)
    trial.assert_exact()
    begun = attempts(trial.directory, "writing")
    assert len(attempts(trial.directory, "written")) >= 5
    # On a machine that is busy Spark may have run a task twice: what such a twin leaves is another matter.
    has_twins = len(begun) > 3 + len({one.partition for one in begun})
    assert has_twins or not trial.litter(), "an attempt that fails cleans up"
