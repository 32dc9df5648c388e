"""Positions: what users may do with them, and which phases follow which."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from millstream.consumer.fetching.partition_state import (
    ALLOWED,
    Attention,
    FetchPhase,
    FetchPosition,
    Leader,
    PartitionState,
    ResetStrategy,
)
from millstream.consumer.fetching.positions import Positions
from millstream.errors import MisuseError
from millstream.model import OffsetAndMetadata
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog


def positions(*, read_committed: bool = False) -> Positions:
    found = Positions(config(read_committed=read_committed))
    found.update_cluster(FakeCluster({T0: FakeLog(), T1: FakeLog(leader=1), U0: FakeLog()}).metadata())
    return found


def state_of(found: Positions, partition: object = T0) -> PartitionState:
    state = found.get(partition)  # type: ignore[arg-type]
    assert state is not None
    return state


def test_the_table_covers_every_phase_and_nothing_goes_back_to_the_committed_offset() -> None:
    assert set(ALLOWED) == set(FetchPhase)
    assert all(FetchPhase.AWAITING_COMMITTED not in allowed for allowed in ALLOWED.values())


def test_assigning_keeps_what_stays_and_forgets_the_rest() -> None:
    found = positions()
    found.assign([T0, T1, T0])
    found.seek(T0, 5)
    found.pause([T0])
    kept = state_of(found).generation
    found.assign([T0, U0])
    assert found.assignment() == {T0, U0}
    assert state_of(found).generation == kept
    assert found.paused() == {T0}
    found.revoke([T0, T1])
    assert found.assignment() == {U0}


def test_a_partition_that_comes_back_starts_anew() -> None:
    found = positions()
    found.assign([T0])
    found.seek(T0, 5)
    found.pause([T0])
    before = state_of(found).generation
    found.revoke([T0])
    found.assign([T0])
    assert found.position(T0) is None
    assert found.paused() == frozenset()
    assert found.current(T0, before) is None


def test_every_jump_makes_a_new_generation_and_reading_on_does_not() -> None:
    found = positions()
    found.assign([T0])
    state = state_of(found)
    seen = [state.generation]
    jumps: list[Callable[[], None]] = [
        lambda: found.seek(T0, 5),
        lambda: found.seek(T0, 5),
        lambda: found.seek_to_beginning([T0]),
        found.seek_to_end,
        lambda: found.seek(T0, OffsetAndMetadata(7, "", 0)),
        lambda: state.lead_by(Leader(1, 9, bytes(16))),
        state.validated,
    ]
    for jump in jumps:
        jump()
        seen.append(state.generation)
    assert len(set(seen)) == len(seen)
    state.advance(8, 9)
    state.advance(8, None)
    assert state.generation == seen[-1]
    assert state.position == FetchPosition(8, 9)


def test_a_seek_with_an_epoch_is_validated_and_one_without_is_not() -> None:
    found = positions()
    found.assign([T0])
    found.seek(T0, 5)
    assert (state_of(found).phase, found.position(T0)) == (FetchPhase.FETCHING, 5)
    found.seek(T0, OffsetAndMetadata(6, "", 0))
    assert (state_of(found).phase, found.position(T0)) == (FetchPhase.VALIDATING, None)


def test_a_seek_with_an_epoch_needs_a_leader_to_validate() -> None:
    found = Positions(config())
    found.assign([T0])
    found.seek(T0, OffsetAndMetadata(6, "", 0))
    assert state_of(found).phase is FetchPhase.FETCHING
    found.update_cluster(FakeCluster({T0: FakeLog()}).metadata())
    assert state_of(found).phase is FetchPhase.VALIDATING, "now there is one"


def test_the_same_leader_again_changes_nothing() -> None:
    cluster = FakeCluster({T0: FakeLog()})
    found = positions()
    found.update_cluster(cluster.metadata())
    found.assign([T0])
    found.seek(T0, OffsetAndMetadata(6, "", 0))
    state_of(found).validated()
    before = state_of(found).generation
    found.update_cluster(cluster.metadata())
    cluster.logs[T0].leader = -1
    found.update_cluster(cluster.metadata())
    assert state_of(found).without_leader
    cluster.logs[T0].leader = 0
    found.update_cluster(cluster.metadata())
    assert not state_of(found).without_leader
    assert state_of(found).generation == before


def test_seeking_to_the_ends_forgets_the_position() -> None:
    found = positions()
    found.assign([T0, T1])
    found.seek(T0, 1)
    found.seek(T1, 1)
    found.seek_to_beginning([T0])
    assert (found.position(T0), found.position(T1)) == (None, 1)
    assert state_of(found).strategy is ResetStrategy.EARLIEST
    found.seek_to_end()
    assert (found.position(T0), found.position(T1)) == (None, None)
    assert state_of(found).strategy is ResetStrategy.LATEST


def test_misuse_is_named() -> None:
    found = positions()
    found.assign([T0])
    calls: list[Callable[[], object]] = [
        lambda: found.seek(T1, 0),
        lambda: found.pause([T0, T1]),
        lambda: found.resume([T1]),
        lambda: found.position(T1),
        lambda: found.lag(T1),
        lambda: found.seek_to_end([T0, T1]),
    ]
    for wrong in calls:
        with pytest.raises(MisuseError, match="t-1 is not assigned"):
            wrong()
    assert found.paused() == frozenset(), "all or nothing"
    with pytest.raises(MisuseError, match="not negative"):
        found.seek(T0, -1)


def test_what_to_commit_is_what_is_known() -> None:
    """A position that is being validated can be committed: with its epoch, whoever reads on validates it."""
    found = positions()
    found.assign([T0, T1, U0])
    found.seek(T0, 3)
    state_of(found).advance(4, 0)
    found.seek(T1, OffsetAndMetadata(6, "", 0))
    assert found.consumed() == {T0: OffsetAndMetadata(4, "", 0), T1: OffsetAndMetadata(6, "", 0)}


@pytest.mark.parametrize("read_committed", [False, True])
def test_lag_is_the_way_to_the_end_for_this_reader(read_committed: bool) -> None:
    found = positions(read_committed=read_committed)
    found.assign([T0])
    assert found.lag(T0) is None
    found.seek(T0, 3)
    assert found.lag(T0) is None
    state_of(found).high_watermark, state_of(found).last_stable_offset = 10, 8
    assert found.lag(T0) == (5 if read_committed else 7)
    found.seek(T0, 20)
    assert found.lag(T0) == 0


def test_a_position_never_goes_back_by_reading() -> None:
    state = PartitionState(T0, count(), Attention())
    state.jump(FetchPosition(5), validate=False)
    with pytest.raises(AssertionError):
        state.advance(4, None)


def test_partitions_take_turns() -> None:
    found = positions()
    found.assign([T0, T1, U0])
    found.rotate(T0)
    assert [state.partition for state in found.states()] == [T1, U0, T0]
