"""Type checkers know every setting: what is right passes, and what is wrong is an error on its line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import generate
from millstream.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, keywords
from tests.kafka.clients import toolchains

ROOT = Path(__file__).parents[3]
SECONDS = 280.0

USES = """\
import json
from collections.abc import Sequence
from millstream import Admin, AsyncConsumer, Consumer, Producer, Record, TopicPartition
from millstream.consumer import Records

class Registry:
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: object) -> bytes:
        return b""
    def deserialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: bytes) -> object:
        return data

class Nothing: ...

t0 = TopicPartition("t", 0)
consumer = Consumer(bootstrap_servers="localhost:9092", group_id="g", max_poll_records=10)
Consumer({"bootstrap.servers": "localhost:9092"}, enable_auto_commit=False, value_deserializer=json.loads)
Consumer(bootstrap_servers=["localhost:9092"], group_instance_id=None, value_deserializer=Registry())
AsyncConsumer(bootstrap_servers="localhost:9092", fetch_max_wait_ms="500")
Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5, key_serializer=Registry())
Admin(bootstrap_servers="localhost:9092", request_timeout_ms=1000)
records: Records = consumer.poll(1.0)
first: Record = records[0]
parts: dict[TopicPartition, Records] = records.by_partition()
some: Sequence[Record] = records[1:]
offsets: list[int] = [record.offset for record in records]
lag: int = consumer.lag(t0)
idle: float = consumer.metrics()["poll_idle_ratio_avg"]
Consumer(bogus=3)  # error
Consumer(group_id=3)  # error
Consumer(max_poll_records=0.5)  # error
Consumer(value_deserializer=Nothing())  # error
AsyncConsumer(bogus=3)  # error
Producer(group_id="g")  # error
Producer(key_serializer=7)  # error
Admin(linger_ms=5)  # error
records.by_partition()["t"]  # error
records[0].offzet  # error
lag_of_text: int = consumer.lag("t-0")  # error
"""
WRONG = {number for number, line in enumerate(USES.splitlines(), 1) if line.endswith("# error")}


@pytest.fixture
def uses(tmp_path: Path) -> Path:
    file = tmp_path / "uses.py"
    file.write_text(USES)
    return file


def test_mypy_finds_what_is_wrong_and_nothing_else(uses: Path) -> None:
    cache = str(ROOT / ".cache" / "mypy-uses")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", cache]
    done = run([*command, "--follow-imports=silent", str(uses)])
    found = re.findall(r"uses\.py:(\d+): error: .*", done.stdout)
    assert {int(line) for line in found} == WRONG, done.stdout + done.stderr
    assert 'Unexpected keyword argument "bogus" for "Consumer"' in done.stdout


def test_pyright_finds_what_is_wrong_and_nothing_else(uses: Path) -> None:
    config = {"pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")], "reportUnusedExpression": False}
    (uses.parent / "pyrightconfig.json").write_text(json.dumps(config))
    command = [*toolchains.pyright(), "--outputjson", "--project", str(uses.parent)]
    done = run([*command, "--pythonpath", sys.executable])
    report = json.loads(done.stdout)["generalDiagnostics"]
    found = [one for one in report if one["severity"] == "error"]
    errors = {one["range"]["start"]["line"] + 1: one["message"] for one in found}
    assert errors.keys() == WRONG, errors
    assert any('"bogus"' in message for message in errors.values())


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment, cwd=ROOT
    )


@pytest.mark.parametrize(
    ("config", "typed"),
    [
        (ClientConfig, keywords.ClientKeywords),
        (ConsumerConfig, keywords.ConsumerKeywords),
        (ProducerConfig, keywords.ProducerKeywords),
        (AdminConfig, keywords.AdminKeywords),
    ],
)
def test_every_setting_is_typed(config: type[ClientConfig], typed: type) -> None:
    ignored = {name for name in config.WITHOUT_EFFECT if "*" not in name}
    assert typed.__annotations__.keys() == {*config.names(), *ignored}
    assert generate.KEYWORDS.read_text() == generate.keywords_module(), "run make docs"
