"""Somebody dies while tasks copy rows into PostgreSQL: the worker that runs the task, the server's process at
the other end, or the driver. Nothing of the attempt is left, and the rows are right.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from millstream.admin import Admin
from tests.spark.burying import bury
from tests.spark.chaos.conftest import NewLoad
from tests.spark.chaos.crashing import CrashingServer
from tests.spark.chaos.driver import SPARK
from tests.spark.chaos.faults import ATTEMPT_SECONDS, Attempt, Fault, attempts
from tests.spark.chaos.loader import with_faults
from tests.spark.chaos.loading import loader
from tests.spark.chaos.places import PostgresPlace
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, Background
from tests.waiting import until


@pytest.fixture
def place(server: CrashingServer) -> Iterator[PostgresPlace]:
    place = PostgresPlace(server.url)
    yield place
    place.close()


@pytest.fixture
def fault(tmp_path: Path) -> Iterator[Fault]:
    """The first attempt waits in the middle of its COPY."""
    yield Fault(str(tmp_path), point="writing", times=1)
    (tmp_path / "go").touch()


def waiting(fault: Fault) -> Attempt:
    found = until(lambda: attempts(Path(fault.directory), "waiting"), "an attempt that copies", LOAD_SECONDS)
    return found[0]


def copying(server: CrashingServer) -> list[int]:
    """The server's processes that take rows at the moment."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'COPY %' AND state = 'active'"
        )
        return [pid for (pid,) in found]


@pytest.mark.parametrize("who", ["worker", "backend"])
def test_one_end_of_a_copy_is_killed(
    who: str,
    server: CrashingServer,
    place: PostgresPlace,
    fault: Fault,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    """A server whose process was killed restarts all others, and empties what was staged."""
    load = Background(new_load(topic, place, sink=with_faults(place.sink(), fault)).run_once)
    load.thread.start()
    victim = waiting(fault)
    (backend, *_) = copying(server)
    os.kill(victim.worker if who == "worker" else backend, signal.SIGKILL)
    (Path(fault.directory) / "go").touch()
    load.join()
    assert len(attempts(Path(fault.directory), "writing")) > 1, "another attempt has written"
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
    until(lambda: not place.litter(), lambda: f"left behind: {place.litter()}")


def test_the_driver_is_killed(
    server: CrashingServer,
    place: PostgresPlace,
    fault: Fault,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
    tmp_path: Path,
) -> None:
    """Its workers end with it, and with their connections what they had copied."""
    both = Fault(fault.directory, point="writing", times=2)
    with loader(tmp_path, "local[2]", SPARK) as process:
        properties = {**QUICK, "client.id": "driver"}
        process.begin(bootstrap_servers, topic, group, place, both, properties=properties, **SHAPE)
        until(lambda: len(attempts(tmp_path, "waiting")) == 2, process.told, ATTEMPT_SECONDS)
        assert len(copying(server)) == 2
        process.process.kill()
        process.process.wait()
        bury(admin, group, "driver")
    until(lambda: not copying(server), "their connections break")
    assert place.rows() == [] and not place.litter()
    new_load(topic, place).run_once()
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
    assert not place.litter()
