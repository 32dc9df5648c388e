"""The writer on a cluster of real workers without millstream, of which one is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from millstream import Admin
from tests.conftest import NewTopic
from tests.spark.conftest import ROOT, TIMEOUT_SECONDS
from tests.spark.spark_cluster import python_without_millstream, standalone
from tests.spark.writer_program import ROWS
from tests.spark.writing import Writing
from tests.waiting import until

PROGRAM = Path(__file__).parent / "writer_program.py"


@pytest.mark.slow
def test_a_worker_that_dies_loses_no_row(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, copy = new_topic(partitions=2), new_topic(name="copy")
    writing = Writing(bootstrap_servers, admin)
    python = python_without_millstream(tmp_path)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    variables = {
        **clean,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with (
        standalone(tmp_path, workers=2, PYSPARK_PYTHON=python) as cluster,
        (tmp_path / "out").open("wb") as out,
    ):
        command = [
            sys.executable,
            str(PROGRAM),
            cluster.address,
            bootstrap_servers,
            topic,
            copy,
            str(tmp_path),
        ]
        job = subprocess.Popen(command, env=variables, stdout=out, stderr=subprocess.STDOUT)
        try:
            until(
                lambda: len(list(tmp_path.glob("wrote-*"))) == 2 or job.poll() is not None,
                lambda: f"both workers write: {(tmp_path / 'out').read_text()[-3000:]}",
                TIMEOUT_SECONDS,
            )
            until(lambda: sum(writing.ends(topic).values()) > 0, "rows are in the topic")
            os.killpg(cluster.workers[0].pid, signal.SIGKILL)
            (tmp_path / "go").touch()
            job.wait(TIMEOUT_SECONDS)
        finally:
            job.kill()
    printed = (tmp_path / "out").read_text(errors="replace")
    assert job.returncode == 0 and "WRITTEN" in printed, printed[-4000:]
    assert "ExecutorLostFailure" in printed or "lost" in printed, "a worker was killed"
    found = Counter(int(value) for value in writing.values(topic))
    assert set(found) == set(range(ROWS))
    assert Counter(int(value) for value in writing.values(copy)) == found, "a stream copied all of it"
    assert max(found.values()) <= 2, "only tasks of the lost worker ran twice"
