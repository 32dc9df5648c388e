"""A load that begins before the cluster has workers says what it waits for, and uses them when they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.admin import Admin
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.spark.chaos.faults import Fault
from tests.spark.chaos.loading import loader
from tests.spark.chaos.places import DeltaPlace
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled, send
from tests.spark.chaos.test_cluster import SETTINGS
from tests.spark.spark_cluster import SECONDS, python_without_millstream, standalone
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_workers_that_come_late(
    bootstrap_servers: str, new_topic: NewTopic, producer: Producer, admin: Admin, group: str, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        send(producer, topic, partition, 1000 * partition, 1000 * partition + 100)
    python = python_without_millstream(tmp_path)
    place = DeltaPlace(tmp_path)
    with (
        standalone(tmp_path, workers=0, PYSPARK_PYTHON=python) as cluster,
        loader(tmp_path, cluster.address, SETTINGS, PYSPARK_PYTHON=python) as process,
    ):
        process.begin(bootstrap_servers, topic, group, place, Fault(str(tmp_path), times=0), **SHAPE)
        until(lambda: "Spark has had no executor for 10 s" in process.told(), process.told, SECONDS)
        assert f"master {cluster.address} with spark.executor.memory=512m" in process.told()
        cluster.add_worker()
        assert process.report()["records"] == 200
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
