"""The Spark source and loads on a broker with TLS, a login and ACLs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from millstream import Admin, EmbeddedBroker, Producer
from millstream.spark import DeltaSink, Load, TopicSink
from tests.programs import run_program
from tests.spark.conftest import ROOT, TIMEOUT_SECONDS
from tests.spark.secured_program import VARIABLE
from tests.spark.spark_cluster import python_without_millstream, standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 20
PROGRAM = Path(__file__).parent / "secured_program.py"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=True) as started:
        with Admin(started.client_settings) as admin:
            admin.create_topic("orders", partitions=2)
        with Producer(started.client_settings) as producer:
            for number in range(RECORDS):
                producer.send("orders", b'{"id": %d}' % number, partition=number % 2)
        yield started


def test_the_source_logs_in_and_shows_no_secret(spark: SparkSession, broker: EmbeddedBroker) -> None:
    settings = broker.client_settings
    options = {f"kafka.{name}": value for name, value in settings.items()}
    frame = spark.read.format("millstream").options(**options).option("subscribe", "orders").load()
    assert frame.count() == RECORDS
    secret = next(value for name, value in settings.items() if "password" in name or "jaas" in name)
    plan = frame._jdf.queryExecution().toString()  # as the UI shows it
    assert "millstream" in plan
    assert secret not in plan


def test_a_load_logs_in(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    settings = dict(broker.client_settings)
    servers = settings.pop("bootstrap.servers")
    for sink in (DeltaSink(tmp_path / "orders"), TopicSink("clean", settings=broker.client_settings)):
        report = Load(
            spark,
            topics=["orders"],
            group_id=f"into-{sink.name}",
            bootstrap_servers=servers,
            sink=sink,
            schema="id LONG",
            properties=settings,
        ).run_once()
        assert report.loaded == RECORDS
    rows = deltalake.DeltaTable(tmp_path / "orders").to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(RECORDS))
    with Admin(broker.client_settings) as admin:
        assert sum(end.offset for end in admin.group_offsets("into-" + sink.name).values()) == RECORDS


@pytest.mark.slow
def test_a_password_reaches_executors_and_is_seen_nowhere(broker: EmbeddedBroker, tmp_path: Path) -> None:
    settings = broker.client_settings
    password = settings["sasl.password"]
    given = tmp_path / "private" / "settings.json"
    given.parent.mkdir()
    given.write_text(json.dumps(settings))
    (given.parent / "spark-defaults.conf").write_text(f"spark.executorEnv.{VARIABLE} {password}\n")
    place = tmp_path / "cluster"
    place.mkdir()
    python = python_without_millstream(place)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    variables = {
        **clean,
        "PYTHONPATH": str(ROOT),
        "SPARK_CONF_DIR": str(given.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        VARIABLE: password,
    }
    with standalone(place, workers=2, PYSPARK_PYTHON=python) as cluster:
        command = [sys.executable, str(PROGRAM), cluster.address, str(given), str(place)]
        done = run_program(command, timeout=TIMEOUT_SECONDS, env=variables)
    printed = done.stdout + done.stderr
    (place / "driver.log").write_text(printed)
    assert done.returncode == 0, printed[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    assert json.loads(line.removeprefix("FOUND ")) == dict.fromkeys(("batch", "stream", "loaded"), RECORDS)
    rows = deltalake.DeltaTable(place / "orders").to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(RECORDS))
    showing = {
        str(path.relative_to(place))
        for path in place.rglob("*")
        if path.is_file() and password.encode() in path.read_bytes()
    }
    assert showing == set()
    _assert_looked(place)


def _assert_looked(place: Path) -> None:
    """What is not secret is there: the looks were at the right things."""
    seen = {path.name: path.read_text() for path in (place / "seen").iterdir()}
    assert "millstream" in seen["plans"]
    assert f"spark.executorEnv.{VARIABLE}" in seen["rest-environment"]
    assert "secured_program.py" in seen["processes"] and "CoarseGrained" in seen["processes"]
    events = [path.read_text() for path in (place / "events").rglob("*app*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in events)
    assert list(place.glob("worker-*/app-*/*/stderr")), "logs of executors"
