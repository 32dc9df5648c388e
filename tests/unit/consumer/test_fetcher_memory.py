"""Limits: how much is asked for at a time, who gets a turn, and how much waits in memory."""

from __future__ import annotations

from millstream.client.targets import Node
from millstream.consumer.fetching.reasons import Buffered
from millstream.model import TopicPartition
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster
from tests.unit.consumer.fetch_world import World, fetched, log_of, world_of


def test_a_record_larger_than_every_limit_is_delivered() -> None:
    log = log_of(1, size=50)
    log.append(b"y" * 10_000)
    log.append(b"z")
    settings = config(fetch_max_bytes=1, max_partition_fetch_bytes=1, queued_max_bytes=1)
    world = world_of({T0: log}, settings)
    found = world.read(20)
    assert [len(record.value) for record in found] == [50, 10_000, 1]


def test_a_limit_of_zero_still_brings_a_batch_at_a_time() -> None:
    settings = config(fetch_max_bytes=0, max_partition_fetch_bytes=0, queued_max_bytes=0)
    assert len(world_of({T0: log_of(3)}, settings).read(10)) == 3


def test_partitions_take_turns() -> None:
    logs = {TopicPartition("t", index): log_of(30) for index in range(4)}
    world = world_of(logs, config(fetch_max_bytes=800, max_partition_fetch_bytes=400))
    seen: list[int] = []
    for _ in range(40):
        world.settle(1)
        seen += [record.partition for record in world.take(2)]
    counts = [seen[:40].count(index) for index in range(4)]
    assert min(counts) >= 5, counts


def test_partitions_take_turns_also_where_the_broker_does_not_see_to_it() -> None:
    logs = {TopicPartition("t", index): log_of(30) for index in range(4)}
    world = world_of(logs, config(fetch_max_bytes=200, max_partition_fetch_bytes=200))
    world.cluster.keeps_sessions = False
    seen: list[int] = []
    for _ in range(20):
        world.settle(1)
        seen += [record.partition for record in world.take()]
    counts = [seen.count(index) for index in range(4)]
    assert min(counts) >= 4, counts


def test_memory_for_fetched_data_is_bounded() -> None:
    logs = {TopicPartition("t", index): log_of(100, leader=index % 2) for index in range(6)}
    limit = 8_000
    world = world_of(logs, config(queued_max_bytes=limit, max_partition_fetch_bytes=1_500))
    highest = 0
    for turn in range(200):
        world.settle(1)
        highest = max(highest, world.fetcher.buffered_bytes)
        if turn % 3 == 0:
            world.take(5)
    assert 0 < highest <= limit
    assert world.fetcher.buffered_bytes > limit // 4, "but the memory is made use of"


def test_memory_stays_bounded_when_a_node_is_added() -> None:
    logs = {T0: log_of(50), T1: log_of(50, leader=1)}
    world = World(FakeCluster(logs), config(queued_max_bytes=4_000, max_partition_fetch_bytes=4_000))
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    world.settle(1)
    assert world.fetcher.buffered_bytes > 3_000
    world.fetcher.positions.assign([T0, T1])
    world.fetcher.positions.seek(T1, 0)
    assert world.poll() == []
    world.take()
    assert {send.target for send in world.poll()} == {Node(0), Node(1)}


def test_a_fast_node_leaves_room_for_a_slow_one() -> None:
    logs = {TopicPartition("t", index): log_of(50) for index in range(8)}
    logs[U0] = log_of(50, leader=1)
    world = world_of(logs, config(queued_max_bytes=16_000, max_partition_fetch_bytes=1_500))
    for _ in range(20):
        world.poll()
        for send in list(world.wire):
            if send.target == Node(0):
                world.deliver(send)
    assert 4_000 < world.fetcher.buffered_bytes <= 8_000


def test_paused_data_gives_way_when_there_is_no_room_for_others() -> None:
    logs = {T0: log_of(50), T1: log_of(50)}
    world = world_of(logs, config(queued_max_bytes=4_000, max_partition_fetch_bytes=4_000))
    world.fetcher.positions.pause([T1])
    (send,) = world.poll()
    world.fetcher.positions.pause([T0])
    world.fetcher.positions.resume([T1])
    world.deliver(send)
    assert world.fetcher.buffered_bytes > 2_000
    (send,) = world.poll()
    assert ("t", 1, 0) in fetched(send)
    assert world.fetcher.buffered_bytes == 0
    world.fetcher.positions.resume([T0])
    assert sum(record.partition == 0 for record in world.read(60)) == 50, "it is fetched again"


def test_what_was_fetched_ahead_of_data_that_gave_way_is_not_kept() -> None:
    logs = {T0: log_of(50), T1: log_of(50)}
    world = world_of(logs, config(queued_max_bytes=4_000, max_partition_fetch_bytes=1_500))
    world.fetcher.positions.pause([T1])
    world.poll()
    world.deliver(world.wire[0])
    (ahead,) = world.poll()
    assert fetched(ahead)[0][2] > 0
    world.fetcher.positions.pause([T0])
    world.fetcher._buffer.drop_paused()
    world.deliver(ahead)
    assert world.fetcher.buffered_bytes == 0
    world.fetcher.positions.resume([T0])
    assert [record.offset for record in world.read(60) if record.partition == 0] == list(range(50))


def test_a_node_with_enough_waiting_is_not_asked_for_more() -> None:
    world = world_of(
        {T0: log_of(50), T1: log_of(50)},
        config(queued_max_bytes=3_000, max_partition_fetch_bytes=2_000),
    )
    world.poll()
    world.deliver(world.wire[0])
    assert world.fetcher.buffered_bytes > 1_500
    assert world.poll() == []
    reasons = world.fetcher.reasons()
    assert Buffered(0) in reasons.values()
    while world.fetcher.ready():
        world.take(1)
    assert len(world.poll()) == 1
