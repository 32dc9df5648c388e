"""The pipeline of the documents on both brokers: failed tasks run again and double nothing; each message is
validated, and results go to a store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Producer
from millstream.cli.demo.tables import query, rejected_beside
from millstream.spark import DeltaSink, Load
from millstream.spark.sinks.base import TaskOutput, TaskWriter
from tests.conftest import NewTopic
from tests.kafka import brokers
from tests.spark.load.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


@dataclass(frozen=True)
class FailingOnce:
    """A writer whose first two tries fail, having written already."""

    inner: TaskWriter
    tries: str

    def open(self) -> TaskOutput:
        output = self.inner.open()
        for number in range(2):
            try:
                (Path(self.tries) / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            output.finish()
            raise RuntimeError("a worker died")
        return output


class FlakySink(DeltaSink):
    """A table whose first tasks fail."""

    tries: Path

    def writer(self, cycle_id: str) -> TaskWriter:
        return FailingOnce(super().writer(cycle_id), str(self.tries))


def test_failed_tasks_run_again_and_double_nothing(
    spark: SparkSession,
    bootstrap_servers: str,
    new_topic: NewTopic,
    producer: Producer,
    admin: Admin,
    group: str,
    tmp_path: Path,
) -> None:
    topic = new_topic(partitions=3)
    for number in range(3000):
        producer.send(topic, b"%d" % number, key=b"%d" % number)
    producer.flush()
    sink = FlakySink(str(tmp_path / "table"))
    sink.tries = tmp_path / "tries"
    sink.tries.mkdir()
    load = Load(
        spark,
        topics=[topic],
        group_id=group,
        bootstrap_servers=bootstrap_servers,
        sink=sink,
        properties=QUICK,
    )
    report = load.run_once()
    assert report.loaded == 3000
    assert sorted(path.name for path in sink.tries.iterdir()) == ["0", "1"]
    rows = query(tmp_path / "table", "SELECT value FROM rows")
    assert sorted(int(row["value"]) for row in rows) == list(range(3000))
    assert admin.describe_group(group).lag == 0


def test_messages_are_validated_and_the_bad_ones_kept(
    spark: SparkSession,
    bootstrap_servers: str,
    new_topic: NewTopic,
    producer: Producer,
    admin: Admin,
    group: str,
    tmp_path: Path,
) -> None:
    topic = new_topic(partitions=2)
    for number in range(100):
        producer.send(topic, json.dumps({"id": number, "price": number - 10}).encode())
    producer.send(topic, b"no JSON at all")
    producer.flush()
    table = tmp_path / "table"
    report = Load(
        spark,
        topics=[topic],
        group_id=group,
        bootstrap_servers=bootstrap_servers,
        sink=DeltaSink(str(table)),
        schema="id LONG, price DOUBLE",
        checks=["price >= 0"],
        properties=QUICK,
    ).run_once()
    assert (report.loaded, report.rejected) == (90, 11)
    assert sorted(row["id"] for row in query(table, "SELECT id FROM rows")) == list(range(10, 100))
    reasons = [row["reason"] for row in query(rejected_beside(table), "SELECT reason FROM rows")]
    assert reasons.count("check failed: price >= 0") == 10
    assert sum(reason.startswith("not JSON") for reason in reasons) == 1
    assert admin.describe_group(group).lag == 0
