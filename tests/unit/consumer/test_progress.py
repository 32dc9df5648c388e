"""Where the user stands while an iteration has fetched more than it has handed out."""

from __future__ import annotations

import pytest

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.positions import Positions
from millstream.consumer.user.progress import UserProgress
from millstream.model import OffsetAndMetadata, TimestampType
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, FakeCluster, FakeLog


@pytest.fixture
def positions() -> Positions:
    found = Positions(config())
    found.update_cluster(FakeCluster({T0: FakeLog(), T1: FakeLog()}).metadata())
    found.assign([T0, T1])
    found.seek(T0, 8)
    found.seek(T1, 3)
    for partition in (T0, T1):
        state = found.get(partition)
        assert state is not None
        state.high_watermark = 10
    return found


@pytest.fixture
def progress(positions: Positions) -> UserProgress:
    """Five records of T0 were fetched, from offset 3 on, and two of them were handed out."""
    made = UserProgress(positions)
    keys, values = [None] * 5, [b"v"] * 5
    fetched = Columns(*T0, TimestampType.CREATE_TIME, None, range(3, 8), [0] * 5, keys, values, [()] * 5)
    made.iteration.start(Records([fetched]))
    next(made.iteration.rest, None)
    next(made.iteration.rest, None)
    return made


def test_only_what_was_handed_out_counts(progress: UserProgress) -> None:
    assert (progress.position(T0), progress.lag(T0)) == (5, 5)
    assert (progress.position(T1), progress.lag(T1)) == (3, 7)
    assert progress.consumed()[T0] == OffsetAndMetadata(5)
    assert progress.consumed()[T1].offset == 3


def test_the_rest_is_given_back(progress: UserProgress, positions: Positions) -> None:
    progress.give_back()
    assert not progress.iteration
    assert positions.position(T0) == progress.position(T0) == 5
    assert positions.position(T1) == 3


def test_a_partition_that_was_moved_meanwhile_stays_there(
    progress: UserProgress, positions: Positions
) -> None:
    positions.seek(T0, 1)
    progress.give_back()
    assert positions.position(T0) == 1


def test_without_an_iteration_nothing_is_moved(positions: Positions) -> None:
    state = positions.get(T0)
    assert state is not None
    before = state.generation
    progress = UserProgress(positions)
    rest = progress.iteration.rest
    progress.give_back()
    assert (state.generation, progress.position(T0), progress.lag(T0)) == (before, 8, 2)
    assert progress.iteration.rest is rest


def test_what_is_not_known_stays_unknown(progress: UserProgress, positions: Positions) -> None:
    positions.seek_to_beginning([T1])
    assert (progress.position(T1), progress.lag(T1)) == (None, None)
