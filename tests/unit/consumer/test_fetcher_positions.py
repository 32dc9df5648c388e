"""How a partition gets its position: committed offsets, seeks and resets."""

from __future__ import annotations

import pytest

from millstream.config import ConsumerConfig
from millstream.consumer.fetching.events import (
    CommittedNeeded,
    MetadataNeeded,
    PositionLost,
    PositionReset,
)
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.fetching.partition_state import ResetStrategy
from millstream.consumer.fetching.reasons import AwaitingCommitted, Failing, NoLeader, Resetting
from millstream.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    NetworkError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from millstream.model import OffsetAndMetadata
from millstream.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster
from tests.unit.consumer.fetch_world import World, take, values
from tests.unit.consumer.position_worlds import EARLIEST, LATEST, NONE, committed_needed, log_of, world_of


def test_the_committed_offset_comes_first() -> None:
    world = world_of(log_of(10), EARLIEST, {T0: 7})
    assert values(world.read()) == [b"7", b"8", b"9"]
    assert not any(isinstance(event, PositionLost) for event in world.events)


@pytest.mark.parametrize(("settings", "start"), [(EARLIEST, 3), (LATEST, 10)])
def test_without_a_committed_offset_the_policy_decides(settings: ConsumerConfig, start: int) -> None:
    log = log_of(3, 7)
    log.start_offset = 3
    del log.batches[0]
    world = world_of(log, settings)
    world.settle(3)
    assert world.positions == {T0: start}
    assert PositionReset(T0, start) in world.events


@pytest.mark.parametrize("version", [1, 2, 4, 6, 10])
def test_resets_work_in_every_version(version: int) -> None:
    world = world_of(log_of(4), LATEST)
    world.cluster.versions[ListOffsetsRequest] = version
    world.settle(3)
    assert world.positions == {T0: 4}


@pytest.mark.parametrize(("age_ms", "start"), [(3, 7), (100, 0), (-50, 10)])
def test_by_duration_starts_at_an_age_or_at_the_end(age_ms: int, start: int) -> None:
    settings = config(auto_offset_reset=f"by_duration:PT{max(0, age_ms) / 1000}S")
    world = World(FakeCluster({T0: log_of(10)}), settings)
    # The youngest record is of 1009.
    world.fetcher = Fetcher(settings, epoch_at_zero_ms=1_010 + max(0, -age_ms))
    world.fetcher.update_cluster(world.cluster.metadata())
    world.fetcher.positions.assign([T0])
    world.settle(4)
    assert world.positions == {T0: start}


def test_without_a_policy_the_user_is_told_again_and_again() -> None:
    world = World(FakeCluster({T0: log_of(1), T1: log_of(1), U0: log_of(2)}), NONE, {U0: 0})
    world.fetcher.positions.assign([T0, T1, U0])
    for _ in range(2):
        world.settle(3)
        assert isinstance(world.fetcher.reasons()[T0], Failing)
        with pytest.raises(NoOffsetForPartitionError) as caught:
            world.take()
        assert caught.value.partitions == (T0, T1)
    assert values(world.take()) == [b"0", b"1"], "other partitions go on"
    world.fetcher.positions.seek(T0, 0)
    world.fetcher.positions.seek(T1, 0)
    assert values(world.read()) == [b"0", b"0"]


def test_without_a_group_nobody_is_asked_for_committed_offsets() -> None:
    settings = config(auto_offset_reset="earliest", group_id=None)
    world = world_of(log_of(2), settings)
    assert values(world.read()) == [b"0", b"1"]
    assert not any(isinstance(event, CommittedNeeded) for event in world.events)
    world = world_of(log_of(2), config(auto_offset_reset="none", group_id=None))
    world.poll()
    with pytest.raises(NoOffsetForPartitionError):
        world.take()


def test_a_committed_offset_that_comes_too_late_is_ignored() -> None:
    fetcher = Fetcher(LATEST)
    fetcher.update_cluster(FakeCluster({T0: log_of(10)}).metadata())
    fetcher.positions.assign([T0])
    old = committed_needed(fetcher, 0)
    fetcher.positions.revoke([T0])
    fetcher.positions.assign([T0])
    new = committed_needed(fetcher, 1)
    fetcher.set_committed(old.token, {T0: OffsetAndMetadata(1)}, 2)
    assert fetcher.positions.position(T0) is None
    fetcher.set_committed(new.token, {T0: OffsetAndMetadata(5)}, 3)
    assert fetcher.positions.position(T0) == 5
    fetcher.set_committed(new.token, {T0: OffsetAndMetadata(6)}, 3)
    assert fetcher.positions.position(T0) == 5


def test_a_seek_beats_the_committed_offset_under_way() -> None:
    fetcher = Fetcher(LATEST)
    fetcher.update_cluster(FakeCluster({T0: log_of(10)}).metadata())
    fetcher.positions.assign([T0])
    asked = committed_needed(fetcher, 0)
    fetcher.positions.seek(T0, 8)
    fetcher.set_committed(asked.token, {T0: OffsetAndMetadata(1)}, 1)
    assert fetcher.positions.position(T0) == 8


def test_the_group_is_asked_only_for_what_was_not_sought_before_it_is_wanted() -> None:
    fetcher = Fetcher(LATEST)
    fetcher.update_cluster(FakeCluster({T0: log_of(10), T1: log_of(10)}).metadata())
    fetcher.hold_committed()
    fetcher.positions.assign([T0, T1])
    fetcher.poll(0)
    fetcher.positions.seek(T0, 8)
    fetcher.poll(1)
    assert not fetcher.take_events()
    assert fetcher.release_committed()
    assert committed_needed(fetcher, 2).partitions == (T1,)
    assert not fetcher.release_committed()


def test_a_failed_search_for_committed_offsets_is_tried_again_or_raised() -> None:
    fetcher = Fetcher(LATEST)
    fetcher.positions.assign([T0])
    asked = committed_needed(fetcher, 0)
    fetcher.failed(asked.token, NetworkError("gone"), 0)
    assert fetcher.poll(0) == []
    assert isinstance(fetcher.reasons()[T0], AwaitingCommitted)
    assert not any(isinstance(event, CommittedNeeded) for event in fetcher.take_events())
    wake = fetcher.next_wake_ms(0)
    assert wake == 100
    asked = committed_needed(fetcher, wake)
    fetcher.set_committed(asked.token, {}, wake)
    wake = fetcher.next_wake_ms(wake)
    assert wake == 300, "an answer that says nothing is a failure too"
    asked = committed_needed(fetcher, wake)
    fetcher.failed(asked.token, GroupAuthorizationFailedError("g"), wake)
    with pytest.raises(GroupAuthorizationFailedError):
        take(fetcher, 10, wake)


def test_seeking_to_the_ends_is_lazy_and_the_last_seek_wins() -> None:
    world = world_of(log_of(10), LATEST, {T0: 5})
    world.settle(1)
    world.fetcher.positions.seek_to_beginning([T0])
    (asked,) = [send for send in world.poll() if send.request_type is ListOffsetsRequest]
    world.fetcher.positions.seek_to_end([T0])
    world.deliver(asked)
    assert world.positions == {T0: None}
    assert isinstance(world.fetcher.reasons()[T0], Resetting)
    world.settle(2)
    assert world.positions == {T0: 10}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_resets_ask_for_metadata_and_try_again(code: ErrorCode) -> None:
    log = log_of(3)
    log.error = code
    world = world_of(log, LATEST)
    for _ in range(3):
        world.settle(2)
    assert world.positions == {T0: None}
    assert MetadataNeeded(frozenset({"t"})) in world.events
    before = world.now_ms
    assert before > 0, "with a back-off"
    log.error = ErrorCode.NONE
    world.settle(4)
    assert world.positions == {T0: 3}


def test_a_reset_that_is_not_allowed_is_raised() -> None:
    log = log_of(3)
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world = world_of(log, LATEST)
    world.settle(3)
    with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
        world.take()
    log.error = ErrorCode.NONE
    world.settle(4)
    assert world.positions == {T0: 3}


def test_lost_and_empty_answers_to_resets_are_asked_again() -> None:
    world = world_of(log_of(3), LATEST)
    world.poll()
    (send,) = world.poll()
    world.fail(send)
    assert world.poll() == []
    world.now_ms += 100
    (send,) = world.poll()
    world.wire.remove(send)
    world.fetcher.receive(send.token, ListOffsetsResponse(topics=[]), world.now_ms)
    world.settle(5)
    assert world.positions == {T0: 3}


def test_resets_go_to_each_leader_in_one_request() -> None:
    world = World(FakeCluster({T0: log_of(1), U0: log_of(1), T1: log_of(1, leader=1)}), LATEST)
    world.fetcher.positions.assign([T0, T1, U0])
    world.poll()
    assert len(world.poll()) == 2


def test_a_new_leader_is_asked_at_once_when_the_old_one_does_not_answer() -> None:
    log = log_of(3)
    world = world_of(log, LATEST)
    world.poll()
    (stuck,) = world.poll()
    log.new_epoch(1, leader=1)
    world.fetcher.update_cluster(world.cluster.metadata())
    (again,) = world.poll()
    assert again.target != stuck.target
    world.deliver(again)
    assert world.positions == {T0: 3}
    world.fail(stuck)
    assert world.positions == {T0: 3}


def test_without_a_leader_metadata_is_asked_for_again_and_again() -> None:
    log = log_of(3)
    log.leader = -1
    world = world_of(log, LATEST)
    for _ in range(6):
        world.settle(1)
    asked = sum(isinstance(event, MetadataNeeded) for event in world.events)
    assert 3 <= asked <= 6
    assert world.now_ms >= 100
    assert world.fetcher.reasons()[T0] == NoLeader()
    log.leader = 0
    world.settle(8)
    assert world.positions == {T0: 3}


def test_a_leader_that_comes_back_is_asked_at_once() -> None:
    log = log_of(3)
    world = world_of(log, LATEST)
    log.leader = -1
    world.fetcher.update_cluster(world.cluster.metadata())
    for _ in range(4):
        world.settle(1)
    world.poll()
    assert world.fetcher.next_wake_ms(world.now_ms) is not None, "it waits"
    log.leader = 0
    world.fetcher.update_cluster(world.cluster.metadata())
    assert len(world.poll()) == 1


# -- out of range


def test_out_of_range_resets_by_policy() -> None:
    log = log_of(3, 4)
    world = world_of(log, EARLIEST, {T0: 1})
    log.start_offset = 3
    del log.batches[0]
    assert values(world.read()) == [b"3", b"4", b"5", b"6"]
    assert PositionLost(T0, 1, ResetStrategy.EARLIEST) in world.events


def test_out_of_range_without_a_policy_is_raised_until_a_seek() -> None:
    world = World(FakeCluster({T0: log_of(3), T1: log_of(2)}), NONE, {T0: 9, T1: 8})
    world.fetcher.positions.assign([T0, T1])
    for _ in range(2):
        world.settle(4)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            world.take()
        assert caught.value.offsets == {T0: 9, T1: 8}
        assert world.positions == {T0: 9, T1: 8}, "the position stays"
    world.fetcher.positions.seek(T0, 1)
    world.fetcher.positions.seek(T1, 2)
    assert values(world.read()) == [b"1", b"2"]
