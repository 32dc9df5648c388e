"""Loads through Spark Connect: a real server, whose workers do not have millstream; it is sent to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest

from millstream.admin import Admin
from tests.spark.chaos.faults import Fault
from tests.spark.chaos.loading import ROOT, Loader, loader
from tests.spark.chaos.places import Place
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled, is_good
from tests.spark.spark_cluster import connect_server, python_without_millstream

pytestmark = pytest.mark.slow

SQL = {**SHAPE, "sql": "SELECT id, price, _topic, _partition, _offset FROM batch WHERE abs(price) > 0"}
CYCLE = {"max_records": 24}
"""Three cycles for the 60 records."""
GOOD = sum(is_good(number) for number in [*range(30), *range(100, 130)])


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    place = tmp_path_factory.mktemp("connect")
    python = python_without_millstream(place)
    settings = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with (
        connect_server(place, settings, PYSPARK_PYTHON=python, PYTHONPATH=str(ROOT)) as address,
        loader(place, address) as process,
    ):
        yield process


class Begin(Protocol):
    """Starts a load of the topic into the place."""

    def __call__(self, shape: dict[str, Any], *, stops: bool = False, **fault: Any) -> None: ...


@pytest.fixture
def begin(
    connected: Loader, bootstrap_servers: str, topic: str, group: str, place: Place, tmp_path: Path
) -> Begin:
    directories = iter(tmp_path / f"attempts-{number}" for number in count())

    def start(shape: dict[str, Any], *, stops: bool = False, **fault: Any) -> None:
        directory = next(directories)
        directory.mkdir()
        wanted = Fault(str(directory), **fault)
        connected.begin(bootstrap_servers, topic, group, place, wanted, stops=stops, **CYCLE, **shape)

    return start


@pytest.mark.parametrize("shape", [SHAPE, SQL], ids=["fused", "sql"])
def test_a_load_through_connect(
    connected: Loader,
    begin: Begin,
    shape: dict[str, Any],
    bootstrap_servers: str,
    topic: str,
    group: str,
    admin: Admin,
    place: Place,
) -> None:
    """A task fails, so its cycle is done again: here Spark gives a task one try. Then nothing is left."""
    begin(shape, times=1, point="written", kind="fail")
    report = connected.report()
    assert (report["loaded"], report["rejected"], report["cycles"]) == (GOOD, 60 - GOOD, 3)
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
    begin(shape)
    assert connected.report()["cycles"] == 0


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_load_through_connect_is_stopped(connected: Loader, begin: Begin, place: Place) -> None:
    """Its tasks are broken off, and nothing of them counts."""
    begin(SHAPE, times=2, point="writing", stops=True)
    report = connected.report()
    assert (report["stopped"], report["loaded"], place.rows()) == (True, 0, [])
    begin(SHAPE)
    assert connected.report()["loaded"] == GOOD


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_failure_through_connect_says_what_is_safe(
    connected: Loader, begin: Begin, topic: str, place: Place
) -> None:
    """And that is true: the next run loads everything."""
    begin(SHAPE, kind="fail", point="writing", times=100)
    answer = connected.answer()
    assert answer["kind"] == "LoadFailedError"
    said = re.sub(r" \(tried 2 times in \d+ s\)", "", answer["error"])
    assert said != answer["error"]
    assert said in [
        f"loading {topic}-{partition} [0, 12) into {place.sink().name} failed: {topic}-{partition} [0, 12): "
        "RuntimeError: this attempt was to fail. This run had committed 0 rows before, and nothing of what "
        "failed: running it again is safe and continues there"
        for partition in range(2)
    ]
    assert place.rows() == []
    begin(SHAPE)
    assert connected.report()["loaded"] == GOOD
