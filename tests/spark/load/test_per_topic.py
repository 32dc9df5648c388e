"""One load into a table for each topic: ``delta:lake/{topic}``."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Producer
from millstream.cli import main
from millstream.demo.tables import query
from millstream.errors import ConfigError, LoadFailedError
from millstream.spark import DeltaTopicsSink, Load
from millstream.spark.load.points import Detail, Point
from millstream.spark.sinks.kinds import sink_for
from tests.spark.load.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Died(Exception):  # noqa: N818 - what the test lets happen
    """The driver is killed."""


class Shop:
    """Topics with a prefix of their own, each loaded into its table."""

    def __init__(
        self, spark: SparkSession, servers: str, admin: Admin, producer: Producer, group: str, lake: Path
    ) -> None:
        self.prefix = f"shop-{uuid.uuid4().hex[:8]}"
        self.lake = lake
        self.group = group
        self.servers = servers
        self.admin = admin
        self._spark = spark
        self._producer = producer

    def open(self, name: str, *values: object) -> str:
        topic = f"{self.prefix}-{name}"
        self.admin.create_topic(topic, 1)
        for value in values:
            self._producer.send(topic, json.dumps({"id": value}).encode())
        self._producer.flush()
        return topic

    def load(self, **settings: Any) -> Load:
        settings.setdefault("pattern", f"{self.prefix}-.*")
        return Load(
            self._spark,
            group_id=self.group,
            bootstrap_servers=self.servers,
            sink=DeltaTopicsSink(self.lake / "{topic}"),
            schema="id LONG",
            properties={**QUICK, "metadata.max.age.ms": 200},
            **settings,
        )

    def ids(self, topic: str) -> list[tuple[str, int]]:
        found = query(self.lake / topic, "SELECT _topic, id FROM rows")
        return sorted((row["_topic"], row["id"]) for row in found)


@pytest.fixture
def shop(
    spark: SparkSession, bootstrap_servers: str, admin: Admin, producer: Producer, group: str, tmp_path: Path
) -> Shop:
    return Shop(spark, bootstrap_servers, admin, producer, group, tmp_path)


def test_each_topic_has_its_table(shop: Shop) -> None:
    """New topics get theirs as they appear; a rewind replaces the rows of its topic only."""
    a, b = shop.open("a", 1, 2), shop.open("b", 3, "bad")
    report = shop.load().run_once()
    assert (report.loaded, report.rejected, report.cycles) == (3, 1, 1)
    assert sorted(path.name for path in shop.lake.iterdir()) == sorted(
        name + end for name in (a, b) for end in ("", "_rejected")
    )
    c = shop.open("c", 4)
    assert shop.load().run_once().loaded == 1
    shop.admin.reset_offsets(shop.group, offset=1, topics=a)
    assert shop.load().run_once().loaded == 1
    assert (shop.ids(a), shop.ids(b), shop.ids(c)) == ([(a, 1), (a, 2)], [(b, 3)], [(c, 4)])
    assert shop.load().run_once().records == 0


def test_a_driver_that_dies_between_the_tables_of_a_cycle(shop: Shop) -> None:
    a, b = shop.open("a", 1), shop.open("b", 2)
    points: list[Point] = []

    def observe(point: Point, detail: Detail) -> None:
        if point is Point.BETWEEN_TABLES and detail.ranges:
            points.append(point)
            if len(points) == 2:  # the first topic's tables are committed, and the second's rejected rows
                raise Died

    with pytest.raises(LoadFailedError, match=f"and of this cycle what belongs to {a}: running it again"):
        shop.load(observer=observe).run_once()
    assert sorted(shop.ids(a) + shop.ids(b)) == [(a, 1)]
    assert shop.load().run_once().loaded == 1
    assert (shop.ids(a), shop.ids(b)) == ([(a, 1)], [(b, 2)])


def test_status_rejected_and_replay(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = shop.open("a", 5, 1), shop.open("b", 7, 2, 0)
    shop.load(topics=[a, b], pattern=None, checks=["id > 4"]).run_once()
    to = f"delta:{shop.lake}/{{topic}}"

    def typed(*words: str) -> Any:
        assert main(["load", *words, "--to", to, "-b", shop.servers, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    found = typed("status", a, b, "--group", shop.group)
    assert [(one["topic"], one["loaded"], one["note"]) for one in found["partitions"]] == [
        (a, 2, ""),
        (b, 3, ""),
    ]
    assert sorted((row["topic"], row["value"]) for row in typed("rejected")) == [
        (a, '{"id": 1}'),
        (b, '{"id": 0}'),
        (b, '{"id": 2}'),
    ]
    replayed = typed("replay", "--group", shop.group, "--schema", "id LONG", "--check", "id > 0")
    assert (replayed["examined"], replayed["readmitted"]) == (3, 2)
    assert (shop.ids(a), shop.ids(b)) == ([(a, 1), (a, 5)], [(b, 2), (b, 7)])
    assert [row["value"] for row in typed("rejected")] == ['{"id": 0}']


@pytest.mark.parametrize(
    ("topic", "said"),
    [("..", "cannot be part of a path"), ("a/b", "cannot be part"), ("orders_rejected", "{topic}/rows$")],
)
def test_names_that_cannot_be_tables(topic: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DeltaTopicsSink("lake/{topic}").table(topic)


def test_the_address(tmp_path: Path) -> None:
    found = sink_for(f"delta:{tmp_path}/{{topic}}/rows", (), {})
    assert isinstance(found, DeltaTopicsSink)
    (tmp_path / "orders_lost" / "rows" / "_delta_log").mkdir(parents=True)
    assert found.topics() == ["orders_lost"]
    with pytest.raises(ConfigError, match=r"needs {topic} once in its path"):
        sink_for("delta:{topic}/{topic}", (), {})
