"""What a machine lacks is named at the end of the run, with the number of tests that could not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.clients.registry import CLIENTS
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(360)  # a run of its own, which imports every client
def test_clients_that_the_machine_lacks_are_named(tmp_path: Path) -> None:
    missing = ["Java", "kcat", "kafkajs"]
    wanted = " or ".join(f"of_a_group and {name}" for name in missing)
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-o", f"cache_dir={tmp_path}"]
    done = subprocess.run(
        [*command, "tests/kafka/test_clients.py", "-k", wanted],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=5 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout[done.stdout.index("not run on this machine") :]
    assert "the Java clients: java is not on the PATH (1 test)" in summary
    assert "kcat: kcat is not on the PATH (1 test)" in summary
    assert "kafkajs: node is not on the PATH (1 test)" in summary
    assert set(missing) <= set(CLIENTS)
