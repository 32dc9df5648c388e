"""Fetching: what is asked for, when, from whom, and what is handed out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.client.targets import Node
from millstream.config import ConsumerConfig
from millstream.consumer.fetching.events import MetadataNeeded
from millstream.consumer.fetching.partition_state import ResetStrategy
from millstream.consumer.fetching.reasons import (
    AwaitingTurn,
    Buffered,
    CaughtUp,
    FetchEndReached,
    Fetching,
    Paused,
)
from millstream.errors import (
    ErrorCode,
)
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeLog
from tests.unit.consumer.fetch_world import World, answer, built, fetched, log_of, values, world_of


def test_the_request_carries_the_settings() -> None:
    settings = config(
        fetch_min_bytes=11,
        fetch_max_wait_ms=22,
        fetch_max_bytes=33_333,
        max_partition_fetch_bytes=4_444,
        client_rack="r1",
        read_committed=True,
        request_timeout_ms=1_000,
    )
    (send,) = world_of({T0: log_of(1)}, settings).poll()
    request = built(send)
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (11, 22, 33_333)
    assert (request.isolation_level, request.rack_id) == (1, "r1")
    assert request.topics[0].partitions[0].partition_max_bytes == 4_444
    assert request.topics[0].partitions[0].current_leader_epoch == 0
    assert send.timeout_ms == 1_022, "the broker may hold the answer back"


def test_one_request_per_node_is_under_way() -> None:
    world = world_of({T0: log_of(1), T1: log_of(1, leader=1), U0: log_of(1)})
    sends = world.poll()
    assert sorted(sorted(fetched(send)) for send in sends) == [[("t", 0, 0), ("u", 0, 0)], [("t", 1, 0)]]
    assert world.poll() == []
    world.fetcher.positions.seek(U0, 0)
    assert world.poll() == [], "also for what is new"
    (first,) = [send for send in sends if send.target == Node(0)]
    world.deliver(first)
    assert world.take()
    assert [send.target for send in world.poll()] == [Node(0)]


def test_paused_partitions_are_not_fetched_and_keep_their_data() -> None:
    log = log_of(3)
    world = world_of({T0: log, T1: log_of(1)})
    world.fetcher.positions.pause([T1])
    (send,) = world.poll()
    assert fetched(send) == [("t", 0, 0)]
    assert world.fetcher.reasons()[T1] == Paused(False)
    world.fetcher.positions.pause([T0])
    world.deliver(send)
    assert world.fetcher.reasons()[T0] == Paused(True)
    assert not world.fetcher.ready()
    assert world.take() == []
    assert world.poll() == []
    world.fetcher.positions.resume([T0])
    assert world.fetcher.ready()
    before = len(world.cluster.fetch_requests)
    assert len(world.take()) == 3
    assert len(world.cluster.fetch_requests) == before, "nothing was fetched again"


def test_what_was_asked_for_before_a_seek_is_never_handed_out() -> None:
    world = world_of({T0: log_of(10)})
    (send,) = world.poll()
    world.fetcher.positions.seek(T0, 8)
    world.deliver(send)
    assert world.take() == []
    world.settle(1)
    world.fetcher.positions.seek(T0, 9)
    assert world.take() == []
    assert [record.offset for record in world.read()] == [9]


def test_what_was_fetched_of_a_revoked_partition_is_never_handed_out() -> None:
    world = world_of({T0: log_of(10)})
    world.settle(1)
    assert world.fetcher.ready()
    world.fetcher.positions.revoke([T0])
    assert not world.fetcher.ready()
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    assert world.take() == [], "even though the offset is the same"
    world.poll()
    assert world.fetcher.buffered_bytes == 0
    assert len(world.read()) == 10


def test_max_records_is_kept_and_positions_follow() -> None:
    world = world_of({T0: log_of(5), T1: log_of(5)})
    world.settle(1)
    assert [record.offset for record in world.take(3)] == [0, 1, 2]
    assert world.positions == {T0: 3, T1: 0}
    assert [(record.partition, record.offset) for record in world.take(4)] == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert world.positions == {T0: 5, T1: 2}


def test_a_partition_is_fetched_again_when_its_data_has_been_taken() -> None:
    world = world_of({T0: log_of(4)})
    world.settle(1)
    assert world.poll() == []
    world.take(3)
    assert world.poll() == []
    world.take(1)
    (send,) = world.poll()
    assert fetched(send) == [("t", 0, 4)]


def test_where_the_log_has_more_one_chunk_is_fetched_ahead() -> None:
    settings = config(max_partition_fetch_bytes=400)
    world = world_of({T0: log_of(20)}, settings)
    (first,) = world.poll()
    world.deliver(first)
    (second,) = world.poll()
    ahead = fetched(second)[0][2]
    assert 0 < ahead < 20
    world.deliver(second)
    assert world.poll() == [], "one, not more"
    assert [record.offset for record in world.read(30)] == list(range(20))


def test_nothing_is_fetched_from_the_end_that_the_user_set() -> None:
    world = world_of({T0: log_of(20)}, config(max_partition_fetch_bytes=400))
    world.fetcher.positions.fetch_until(T0, 1)
    (first,) = world.poll()
    world.deliver(first)
    assert world.poll() == [], "not ahead"
    got = len(world.take())
    assert 1 <= got < 20, "what came with it is handed out"
    assert world.poll() == [], "nor when everything was taken"
    assert world.fetcher.reasons()[T0] == FetchEndReached(got)
    world.fetcher.positions.fetch_until(T0, None)
    assert [record.offset for record in world.read(30)] == list(range(got, 20))


def test_what_lies_before_the_end_that_the_user_set_is_fetched_ahead() -> None:
    world = world_of({T0: log_of(20)}, config(max_partition_fetch_bytes=400))
    world.fetcher.positions.fetch_until(T0, 20)
    (first,) = world.poll()
    world.deliver(first)
    assert len(world.poll()) == 1
    assert [record.offset for record in world.read(30)] == list(range(20))
    assert world.poll() == [], "no fetch waits at the end of the log"


def test_an_error_while_fetching_ahead_is_judged_when_its_turn_comes() -> None:
    log = log_of(20)
    world = world_of({T0: log}, config(max_partition_fetch_bytes=400, auto_offset_reset="none"))
    (first,) = world.poll()
    world.deliver(first)
    (second,) = world.poll()
    answer(second, world, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.take(), "what is here is still good"
    assert len(world.read(30)) > 10


# -- the closest replica (KIP-392)


def rack_world(replica: int = 1, max_partition_fetch_bytes: int = 1 << 20) -> tuple[World, FakeLog]:
    log = log_of(5)
    log.preferred_replica = replica
    settings = config(
        client_rack="r",
        metadata_max_age_ms=10_000,
        max_partition_fetch_bytes=max_partition_fetch_bytes,
    )
    return world_of({T0: log}, settings), log


def test_the_closest_replica_is_fetched_from_while_the_advice_is_fresh() -> None:
    world, _ = rack_world()
    (send,) = world.poll()
    assert send.target == Node(0)
    world.deliver(send)
    (send,) = world.poll()
    assert send.target == Node(1)
    world.deliver(send)
    assert len(world.take()) == 5
    world.now_ms = 9_999
    (send,) = world.poll()
    assert send.target == Node(1)
    world.deliver(send)
    world.now_ms = 10_000
    (send,) = world.poll()
    assert send.target == Node(0), "the leader is asked again"


def test_out_of_range_at_a_follower_goes_back_to_the_leader() -> None:
    world, log = rack_world()
    world.settle(1)
    (send,) = world.poll()
    answer(send, world, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.positions == {T0: 0}
    log.preferred_replica = -1
    (send,) = world.poll()
    assert send.target == Node(0)


def test_out_of_range_at_a_follower_whose_time_is_over_goes_back_to_the_leader() -> None:
    world, _ = rack_world(max_partition_fetch_bytes=len(log_of(1).batches[0]))
    world.settle(1)
    (send,) = world.poll()
    world.deliver(send)
    (send,) = world.poll()
    assert (send.target, fetched(send)) == (Node(1), [("t", 0, 1)]), "it is fetched ahead"
    world.now_ms = 10_000
    assert len(world.take()) == 1  # and the advice has grown old meanwhile
    answer(send, world, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.positions == {T0: 1}
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_follower_that_fails_is_left() -> None:
    world, _ = rack_world()
    world.settle(1)
    (send,) = world.poll()
    assert send.target == Node(1)
    world.fail(send)
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_follower_that_is_down_is_not_asked() -> None:
    world, log = rack_world()
    world.settle(1)
    log.offline_replicas = (1,)
    world.fetcher.update_cluster(world.cluster.metadata())
    (send,) = world.poll()
    assert send.target == Node(0)
    assert MetadataNeeded(frozenset({"t"})) in world.events
    world.deliver(send)
    assert world.poll() == [], "the leader sends us there in vain: not in a hot loop"
    assert world.fetcher.next_wake_ms(world.now_ms) == 100


def test_a_new_leader_gives_advice_of_its_own() -> None:
    world, log = rack_world()
    world.settle(1)
    (send,) = world.poll()
    assert send.target == Node(1)
    log.new_epoch(1, leader=0)
    world.fetcher.update_cluster(world.cluster.metadata())
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_leader_that_prefers_itself_is_read_from() -> None:
    world, log = rack_world()
    (send,) = world.poll()
    answer(send, world, preferred_read_replica=0, records=log.batches[0])
    assert len(world.take()) == 1


# -- diagnosis


def test_reasons_tell_where_a_partition_stands() -> None:
    world = world_of({T0: log_of(2), T1: log_of(0)}, config(fetch_min_bytes=9))
    assert world.fetcher.reasons()[T0] == AwaitingTurn(0, 0, 0)
    world.now_ms = 5
    world.poll()
    assert world.fetcher.reasons()[T0] == Fetching(0, 0, 5, 9, 500)
    world.deliver(world.wire[0])
    assert world.fetcher.reasons() == {T0: Buffered(0), T1: CaughtUp(0, 5)}
    world.take()
    world.now_ms = 8
    world.settle(1)
    assert world.fetcher.reasons() == {T0: CaughtUp(2, 8), T1: CaughtUp(0, 5)}


def test_lag_is_known_after_a_fetch() -> None:
    world = world_of({T0: log_of(9)})
    assert world.fetcher.positions.lag(T0) is None
    world.settle(1)
    world.take(2)
    assert world.fetcher.positions.lag(T0) == 7


def test_values_come_as_they_are() -> None:
    log = FakeLog()
    log.append(b"a", None, b"")
    assert values(world_of({T0: log}).read()) == [b"a", None, b""]


# -- settings


@pytest.mark.parametrize(
    ("text", "strategy", "duration_ms"),
    [
        ("earliest", ResetStrategy.EARLIEST, 0),
        ("latest", ResetStrategy.LATEST, 0),
        ("none", None, 0),
        ("by_duration:PT1H", ResetStrategy.BY_DURATION, 3_600_000),
    ],
)
def test_settings_come_from_those_of_the_consumer(
    text: str, strategy: ResetStrategy | None, duration_ms: int
) -> None:
    given = {"bootstrap.servers": "h:1", "auto.offset.reset": text, "fetch.max.bytes": 7, "client.rack": "r"}
    found = ConsumerConfig.from_settings(given)
    assert ResetStrategy.of(found) is strategy
    assert (found.auto_offset_reset_duration_ms or 0) == duration_ms
    assert (found.fetch_max_bytes, found.client_rack, found.group_id) == (7, "r", None)


def test_defaults_are_those_of_the_consumer() -> None:
    found = ConsumerConfig.from_settings({"bootstrap.servers": "h:1", "group.id": "g", "client.id": "c"})
    assert replace(found, bootstrap_servers=()) == config(client_id="c")
