"""What a new leader does to a position: it is validated, the log may be cut, the topic may be another one."""

from __future__ import annotations

import pytest

from millstream.client.targets import Node
from millstream.config import ConsumerConfig
from millstream.consumer.fetching.events import (
    LogTruncated,
    MetadataNeeded,
    PositionLost,
)
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.fetching.partition_state import ResetStrategy
from millstream.consumer.fetching.reasons import Validating
from millstream.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    LogTruncationError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata
from millstream.wire.messages.offsets import (
    OffsetForLeaderEpochRequest,
)
from tests.unit.consumer.fake_cluster import T0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World, values
from tests.unit.consumer.position_worlds import EARLIEST, LATEST, NONE, committed_needed, log_of, world_of

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
