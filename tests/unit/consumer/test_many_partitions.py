"""Thousands of partitions in the consumer: a poll, a fetch and a commit cost what has changed."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.consumer.fetching.drain import RAW, drain
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.fetching.requests import FetchRequests
from millstream.consumer.user.progress import UserProgress
from millstream.model import OffsetAndMetadata, TopicPartition
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, FakeLog
from tests.unit.consumer.fetch_world import World, log_of, world_of

MANY = 300
EARLIEST = config(auto_offset_reset="earliest")


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """The partitions that polls have looked at, one entry for each time."""
    found: list[TopicPartition] = []
    review = FetchRequests._review_later

    def counted(self: FetchRequests, state: Any, now_ms: int) -> None:
        found.append(state.partition)
        review(self, state, now_ms)

    monkeypatch.setattr(FetchRequests, "_review_later", counted)
    return found


def idle_world() -> World:
    """A consumer at the end of many partitions, whose first fetch was answered."""
    world = world_of({TopicPartition("t", index): FakeLog() for index in range(MANY)}, nodes=1)
    world.settle(1)
    assert len(world.cluster.fetch_requests[0][1].topics[0].partitions) == MANY
    world.cluster.fetch_requests.clear()
    return world


def test_idle_fetches_name_nothing_and_look_at_nothing(looked_at: list[TopicPartition]) -> None:
    world = idle_world()
    world.poll()
    looked_at.clear()
    world.settle(3)
    assert [request.topics for _, request in world.cluster.fetch_requests] == [[], [], []]
    assert looked_at == []
    assert world.fetcher.next_wake_ms(world.now_ms) is None


def test_a_record_changes_one_partition_of_the_session(looked_at: list[TopicPartition]) -> None:
    world = idle_world()
    where = TopicPartition("t", 211)
    world.cluster.logs[where].append(b"value")
    world.poll()
    looked_at.clear()
    assert [record.partition for record in world.read(3)] == [211]
    named = [
        (one.partition, one.fetch_offset)
        for _, request in world.cluster.fetch_requests
        for topic in request.topics
        for one in topic.partitions
    ]
    forgotten = [
        index
        for _, request in world.cluster.fetch_requests
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    assert set(named) == {(211, 1)}
    assert set(forgotten) <= {211}
    assert set(looked_at) == {where}


def test_an_error_is_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    world = idle_world()
    monkeypatch.setattr(type(world.fetcher.positions), "states", lambda self: pytest.fail("looked at all"))
    assert not world.fetcher.ready()
    world.fetcher.raise_errors(world.now_ms)
    state = world.fetcher.positions.get(T0)
    assert state is not None
    state.fail(ValueError("broken"))
    assert world.fetcher.ready()
    with pytest.raises(ValueError, match="broken"):
        world.fetcher.raise_errors(world.now_ms)
    assert not world.fetcher.ready()


def test_a_retry_wakes_for_its_partition_only(looked_at: list[TopicPartition]) -> None:
    world = idle_world()
    world.poll()
    state = world.fetcher.positions.get(T1)
    assert state is not None
    state.retry(ValueError("later"), world.now_ms + 70)
    world.poll()
    assert world.fetcher.next_wake_ms(world.now_ms) == world.now_ms + 70
    looked_at.clear()
    world.now_ms += 70
    world.poll()
    assert looked_at == [T1]


# --- automatic commits


def started(fetcher: Fetcher, **offsets: int) -> None:
    """A new assignment that starts at committed offsets: ``p0=5``."""
    committed = {TopicPartition("t", int(name[1:])): OffsetAndMetadata(at) for name, at in offsets.items()}
    fetcher.positions.assign(committed)
    fetcher.poll(0)
    (needed,) = (event for event in fetcher.take_events() if hasattr(event, "token"))
    fetcher.set_committed(needed.token, committed, 0)


def uncommitted(progress: UserProgress) -> dict[int, int]:
    return {where.partition: offset.offset for where, offset in progress.uncommitted().items()}


def test_only_what_has_moved_is_committed() -> None:
    fetcher = Fetcher(config(group_id="g"))
    positions, progress = fetcher.positions, UserProgress(fetcher.positions)
    started(fetcher, p0=5, p1=7, p2=9)
    assert uncommitted(progress) == {}, "the group has these offsets"
    assert len(progress.consumed()) == 3, "but commit() sends all"
    positions.seek(T1, 8)
    assert uncommitted(progress) == {1: 8}
    assert uncommitted(progress) == {1: 8}, "until it is stored"
    positions.note_stored({T1: OffsetAndMetadata(8)}, certain=True)
    assert uncommitted(progress) == {}
    positions.note_stored({T1: OffsetAndMetadata(3)}, certain=True)
    assert uncommitted(progress) == {1: 8}, "the user has committed something else"
    positions.note_stored({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(8)}, certain=False)
    assert uncommitted(progress) == {0: 5, 1: 8}, "a failed commit may be stored or not"
    positions.note_stored(progress.uncommitted(), certain=True)
    positions.forget_stored()
    assert uncommitted(progress) == {0: 5, 1: 8, 2: 9}, "now and then all are repeated"


def test_a_position_that_was_reset_is_committed_even_where_it_is_the_same() -> None:
    """The topic was recreated, and the broker has dropped its offsets."""
    fetcher = Fetcher(config(group_id="g"))
    progress = UserProgress(fetcher.positions)
    started(fetcher, p0=0)
    fetcher.positions.seek_to_beginning([T0])
    assert uncommitted(progress) == {}, "there is no position yet"
    fetcher.positions.seek(T0, 0)
    assert uncommitted(progress) == {0: 0}


def test_revoked_partitions_are_not_committed() -> None:
    fetcher = Fetcher(config(group_id="g"))
    progress = UserProgress(fetcher.positions)
    started(fetcher, p0=0, p1=0)
    fetcher.positions.seek(T0, 4)
    fetcher.positions.revoke([T0])
    assert uncommitted(progress) == {}


def test_records_that_a_loop_has_not_seen_do_not_count_as_moved() -> None:
    world = World(world_of({T0: log_of(3)}).cluster, EARLIEST)
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    progress = UserProgress(world.fetcher.positions)
    world.fetcher.positions.note_stored({T0: OffsetAndMetadata(0)}, certain=True)
    world.settle(2)
    records = world.fetcher.begin_take()
    assert records
    progress.iteration.start(world.fetcher.finish_take(drain(records, 3, RAW), world.now_ms))
    found = progress.uncommitted()
    assert found == {} or found[T0].offset == 0
    next(progress.iteration.rest)
    assert uncommitted(progress) == {0: 1}
