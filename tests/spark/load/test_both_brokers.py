"""The pipeline of the documents on both brokers: failed tasks run again and double nothing; each message is
validated, and results go to a store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from millstream import Admin, Producer
from millstream.cli import main
from millstream.demo.tables import query, rejected_beside
from millstream.spark import DeltaSink, Load
from millstream.spark.sinks.base import TaskOutput, TaskWriter
from tests.conftest import NewTopic
from tests.kafka import brokers
from tests.spark.load.conftest import QUICK
from tests.system.postgresql import postgresql

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


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql() as url:
        yield url


def test_the_command_loads_into_postgresql(
    spark: SparkSession,
    bootstrap_servers: str,
    new_topic: NewTopic,
    producer: Producer,
    admin: Admin,
    group: str,
    database: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Loaded, rejected and replayed as it is typed; the second load, after a rewind, replaces the first."""
    del spark  # the command finds it in this process
    topic = new_topic(partitions=2)
    for number in range(20):
        producer.send(topic, json.dumps({"id": number, "price": number - 5}).encode())
    producer.flush()
    table = f"rows_{abs(hash(topic)):x}"
    to = ("--to", f"{database}&table={table}", "-b", bootstrap_servers)
    load = (topic, "--group", group, *to, "--once", "--schema", "id LONG, price DOUBLE")
    assert main(["load", *load, "--check", "price >= 0"]) == 0
    assert f"table={table}, 5 rejected; 1 cycle, " in capsys.readouterr().out
    assert main(["load", "rejected", *to, "--json"]) == 0
    reasons = [row["reason"] for row in json.loads(capsys.readouterr().out)]
    assert reasons == ["check failed: price >= 0"] * 5
    shape = ("--schema", "id LONG, price DOUBLE", "--check", "price >= -2")
    assert main(["load", "replay", "--group", group, *to, *shape]) == 0
    assert "2 of 5 rejected rows moved" in capsys.readouterr().out

    admin.reset_offsets(group, "earliest")
    assert main(["load", *load, "--check", "price >= -1"]) == 0
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()
    assert [row[0] for row in rows] == list(range(4, 20))
    assert admin.describe_group(group).lag == 0


def test_a_misspelt_table_is_said_and_not_made(
    bootstrap_servers: str, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ("--to", f"{database}&table=ordres", "-b", bootstrap_servers)
    assert main(["load", "rejected", *to]) == 1
    assert "there is no table" in capsys.readouterr().err
    assert main(["load", "replay", "--group", "g", *to, "--schema", "id LONG"]) == 1
    assert "there is no table" in capsys.readouterr().err
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('ordres')").fetchone() == (None,)


def test_a_misspelt_topic_is_said(
    bootstrap_servers: str, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic()
    assert main(["load", "rejected", "--to", f"topic:{topic}x", "-b", bootstrap_servers]) == 1
    assert f"did you mean '{topic}'?" in capsys.readouterr().err


def test_another_group_has_loaded_the_rejected_rows(
    spark: SparkSession,
    bootstrap_servers: str,
    new_topic: NewTopic,
    producer: Producer,
    group: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del spark
    topic = new_topic()
    producer.send(topic, b"no JSON at all")
    producer.flush()
    to = ("--to", f"delta:{tmp_path}/table", "-b", bootstrap_servers)
    assert main(["load", topic, "--group", group, *to, "--once", "--schema", "id LONG"]) == 0
    assert main(["load", "replay", "--group", f"{group}x", *to, "--schema", "id LONG"]) == 0
    assert f"group {group}x has loaded none of these rows" in capsys.readouterr().err
    assert main(["load", "status", topic, "--group", f"{group}x", *to]) == 0
    assert f"did you mean '{group}'?" in capsys.readouterr().err
