"""How a load stands, seen from outside: how far behind is counted to where it could be."""

from __future__ import annotations

from typing import Any, cast

import pytest

from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import CommitMetadata
from millstream.spark.load.status import LoadStatus, status
from millstream.spark.sinks.base import LostRange
from tests.unit.spark.load.world import ID, FakeBrokers, FakeSink, as_sink

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Sink(FakeSink):
    def lost(self, group_id: str) -> list[LostRange]:
        return []


class World:
    """Two partitions of ten offsets, of which the first is loaded up to 4; there a transaction is open."""

    def __init__(self) -> None:
        self.brokers = FakeBrokers({"orders": (ID, [(0, 10), (0, 10)])})
        self.brokers.stable = {FIRST: 4, SECOND: 10}
        self.sink = Sink()
        self.sink.stand("orders", 0, 4)
        self.sink.stand("orders", 1, 10)

    def commit(self, where: TopicPartition, offset: int, *, read_committed: bool) -> None:
        mark = CommitMetadata("c1", self.sink.name, read_committed)
        self.brokers.group[where] = OffsetAndMetadata(offset, str(mark))

    def status(self) -> LoadStatus:
        return status(cast("Any", self.brokers), as_sink(self.sink), "g", ["orders"])


@pytest.fixture
def world() -> World:
    return World()


def test_a_load_of_everything_lags_behind_the_end_of_the_log(world: World) -> None:
    world.commit(FIRST, 4, read_committed=False)
    world.commit(SECOND, 10, read_committed=False)
    found = world.status()
    assert [one.lag for one in found.partitions] == [6, 0] and found.lag == 6
    assert [one.note for one in found.partitions] == ["", ""]


def test_a_load_of_what_is_committed_lags_behind_the_open_transaction(world: World) -> None:
    world.commit(FIRST, 4, read_committed=True)
    world.commit(SECOND, 10, read_committed=True)
    found = world.status()
    assert found.lag == 0, "it could not be further"
    first, second = found.partitions
    assert (first.log_end, first.readable_end, second.readable_end) == (10, 4, 10)
    assert first.note == "a transaction is open at 4: later records wait for its end"
    assert second.note == ""
    assert found.as_dict()["partitions"][0]["readable_end"] == 4


def test_what_was_moved_or_is_new_is_as_the_others(world: World) -> None:
    world.brokers.group[FIRST] = OffsetAndMetadata(2, RESET_METADATA)
    world.commit(SECOND, 10, read_committed=True)
    assert world.status().partitions[0].readable_end == 4
    del world.brokers.group[FIRST]
    assert world.status().partitions[0].readable_end == 4
    world.commit(FIRST, 4, read_committed=False)
    assert world.status().partitions[0].readable_end == 10, "it says so itself"


def test_a_table_past_the_open_transaction_does_not_lag(world: World) -> None:
    """It was loaded before without that setting."""
    world.sink.stand("orders", 0, 7)
    world.commit(FIRST, 7, read_committed=True)
    assert world.status().partitions[0].lag == 0


def test_what_concerns_a_whole_topic_is_said_once(world: World) -> None:
    world.sink.progress.clear()
    world.sink.others = {"orders": frozenset({"h"})}
    first, second = (one.note for one in world.status().partitions)
    assert "group h has loaded orders" in first and second == "as partition 0"
