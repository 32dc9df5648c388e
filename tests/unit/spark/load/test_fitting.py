"""What cannot be is said when a load is made: before Spark is started, and before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from millstream.errors import ConfigError
from millstream.spark import DeltaSink, Load, PostgresSink, TopicSink
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.engine.requirements import bounds_for
from millstream.spark.sinks.base import SinkError
from millstream.spark.sinks.kinds import sink_for

POSTGRES = PostgresSink("postgresql://nobody@127.0.0.1:1/db?table=orders")
TOPIC = TopicSink("clean", bootstrap_servers="127.0.0.1:1")
KEYED = TopicSink("clean", bootstrap_servers="127.0.0.1:1", key="id")
DELTA = DeltaSink("nowhere/orders")
SHAPED: dict[str, Any] = {"schema": "id LONG, price DOUBLE"}


def never() -> NoReturn:
    raise AssertionError("Spark was started")


def load(**settings: Any) -> Load:
    wanted = {"topics": ["orders"], "group_id": "g", "sink": DELTA, "bootstrap_servers": "127.0.0.1:1"}
    return Load(never, **{**wanted, **settings})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"group_id": ""}, "group_id is empty"),
        ({"instance_id": ""}, "instance_id is empty"),
        ({"topics": []}, "topics is empty"),
        ({"pattern": "shop-.*"}, "topics and pattern are both given"),
        ({"topics": [], "pattern": ""}, "pattern is empty"),
        ({"topics": [], "pattern": "shop-("}, "is not a regular expression"),
        ({"topics": "orders"}, "must be a list"),
        ({"bootstrap_servers": ""}, "bootstrap"),
        ({"starting": "first"}, "starting is 'first': it is one of earliest, latest"),
        ({"on_recreated": "go"}, "on_recreated is 'go': it is one of fail, append"),
        ({"max_records": 0}, "max_records is 0"),
        ({"max_bytes": -1}, "max_bytes is -1"),
        ({"max_seconds": 0}, "max_seconds is 0"),
        ({"target_file_size": 1}, "needs compact=True"),
        ({"sink": POSTGRES, "compact": True}, "has none to join: leave it out"),
        ({"sink": TOPIC, "compact": True}, "has none to join: leave it out"),
        ({"properties": {"group.id": "x"}}, "group.id is not a property of a load: use group_id"),
        ({"properties": {"isolation.levle": "x"}}, "isolation.level"),
        ({"checks": ["price > 0"]}, "no column 'price'.*known with a schema only"),
        ({**SHAPED, "checks": ["cost > 0"]}, "check 'cost > 0': there is no column 'cost'. There are id"),
        ({**SHAPED, "checks": ["abs(id) > 0", "cost > 0"]}, "no column 'cost'"),
        ({**SHAPED, "partition_by": ["day"]}, "partition_by: there is no column 'day'"),
        ({**SHAPED, "partition_by": ["price"]}, "cannot be partitioned by price"),
        ({"schema": "`a b` LONG"}, "no columns with spaces"),
        ({"schema": "id LONGER"}, "schema: "),
        ({"value_format": "json"}, "needs a schema"),
        ({"value_format": "csv"}, "needs a schema"),
        ({"value_format": "avro"}, "avro_schema and value_format=avro go together"),
        ({"value_format": "raw", **SHAPED}, "schema is not for value_format=raw"),
        ({"value_format": "xml"}, "it is one of raw, json, avro, csv"),
        ({**SHAPED, "csv_delimiter": ";"}, "is not for value_format=json"),
        ({**SHAPED, "avro_prefix": "confluent"}, "is not for value_format=json"),
        ({"sink": TOPIC, "partition_by": ["topic"]}, "no partition columns: leave partition_by out"),
        ({"sink": TOPIC, "add_columns": True}, "no columns to add to: leave add_columns out"),
        ({"sink": KEYED}, "keep their own keys"),
        ({"sink": KEYED, "schema": "name STRING"}, "no column id for the key. There are name"),
        ({"sink": TOPIC, "topics": ["clean"]}, "would load clean into itself"),
        ({"sink": TOPIC, "topics": ["a", "clean_rejected"]}, "would load clean_rejected into itself"),
        ({"sink": POSTGRES, "schema": f"{'x' * 64} LONG"}, "63 bytes are the most"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ConfigError, SinkError), match=complaint):
        load(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"checks": ["current_date > DATE '2020-01-01'", "VALUE IS NOT NULL", "abs(nothing) > 0"]},
        {"checks": ["`key` IS NULL OR offset > 5"]},
        {**SHAPED, "checks": ["PRICE > 0"], "partition_by": ["date(_timestamp) AS day"]},
        {"sink": TOPIC, "topics": ["clean"], "bootstrap_servers": "127.0.0.2:1"},
        {"sink": KEYED, **SHAPED},
        {"compact": True, "target_file_size": 1 << 20},
    ],
)
def test_what_may_fit_is_not(settings: dict[str, Any]) -> None:
    load(**settings)


def test_nothing_is_made_by_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(sink=DeltaSink(tmp_path / "orders"), **SHAPED, partition_by=["day"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["postgresql://h/db?table=t", "topic:clean"])
def test_a_size_of_files_is_for_files(address: str) -> None:
    with pytest.raises(ConfigError, match="target_file_size is for sinks with files"):
        sink_for(address, ["orders"], {}, 1 << 20)


def test_sinks_whose_commits_cost_more_have_smaller_cycles() -> None:
    assert bounds_for(DELTA, Bounds()) == Bounds()
    assert bounds_for(POSTGRES, Bounds(max_seconds=3)) == Bounds(1_000_000, None, 3)
    assert bounds_for(TOPIC, Bounds()) == Bounds(200_000, 64 << 20)
    mine = Bounds(max_records=5_000_000)
    assert bounds_for(TOPIC, mine) == mine, "the user's word counts"
    assert bounds_for(TOPIC, Bounds(max_bytes=7)) == Bounds(max_bytes=7)
