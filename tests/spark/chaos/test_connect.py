"""Loads through Spark Connect: a real server, whose workers do not have millstream; it is sent to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from tests.spark.chaos.faults import Fault
from tests.spark.chaos.loading import ROOT, Loader, loader
from tests.spark.chaos.places import Place
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled, is_good
from tests.spark.spark_cluster import connect_server, python_without_millstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SQL = {**SHAPE, "sql": "SELECT id, price, _topic, _partition, _offset FROM batch WHERE abs(price) > 0"}
GOOD = sum(is_good(number) for number in [*range(30), *range(100, 130)])


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    place = tmp_path_factory.mktemp("connect")
    python = python_without_millstream(place)
    with (
        connect_server(place, PYSPARK_PYTHON=python, PYTHONPATH=str(ROOT)) as address,
        loader(place, address) as process,
    ):
        yield process


@pytest.mark.parametrize("shape", [SHAPE, SQL], ids=["fused", "sql"])
def test_a_load_through_connect(
    connected: Loader,
    shape: dict[str, Any],
    bootstrap_servers: str,
    topic: str,
    group: str,
    admin: Admin,
    place: Place,
    tmp_path: Path,
) -> None:
    """It is stopped while tasks run, fails once and is tried again, and has nothing to do afterwards."""
    attempts = iter(tmp_path / f"attempts-{number}" for number in range(9))

    def begin(*, stops: bool = False, **fault: Any) -> None:
        directory = next(attempts)
        directory.mkdir()
        wanted = Fault(str(directory), **fault)
        connected.begin(bootstrap_servers, topic, group, place, wanted, stops=stops, max_records=24, **shape)

    begin(times=1, point="writing", stops=True)
    report = connected.report()
    assert (report["stopped"], report["loaded"], place.rows()) == (True, 0, [])
    begin(times=1, point="written", kind="fail")
    report = connected.report()
    assert (report["loaded"], report["rejected"], report["cycles"]) == (GOOD, 60 - GOOD, 3)
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
    begin()
    assert connected.report()["cycles"] == 0


def test_a_failure_through_connect_says_what_is_safe(
    connected: Loader, bootstrap_servers: str, topic: str, group: str, place: Place, tmp_path: Path
) -> None:
    fault = Fault(str(tmp_path), kind="fail", point="writing", times=100)
    connected.begin(bootstrap_servers, topic, group, place, fault, **SHAPE)
    answer = connected.answer()
    assert answer["kind"] == "LoadFailedError"
    assert answer["error"] in [
        f"loading {topic}-{partition} [0, 30) into {place.sink().name} failed: {topic}-{partition} [0, 30): "
        "RuntimeError: this attempt was to fail. This run had committed 0 rows before, and nothing of what "
        "failed: running it again is safe and continues there"
        for partition in range(2)
    ]
    assert place.rows() == []
