"""Static membership (KIP-345, KIP-814): who comes back finds its place, or takes it from its twin."""

from __future__ import annotations

import pytest

from millstream.errors import ErrorCode
from tests.unit.broker.groups.bench import (
    BOTH,
    GROUP,
    INITIAL_DELAY_MS,
    SESSION_MS,
    T0,
    Bench,
    commit_errors,
    subscription,
)


def test_a_static_member_is_let_in_at_once_under_an_id_of_its_instance() -> None:
    bench = Bench()
    join = bench.join(instance_id="i0")
    bench.advance(INITIAL_DELAY_MS)
    assert join.joined.member_id == "i0-id1"
    assert join.joined.members[0].group_instance_id == "i0"


def test_a_restart_within_the_session_causes_no_rebalance() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2)
    back = bench.join(instance_id="i1").joined
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, leader)
    assert back.member_id not in {leader, follower}
    assert (back.members, back.skip_assignment) == ([], False)
    assert bench.state() == "Stable"
    assert bench.heartbeat(leader, 1, "i0") is ErrorCode.NONE
    assert bench.sync(back.member_id, 1, instance_id="i1").synced.assignment == f"for {follower}".encode()


def test_a_leader_that_restarts_still_leads_but_need_not_assign() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2)
    back = bench.join(instance_id="i0").joined
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert [member.member_id for member in back.members] == [follower, back.member_id]
    assert bench.sync(back.member_id, 1).synced.assignment == f"for {leader}".encode()
    assert bench.state() == "Stable"


def test_an_older_leader_is_not_told_that_it_leads() -> None:
    bench = Bench()
    leader, _ = bench.static_group(2)
    back = bench.join(instance_id="i0", version=8).joined
    assert (back.leader, back.members, back.skip_assignment) == (leader, [], False)


def test_the_old_process_is_fenced_in_all_it_does() -> None:
    bench = Bench()
    bench.static_group(2)
    old = bench.join(instance_id="i1").joined.member_id
    new = bench.join(instance_id="i1").joined.member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old, 1, "i1") is fenced
    assert bench.sync(old, 1, instance_id="i1").error is fenced
    assert bench.join(old, instance_id="i1").error is fenced
    assert commit_errors(bench.commit({T0: 1}, old, 1, instance_id="i1")) == [fenced]
    assert bench.leave((old, "i1")) == [fenced]
    assert bench.heartbeat(new, 1, "i1") is ErrorCode.NONE, "exactly one is fenced"
    assert bench.coordinator.counters.members_fenced == 2


def test_the_new_id_is_durable_before_it_is_told() -> None:
    bench = Bench()
    _, follower = bench.static_group(2)
    bench.slow_disk = True
    back = bench.join(instance_id="i1")
    assert not back.answered
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    bench.flush()
    stored = bench.coordinator.store.groups[GROUP]
    assert back.joined.member_id in {member.member_id for member in stored.members}
    assert stored.generation == 1


def test_when_the_new_id_cannot_be_stored_the_old_one_is_back() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2, protocols=BOTH)
    bench.slow_disk = True
    before = bench.describe()
    back = bench.join(instance_id="i1", protocols=[("range", subscription("u"))], client_id="other")
    bench.fail()
    assert (back.error, back.joined.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert bench.describe() == before
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.NONE
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(leader, 1, "i0") is ErrorCode.NONE
    bench.advance(1)
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.UNKNOWN_MEMBER_ID, "its session counts again"


def test_two_processes_with_one_instance_id_while_the_disk_is_slow() -> None:
    bench = Bench()
    bench.static_group(2)
    bench.slow_disk = True
    first, second = bench.join(instance_id="i1"), bench.join(instance_id="i1")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    assert not second.answered
    bench.flush()
    assert second.error is ErrorCode.NONE
    assert len(bench.describe().members) == 2


def test_a_rebalance_that_begins_while_a_new_id_is_being_stored_takes_the_member_along() -> None:
    bench = Bench()
    leader, _ = bench.static_group(2)
    bench.slow_disk = True
    back = bench.join(instance_id="i1")
    bench.join_new()
    bench.flush()
    assert not back.answered, "the rebalance answers it"
    bench.join(leader, instance_id="i0")
    assert back.joined.generation_id == 2


def test_a_changed_protocol_choice_causes_a_rebalance() -> None:
    bench = Bench()
    joins = [
        bench.join(instance_id="i0", protocols=BOTH),
        bench.join(instance_id="i1", protocols=BOTH),
    ]
    bench.advance(2 * INITIAL_DELAY_MS)
    one, two = (join.joined.member_id for join in joins)
    bench.settle(one, two, generation=1)
    back = bench.join(instance_id="i1", protocols=[("roundrobin", subscription("t"))])
    assert not back.answered
    assert bench.state() == "PreparingRebalance"


@pytest.mark.parametrize("who", ["i0", "i1"])
def test_a_restart_during_the_sync_phase_starts_over(who: str) -> None:
    bench = Bench()
    joins = [bench.join(instance_id=f"i{index}") for index in range(2)]
    bench.advance(2 * INITIAL_DELAY_MS)
    parked = bench.sync(joins[1].joined.member_id, 1, instance_id="i1")
    back = bench.join(instance_id=who)
    expected = ErrorCode.FENCED_INSTANCE_ID if who == "i1" else ErrorCode.REBALANCE_IN_PROGRESS
    assert parked.error is expected
    assert not back.answered
    other = 0 if who == "i1" else 1
    bench.join(joins[other].joined.member_id, instance_id=f"i{other}")
    assert back.joined.generation_id == 2


def test_a_restart_during_the_join_phase_fences_the_parked_join() -> None:
    bench = Bench()
    first = bench.join(instance_id="i0")
    second = bench.join(instance_id="i0")
    assert (first.error, first.joined.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "i0-id1")
    bench.advance(2 * INITIAL_DELAY_MS)
    assert second.joined.generation_id == 1
    assert [member.member_id for member in second.joined.members] == ["i0-id2"]


def test_who_takes_a_parked_join_over_may_wait_longer_than_its_session() -> None:
    bench = Bench(group_initial_rebalance_delay_ms=2 * SESSION_MS)
    bench.join(instance_id="i0")
    join = bench.join(instance_id="i0")
    bench.advance(2 * SESSION_MS)
    assert join.joined.generation_id == 1


def test_a_late_static_member_keeps_its_place_in_the_next_generation() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2, session_ms=30_000, rebalance_ms=5_000)
    join = bench.join(leader, instance_id="i0", session_ms=30_000, rebalance_ms=5_000)
    bench.advance(5_000)
    assert {member.member_id for member in join.joined.members} == {leader, follower}
    assert join.joined.generation_id == 2


def test_when_only_late_static_members_are_left_their_sessions_end_the_wait() -> None:
    bench = Bench()
    bench.static_group(2, rebalance_ms=2_000)
    dynamic, join = bench.join_new(rebalance_ms=2_000)
    bench.leave(dynamic)
    assert join.answered
    bench.advance(2_000)
    assert bench.state() == "PreparingRebalance", "nobody is there to lead"
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"


def test_a_wait_without_anybody_is_not_a_busy_loop() -> None:
    bench = Bench()
    bench.static_group(1, rebalance_ms=1)
    dynamic, _ = bench.join_new(rebalance_ms=1)
    bench.leave(dynamic)
    bench.advance(1)
    deadline_ms = bench.coordinator.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms >= bench.now_ms + 1_000


def test_a_static_member_is_sent_away_by_its_instance_id() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2)
    assert bench.leave(("", "i1"), ("", "i7")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(leader, 1, "i0") is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.leave((leader, "i0")) == [ErrorCode.NONE]
    assert bench.state() == "Empty"


def test_an_unknown_member_id_with_a_known_instance_is_fenced_and_an_unknown_instance_is_unknown() -> None:
    bench = Bench()
    bench.static_group(1)
    assert bench.join("who", instance_id="i0").error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.join("who", instance_id="i5").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_dynamic_id_cannot_become_static() -> None:
    bench = Bench()
    pending = bench.join().joined.member_id
    assert bench.join(pending, instance_id="i0").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_after_its_session_a_static_member_is_gone() -> None:
    bench = Bench()
    leader, _ = bench.static_group(2)
    bench.advance(SESSION_MS - 1)
    bench.heartbeat(leader, 1, "i0")
    bench.advance(1)
    assert bench.heartbeat(leader, 1, "i0") is ErrorCode.REBALANCE_IN_PROGRESS
    assert not bench.join(instance_id="i1").answered
