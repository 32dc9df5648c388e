"""How a partition gets its position: committed offsets, resets, validation and truncation."""

from __future__ import annotations

import pytest

from millstream.client.targets import Node
from millstream.config import ConsumerConfig
from millstream.consumer.fetching.events import (
    CommittedNeeded,
    LogTruncated,
    MetadataNeeded,
    PositionLost,
    PositionReset,
)
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.fetching.partition_state import ResetStrategy
from millstream.consumer.fetching.reasons import AwaitingCommitted, Failing, NoLeader, Resetting, Validating
from millstream.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    InconsistentTopicIdError,
    LogTruncationError,
    NetworkError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
)
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World, take, values

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


# -- committed offsets and resets


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


def committed_needed(fetcher: Fetcher, now_ms: int) -> CommittedNeeded:
    fetcher.poll(now_ms)
    (event,) = [event for event in fetcher.take_events() if isinstance(event, CommittedNeeded)]
    return event


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


# -- validation


def read_under_epoch_0(settings: ConsumerConfig) -> tuple[World, FakeLog]:
    """A consumer that has read offsets 0 to 9, written under epoch 0, and stands at 10."""
    log = log_of(5, 5)
    world = world_of(log, settings, {T0: 0})
    assert len(world.read()) == 10
    for send in list(world.wire):
        world.deliver(send)
    return world, log


def change_leader(world: World, log: FakeLog, epoch: int) -> None:
    log.new_epoch(epoch, leader=1 - log.leader)
    world.fetcher.update_cluster(world.cluster.metadata())


def test_a_new_leader_that_has_everything_is_read_from() -> None:
    world, log = read_under_epoch_0(LATEST)
    change_leader(world, log, 1)
    log.append(b"10")
    assert world.fetcher.reasons()[T0] == Validating(10, None)
    assert values(world.read()) == [b"10"]
    assert not any(isinstance(event, LogTruncated) for event in world.events)


@pytest.mark.parametrize("settings", [EARLIEST, LATEST])
def test_a_truncated_log_is_read_from_where_it_was_cut(settings: ConsumerConfig) -> None:
    world, log = read_under_epoch_0(settings)
    log.truncate(5)
    change_leader(world, log, 1)
    log.append(b"new 5", b"new 6")
    assert values(world.read()) == [b"new 5", b"new 6"]
    assert LogTruncated(T0, 10, 5) in world.events


def test_a_truncated_log_without_a_policy_is_raised_with_the_place() -> None:
    world, log = read_under_epoch_0(NONE)
    log.truncate(5)
    change_leader(world, log, 1)
    for _ in range(8):
        log.append(b"x")
    for _ in range(2):
        world.settle(3)
        with pytest.raises(LogTruncationError) as caught:
            world.take()
        assert caught.value.offsets == {T0: 10}
        assert caught.value.divergent_offsets == {T0: OffsetAndMetadata(5, "", 0)}
    world.fetcher.positions.seek(T0, caught.value.divergent_offsets[T0])
    assert len(world.read()) == 8


def test_a_log_that_knows_nothing_of_the_epoch_resets_by_policy() -> None:
    world, log = read_under_epoch_0(EARLIEST)
    log.batches.clear()
    log.epochs = []
    change_leader(world, log, 4)
    log.append(b"a")
    assert values(world.read()) == [b"a"]
    assert PositionLost(T0, 10, ResetStrategy.EARLIEST) in world.events


def test_a_log_that_knows_nothing_of_the_epoch_without_a_policy_is_raised() -> None:
    world, log = read_under_epoch_0(NONE)
    log.batches.clear()
    log.epochs = []
    change_leader(world, log, 4)
    world.settle(3)
    with pytest.raises(LogTruncationError) as caught:
        world.take()
    assert caught.value.divergent_offsets == {}


def test_nothing_is_fetched_before_the_position_is_validated() -> None:
    world, log = read_under_epoch_0(LATEST)
    change_leader(world, log, 1)
    assert {send.request_type for send in world.poll()} == {OffsetForLeaderEpochRequest}
    assert world.poll() == []


def test_an_old_broker_cannot_validate() -> None:
    world, log = read_under_epoch_0(LATEST)
    change_leader(world, log, 1)
    (send,) = world.poll()
    world.fail(send, UnsupportedVersionError())
    assert world.positions == {T0: 10}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_validation_works_in_every_version(version: int) -> None:
    world, log = read_under_epoch_0(LATEST)
    world.cluster.versions[OffsetForLeaderEpochRequest] = version
    change_leader(world, log, 1)
    log.append(b"10")
    assert values(world.read()) == [b"10"]


def test_a_failing_validation_is_tried_again() -> None:
    world, log = read_under_epoch_0(LATEST)
    change_leader(world, log, 1)
    (send,) = world.poll()
    world.fail(send)
    log.error = ErrorCode.LEADER_NOT_AVAILABLE
    world.settle(4)
    assert world.positions == {T0: None}
    log.error = ErrorCode.NONE
    world.settle(6)
    assert world.positions == {T0: 10}


def test_data_of_the_old_leader_is_not_handed_out_under_a_new_one() -> None:
    log = log_of(5)
    world = world_of(log, LATEST, {T0: 0})
    world.poll()
    for _ in range(3):
        for send in list(world.wire):
            world.deliver(send)
        if world.fetcher.ready():
            break
        world.poll()
    assert world.fetcher.ready()
    log.batches.clear()
    log.append(b"other 0")
    change_leader(world, log, 1)
    assert world.take() == []
    assert values(world.read()) == [b"other 0"]


def committed_under_epoch_3(cluster: FakeCluster) -> Fetcher:
    """A consumer that knows of epoch 0 only, and takes over what was committed under epoch 3."""
    fetcher = Fetcher(LATEST)
    fetcher.update_cluster(cluster.metadata())
    fetcher.positions.assign([T0])
    asked = committed_needed(fetcher, 0)
    fetcher.set_committed(asked.token, {T0: OffsetAndMetadata(5, "", 3)}, 0)
    return fetcher


def test_a_committed_epoch_newer_than_the_metadata_is_validated_by_its_leader() -> None:
    """The old leader may still believe that it leads. It knows no epoch 3: that would reset the offset."""
    log = log_of(10)
    cluster = FakeCluster({T0: log})
    fetcher = committed_under_epoch_3(cluster)
    assert fetcher.poll(0) == []
    assert fetcher.take_events() == [MetadataNeeded(frozenset({"t"}))]
    log.new_epoch(3, leader=1)
    fetcher.update_cluster(cluster.metadata())
    (send,) = fetcher.poll(1)
    assert (send.target, send.request_type) == (Node(1), OffsetForLeaderEpochRequest)
    fetcher.receive(send.token, cluster.answer(send), 1)
    assert fetcher.positions.position(T0) == 5


def test_an_epoch_that_no_leader_reaches_does_not_hold_a_partition_for_ever() -> None:
    cluster = FakeCluster({T0: log_of(10)})
    fetcher = committed_under_epoch_3(cluster)
    now_ms = 0
    while not (sends := fetcher.poll(now_ms)):
        assert MetadataNeeded(frozenset({"t"})) in fetcher.take_events()
        wake_ms = fetcher.next_wake_ms(now_ms)
        assert wake_ms is not None and now_ms < wake_ms < 10_000
        now_ms = wake_ms
    fetcher.receive(sends[0].token, cluster.answer(sends[0]), now_ms)
    assert PositionLost(T0, 5, ResetStrategy.LATEST) in fetcher.take_events()


@pytest.mark.parametrize("settings", [EARLIEST, LATEST])
def test_a_recreated_topic_is_another_one_and_the_policy_decides(settings: ConsumerConfig) -> None:
    world, log = read_under_epoch_0(settings)
    world.cluster.incarnation = 1
    log.batches.clear()
    for offset in range(20):
        log.append(f"new {offset}".encode())
    found = values(world.read())
    assert MetadataNeeded(frozenset({"t"})) in world.events
    assert len(found) == (20 if settings is EARLIEST else 0)
    assert world.positions == {T0: 20}


def test_a_recreated_topic_without_a_policy_is_raised_until_a_seek() -> None:
    world, log = read_under_epoch_0(NONE)
    world.cluster.incarnation = 1
    log.batches.clear()
    log.append(*[b"x"] * 20)
    for _ in range(2):
        world.settle(4)
        with pytest.raises(InconsistentTopicIdError, match="t-0"):
            world.take()
    assert world.positions == {T0: None}
    world.fetcher.positions.seek(T0, 18)
    assert values(world.read()) == [b"x", b"x"]
