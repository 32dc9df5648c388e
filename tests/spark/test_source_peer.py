"""Beside Spark's own kafka source: the same columns, types and rows for the same options, on one topic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.spark_peer import fetch_spark_jars
from millstream import Producer
from tests.conftest import NewTopic
from tests.kafka.not_run import not_run
from tests.programs import run_program
from tests.spark.conftest import ROOT, TIMEOUT_SECONDS
from tests.spark.scenarios import SCENARIOS

PROGRAM = "tests.spark.peer_program"


@pytest.mark.slow
def test_the_same_as_sparks_own_source(
    bootstrap_servers: str, new_topic: NewTopic, producer: Producer, tmp_path: Path
) -> None:
    jars = _jars()
    topic = new_topic(partitions=2)
    for number in range(24):
        headers = [("number", b"%d" % number), ("none", None)] if number % 3 == 0 else []
        key = None if number % 5 == 0 else b"k%d" % number
        value = None if number % 7 == 0 else b"value %d" % number
        producer.send(topic, value, key=key, partition=number % 2, timestamp=500 * number, headers=headers)
    producer.flush()
    command = [sys.executable, "-m", PROGRAM, jars, bootstrap_servers, topic, str(tmp_path)]
    done = run_program(command, timeout=TIMEOUT_SECONDS, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert done.returncode == 0 and lines, (done.stdout + done.stderr)[-4000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert {name: ours for name, (_, ours) in found["cases"].items()} == {
        name: theirs for name, (theirs, _) in found["cases"].items()
    }
    assert [len(ours["rows"]) for _, ours in found["cases"].values()] == [24, 24, 24, 12, 18, 12, 22, 24, 24]
    whole = [[0, offset] for offset in range(22)] + [[1, offset] for offset in range(12)]
    assert found["continued"] == whole, "a checkpoint goes from Spark's source to ours and back"
    declared = {each.what: [each.spark, each.ours] for each in SCENARIOS}
    assert found["answers"] == declared, "what docs/spark.md says"


def _jars() -> str:
    try:
        jars = fetch_spark_jars()
    except (OSError, subprocess.CalledProcessError) as error:
        not_run("Spark's own kafka source", f"its jars cannot be had: {error}")
    if jars is None:
        not_run("Spark's own kafka source", "its jars are not there, and mvn, which would fetch them, is not")
    return ",".join(map(str, jars))
