"""Worlds with one partition, for tests of positions."""

from __future__ import annotations

from millstream.config import ConsumerConfig
from millstream.consumer.fetching.events import CommittedNeeded
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.model import TopicPartition
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World

EARLIEST = config(auto_offset_reset="earliest")
LATEST = config(auto_offset_reset="latest")
NONE = config(auto_offset_reset="none")


def log_of(*sizes: int, leader: int = 0) -> FakeLog:
    """A log of batches of these sizes; each value is its offset."""
    log = FakeLog(leader=leader)
    for size in sizes:
        base = log.end_offset
        log.append(*[str(base + i).encode() for i in range(size)])
    return log


def world_of(
    log: FakeLog, settings: ConsumerConfig, committed: dict[TopicPartition, int] | None = None
) -> World:
    world = World(FakeCluster({T0: log}), settings, committed)
    world.fetcher.positions.assign([T0])
    return world


def committed_needed(fetcher: Fetcher, now_ms: int) -> CommittedNeeded:
    fetcher.poll(now_ms)
    (event,) = [event for event in fetcher.take_events() if isinstance(event, CommittedNeeded)]
    return event
