"""Searches for offsets: by time, the beginning and the end, over many leaders and with failures."""

from __future__ import annotations

import pytest

from millstream.consumer.fetching.events import FetchEvent, MetadataNeeded, OffsetsFound, OffsetsNotFound
from millstream.consumer.fetching.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.errors import (
    ErrorCode,
    MillstreamTimeoutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndTimestamp
from millstream.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World


def log_of(count: int, leader: int = 0) -> FakeLog:
    log = FakeLog(leader=leader)
    if count:
        log.append(*[b"x"] * count)
    return log


def world_of() -> World:
    return World(FakeCluster({T0: log_of(5), T1: log_of(7, leader=1), U0: log_of(0)}), config())


def outcome(world: World) -> list[FetchEvent]:
    return [event for event in world.events if isinstance(event, OffsetsFound | OffsetsNotFound)]


def test_the_beginning_the_end_and_a_time_in_any_partitions() -> None:
    world = world_of()
    world.cluster.logs[T0].start_offset = 2
    search = world.fetcher.find_offsets(
        {T0: EARLIEST_TIMESTAMP, T1: LATEST_TIMESTAMP, U0: LATEST_TIMESTAMP}, 10_000
    )
    times = world.fetcher.find_offsets({T1: 1_003, U0: 1_003}, 10_000)
    world.settle(2)
    assert outcome(world) == [
        OffsetsFound(
            search,
            {
                T0: OffsetAndTimestamp(2, -1, 0),
                T1: OffsetAndTimestamp(7, -1, 0),
                U0: OffsetAndTimestamp(0, -1, 0),
            },
        ),
        OffsetsFound(times, {T1: OffsetAndTimestamp(3, 1_003, 0), U0: None}),
    ]


def test_each_leader_is_asked_once() -> None:
    world = world_of()
    world.fetcher.find_offsets(dict.fromkeys([T0, T1, U0], LATEST_TIMESTAMP), 10_000)
    assert len(world.poll()) == 2
    assert world.poll() == []


def test_nothing_to_search_is_found_at_once() -> None:
    world = world_of()
    search = world.fetcher.find_offsets({}, 0)
    assert world.fetcher.take_events() == [OffsetsFound(search, {})]


def test_only_what_failed_is_asked_again() -> None:
    world = world_of()
    search = world.fetcher.find_offsets(dict.fromkeys([T0, T1], LATEST_TIMESTAMP), 10_000)
    world.cluster.logs[T1].error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.settle(1)
    assert outcome(world) == []
    world.poll()
    assert MetadataNeeded(frozenset({"t"})) in world.events
    assert world.fetcher.next_wake_ms(world.now_ms) == 100
    world.now_ms = 100
    world.cluster.logs[T1].error = ErrorCode.NONE
    (send,) = world.poll()
    assert send.build(10).topics[0].partitions[0].partition_index == 1  # type: ignore[attr-defined]
    world.deliver(send)
    world.poll()
    (found,) = outcome(world)
    assert isinstance(found, OffsetsFound) and found.search == search and len(found.offsets) == 2


def test_a_lost_request_is_sent_again() -> None:
    world = world_of()
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10_000)
    (send,) = world.poll()
    world.fail(send)
    world.settle(4)
    assert len(outcome(world)) == 1


def test_an_answer_that_leaves_something_out_is_not_the_end() -> None:
    world = world_of()
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10_000)
    (send,) = world.poll()
    world.wire.remove(send)
    other = ListOffsetsTopicResponse(
        name="x", partitions=[ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=3)]
    )
    world.fetcher.receive(send.token, ListOffsetsResponse(topics=[other]), 0)
    assert outcome(world) == []
    world.settle(4)
    assert len(outcome(world)) == 1


def test_the_deadline_ends_a_search_and_says_what_is_missing() -> None:
    world = world_of()
    world.cluster.logs[T0].error = ErrorCode.LEADER_NOT_AVAILABLE
    search = world.fetcher.find_offsets(dict.fromkeys([T0, T1], LATEST_TIMESTAMP), 250)
    world.settle(10)
    (event,) = outcome(world)
    assert isinstance(event, OffsetsNotFound) and event.search == search
    assert isinstance(event.error, MillstreamTimeoutError)
    assert "t-0" in str(event.error) and "leader" in str(event.error) and "t-1" not in str(event.error)
    assert world.now_ms == 250, "the deadline is a time to wake up"


def test_an_answer_after_the_deadline_is_ignored() -> None:
    world = world_of()
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10)
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10)
    sends = world.poll()
    world.now_ms = 10
    world.poll()
    world.deliver(sends[0])
    world.fail(sends[1])
    world.poll()
    assert len(outcome(world)) == 2


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_topic_without_a_leader_asks_for_metadata(leader: int) -> None:
    world = world_of()
    world.cluster.logs[T0].leader = leader
    world.fetcher.update_cluster(world.cluster.metadata())
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10_000)
    assert world.poll() == []
    assert MetadataNeeded(frozenset({"t"})) in world.events
    world.cluster.logs[T0].leader = 0
    world.settle(6)
    assert len(outcome(world)) == 1


def test_what_is_not_allowed_ends_the_search() -> None:
    world = world_of()
    world.cluster.logs[T0].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.fetcher.find_offsets(dict.fromkeys([T0, T1, U0], LATEST_TIMESTAMP), 10_000)
    world.settle(3)
    (event,) = outcome(world)
    assert isinstance(event, OffsetsNotFound) and isinstance(event.error, TopicAuthorizationFailedError)
    world.fetcher.find_offsets({T1: LATEST_TIMESTAMP}, 10_000)
    (send,) = world.poll()
    world.fail(send, UnsupportedVersionError())
    world.poll()
    last = outcome(world)[-1]
    assert isinstance(last, OffsetsNotFound) and isinstance(last.error, UnsupportedVersionError)


def test_a_log_too_old_for_timestamps_has_no_such_record() -> None:
    world = world_of()
    world.cluster.logs[T0].error = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    search = world.fetcher.find_offsets({T0: 5}, 10_000)
    world.settle(2)
    assert outcome(world) == [OffsetsFound(search, {T0: None})]


def test_the_end_makes_the_lag_known() -> None:
    world = world_of()
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 1)
    world.fetcher.positions.pause([T0])
    world.fetcher.find_offsets({T0: LATEST_TIMESTAMP}, 10_000)
    world.settle(2)
    assert world.fetcher.positions.lag(T0) == 4
