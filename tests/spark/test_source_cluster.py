"""The source where Spark is elsewhere: on a cluster of real workers, and behind Connect.

Neither has millstream installed: it is shipped, as the documentation tells.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream import Admin
from tests.conftest import NewTopic
from tests.programs import run_program
from tests.spark.conftest import ROOT, TIMEOUT_SECONDS, Fill
from tests.spark.spark_cluster import connect_server, python_without_millstream, standalone

PROGRAM = Path(__file__).parent / "cluster_program.py"


def run(master: str, servers: str, topic: str, group: str, place: Path, **environment: str) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAM), master, servers, topic, str(place / "checkpoint"), group]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    variables = {**clean, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = run_program(command, timeout=TIMEOUT_SECONDS, env=variables)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert done.returncode == 0 and lines, (done.stdout + done.stderr)[-4000:]
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return found


@pytest.fixture
def topic(new_topic: NewTopic, fill: Fill) -> str:
    name = new_topic(partitions=2)
    fill(name, 300)
    fill(name, 300, partition=1)
    return name


ROWS = [[partition, offset, f"v{offset}"] for partition in range(2) for offset in range(300)]
EXPECTED = {"batch": ROWS, "stream": ROWS}


@pytest.mark.slow
def test_on_a_cluster_of_workers(
    bootstrap_servers: str, topic: str, group: str, admin: Admin, tmp_path: Path
) -> None:
    python = python_without_millstream(tmp_path)
    with standalone(tmp_path, workers=2, PYSPARK_PYTHON=python) as cluster:
        found = run(
            cluster.address,
            bootstrap_servers,
            topic,
            group,
            tmp_path,
            PYSPARK_PYTHON=python,
            PYSPARK_DRIVER_PYTHON=sys.executable,
        )
    assert found == EXPECTED
    assert admin.describe_group(group).lag == 0


@pytest.mark.slow
def test_through_connect(
    bootstrap_servers: str, topic: str, group: str, admin: Admin, tmp_path: Path
) -> None:
    python = python_without_millstream(tmp_path)
    with connect_server(tmp_path, PYSPARK_PYTHON=python) as address:
        found = run(address, bootstrap_servers, topic, group, tmp_path)
    assert found == EXPECTED
    assert admin.describe_group(group).lag == 0
