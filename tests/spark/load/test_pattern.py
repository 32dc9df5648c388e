"""A load of all topics whose names match a pattern, on both brokers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Producer
from millstream.demo.tables import query
from millstream.spark import DeltaSink, Load
from millstream.spark.load.points import Detail, Point
from tests.kafka import brokers
from tests.spark.load.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


class Shop:
    """Topics with a prefix of their own, loaded into one table."""

    def __init__(
        self, spark: SparkSession, servers: str, admin: Admin, producer: Producer, group: str, place: Path
    ) -> None:
        self.prefix = f"shop-{uuid.uuid4().hex[:8]}"
        self.table = place / "table"
        self.group = group
        self.admin = admin
        self._spark = spark
        self._servers = servers
        self._producer = producer

    def open(self, name: str, *numbers: int) -> None:
        self.admin.create_topic(f"{self.prefix}-{name}", 2)
        for number in numbers:
            self._producer.send(f"{self.prefix}-{name}", json.dumps({"id": number}).encode())
        self._producer.flush()

    def load(self, **settings: object) -> Load:
        return Load(
            self._spark,
            pattern=f"{self.prefix}-.*",
            group_id=self.group,
            bootstrap_servers=self._servers,
            sink=DeltaSink(str(self.table)),
            schema="id LONG",
            properties={**QUICK, "metadata.max.age.ms": 200},
            **settings,  # type: ignore[arg-type]
        )

    def rows(self) -> list[tuple[str, int]]:
        found = query(self.table, "SELECT _topic, id FROM rows")
        return sorted((row["_topic"].removeprefix(f"{self.prefix}-"), row["id"]) for row in found)


@pytest.fixture
def shop(
    spark: SparkSession, bootstrap_servers: str, admin: Admin, producer: Producer, group: str, tmp_path: Path
) -> Shop:
    return Shop(spark, bootstrap_servers, admin, producer, group, tmp_path)


def test_new_topics_are_loaded_and_deleted_ones_do_not_end_it(shop: Shop) -> None:
    report = shop.load().run_once()
    assert (report.loaded, report.notes) == (0, (f"no topic matches the pattern '{shop.prefix}-.*'",))
    shop.open("a", 1, 2)
    assert shop.load().run_once().loaded == 2
    shop.open("b", 3)
    assert shop.load().run_once().loaded == 1
    shop.admin.delete_topics(f"{shop.prefix}-a")
    shop.open("c", 4)
    assert shop.load().run_once().loaded == 1
    assert shop.rows() == [("a", 1), ("a", 2), ("b", 3), ("c", 4)]


def test_a_topic_that_appears_while_it_runs_is_loaded_from_its_start(shop: Shop) -> None:
    shop.open("a", 1)

    def observe(point: Point, detail: Detail) -> None:
        plans.extend([point] if point is Point.PLANNING else [])
        if point is Point.PLANNING and len(plans) == 2:  # the first has seen what is there
            shop.open("b", 2, 3)
        if point is Point.GROUP_COMMITTED:
            load.stop()

    plans: list[Point] = []
    load = shop.load(starting="latest", observer=observe)
    load.run(every=0.1)
    assert shop.rows() in ([("b", 2), ("b", 3)], [("b", 2)], [("b", 3)])
    shop.load().run_once()
    assert shop.rows() == [("b", 2), ("b", 3)]
