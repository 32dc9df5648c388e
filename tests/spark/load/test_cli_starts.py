"""``millstream load`` that does not get as far as loading: it says why, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.waiting import SECONDS, until

VARIABLE = "MILLSTREAM_TEST_OF_STARTS"
START_SECONDS = 3 * SECONDS
"""How long a load may take to start Java and to end it, on a busy machine."""


class Start:
    """One load in a process of its own, and all processes that come of it."""

    def __init__(self, servers: str, topic: str, directory: Path) -> None:
        self._mark = f"{VARIABLE}={uuid.uuid4().hex}"
        self._command = [
            *(sys.executable, "-m", "millstream", "load", topic, "--group", f"{topic}-starts"),
            *("--to", f"delta:{directory}/t", "-b", servers, "--conf", "spark.driver.memory=512m"),
        ]
        name, value = self._mark.split("=")
        self._environment = {**os.environ, "SPARK_LOCAL_DIRS": str(directory), name: value}

    def __call__(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self._environment, **environment},
        )

    def processes(self) -> dict[int, str]:
        """Those that run, and their command lines."""
        found = {}
        for each in Path("/proc").iterdir():
            with suppress(OSError):
                if each.name.isdigit() and self._mark.encode() in (each / "environ").read_bytes():
                    found[int(each.name)] = (each / "cmdline").read_text()
        return found

    def failed(self, code: int, *words: str, **environment: str) -> str:
        """What it says when it fails; that nothing is left."""
        process = self("--once", *words, **environment)
        _, said = process.communicate(timeout=START_SECONDS)
        assert process.returncode == code, said
        self.end()
        return said.splitlines()[-1]

    def end(self) -> None:
        until(lambda: not self.processes(), lambda: f"{self.processes()} have ended", START_SECONDS)


@pytest.fixture
def start(bootstrap_servers: str, new_topic: NewTopic, fill: Fill, tmp_path: Path) -> Iterator[Start]:
    topic = new_topic(partitions=1)
    fill(topic, 10)
    start = Start(bootstrap_servers, topic, tmp_path)
    yield start
    for pid in start.processes():  # of a test that failed
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_java_that_does_not_start(start: Start, tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    said = start.failed(1, JAVA_HOME=str(tmp_path / "jdk"))
    assert said.startswith("error: Spark does not start") and "Java gateway process exited" in said


def test_a_master_that_is_none(start: Start) -> None:
    said = start.failed(1, "--master", "local[many]")
    assert said.startswith("error: Spark does not start") and "'local[many]'" in said, said


def test_no_broker(start: Start) -> None:
    assert "no broker answers" in start.failed(1, "-b", "127.0.0.1:1")


def test_a_group_that_does_not_take_it(start: Start) -> None:
    said = start.failed(1, "--property", "session.timeout.ms=900", "--property", "heartbeat.interval.ms=300")
    assert "session" in said, said


def test_ctrl_c_while_spark_starts(start: Start) -> None:
    process = start()  # which has no end, should Spark have started by then
    until(
        lambda: (
            process.poll() is not None or any("SparkSubmit" in line for line in start.processes().values())
        ),
        "Java is starting",
        START_SECONDS,
    )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said
    start.end()
