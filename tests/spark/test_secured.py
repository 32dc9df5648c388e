"""The Spark source and loads on a broker with TLS, a login and ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from millstream import Admin, EmbeddedBroker, Producer
from millstream.spark import DeltaSink, Load, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 20


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
