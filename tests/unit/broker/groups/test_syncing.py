"""SyncGroup, Heartbeat, LeaveGroup and sessions: the life of a member between joins."""

from __future__ import annotations

import pytest

from millstream.errors import ErrorCode
from millstream.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse
from tests.unit.broker.groups.bench import (
    GROUP,
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Bench,
    Parked,
)


def joined_pair(bench: Bench, **keywords: int) -> tuple[str, str]:
    """Two members of generation 1 that have not synced; the first leads."""
    one, _ = bench.join_new(**keywords)
    two, _ = bench.join_new(**keywords)
    bench.advance(2 * INITIAL_DELAY_MS)
    return one, two


# ---- SyncGroup ----


def test_followers_wait_for_the_leader_and_each_gets_its_own() -> None:
    bench = Bench()
    one, two = joined_pair(bench)
    follower = bench.sync(two, 1)
    assert not follower.answered
    leader = bench.sync(one, 1, {one: b"first", two: b"second"})
    assert (leader.synced.assignment, follower.synced.assignment) == (b"first", b"second")
    assert (leader.synced.protocol_type, leader.synced.protocol_name) == ("consumer", "range")
    assert bench.state() == "Stable"


def test_nobody_learns_an_assignment_before_it_is_durable() -> None:
    bench = Bench(slow_disk=True)
    one, two = joined_pair(bench)
    syncs = [bench.sync(two, 1), bench.sync(one, 1, {one: b"a", two: b"b"})]
    assert not any(sync.answered for sync in syncs)
    assert bench.state() == "CompletingRebalance"
    bench.flush()
    assert [sync.synced.assignment for sync in syncs] == [b"b", b"a"]
    assert bench.state() == "Stable"


def test_a_leader_that_repeats_itself_does_not_change_the_generation_that_is_being_written() -> None:
    bench = Bench(slow_disk=True)
    one, two = joined_pair(bench)
    first = bench.sync(one, 1, {one: b"a", two: b"b"})
    again = bench.sync(one, 1, {one: b"other"})
    follower = bench.sync(two, 1)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(bench.writes) == 1
    bench.flush()
    assert (again.synced.assignment, follower.synced.assignment) == (b"a", b"b")
    stored = bench.coordinator.store.groups[GROUP]
    assert [member.assignment for member in stored.members] == [b"a", b"b"]


def test_a_failed_write_of_the_assignment_ends_the_generation() -> None:
    bench = Bench(slow_disk=True)
    one, two = joined_pair(bench)
    syncs = [bench.sync(two, 1), bench.sync(one, 1, {one: b"a", two: b"b"})]
    bench.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [sync.error for sync in syncs] == [ErrorCode.NOT_COORDINATOR] * 2
    assert bench.state() == "PreparingRebalance"
    joins = [bench.join(one), bench.join(two)]
    assert [join.joined.generation_id for join in joins] == [2, 2]
    bench.sync(one, 2, {one: b"c"})
    bench.flush()
    assert bench.coordinator.store.groups[GROUP].generation == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_errors_of_the_log_are_told_as_errors_of_the_coordinator(error: ErrorCode, told: ErrorCode) -> None:
    bench = Bench(slow_disk=True)
    one, _ = joined_pair(bench)
    sync = bench.sync(one, 1, {})
    bench.fail(error)
    assert sync.error is told


def test_a_generation_that_was_overtaken_while_being_written_stays_overtaken() -> None:
    bench = Bench(slow_disk=True)
    one, two = joined_pair(bench)
    sync = bench.sync(one, 1, {one: b"a", two: b"b"})
    bench.join_new()
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.flush()
    assert bench.state() == "PreparingRebalance"
    assert bench.describe().members[0].member_assignment == b""


def test_a_write_of_the_last_generation_does_not_settle_this_one() -> None:
    bench = Bench(slow_disk=True)
    one, two = joined_pair(bench)
    bench.sync(one, 1, {one: b"old", two: b"old"})
    joins = [bench.join(two, protocols=[("range", b"new")]), bench.join(one)]
    assert [join.joined.generation_id for join in joins] == [2, 2]
    parked = bench.sync(two, 2)
    bench.flush()
    assert not parked.answered
    assert bench.state() == "CompletingRebalance"
    bench.sync(one, 2, {one: b"mine", two: b"yours"})
    bench.flush()
    assert parked.synced.assignment == b"yours"


def test_who_is_left_out_by_the_leader_owns_nothing() -> None:
    bench = Bench()
    one, two = joined_pair(bench)
    bench.sync(one, 1, {one: b"all"})
    assert bench.sync(two, 1).synced.assignment == b""


@pytest.mark.parametrize(
    ("member", "generation", "keywords", "error"),
    [
        ("one", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("one", 0, {}, ErrorCode.ILLEGAL_GENERATION),
        ("who", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("one", 1, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("one", 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("one", 1, {"protocol": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("one", 1, {"version": 5}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("one", 1, {"version": 5, "protocol_type": "consumer"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("one", 1, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ("one", 1, {"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("one", 1, {"assignments": {"one": bytes(101)}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_syncs_that_do_not_fit_are_refused(
    member: str, generation: int, keywords: dict[str, str], error: ErrorCode
) -> None:
    bench = Bench(assignment_max_bytes=100)
    one, _ = joined_pair(bench)
    assert bench.sync(one if member == "one" else member, generation, **keywords).error is error  # type: ignore[arg-type]
    assert bench.state() == "CompletingRebalance"


def test_a_sync_during_the_join_phase_is_told_to_join() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.join_new()
    assert bench.sync(two, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.sync(one, 1, {one: b"x"}).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("idle", ["leader", "follower"])
def test_members_that_do_not_sync_are_dropped_after_the_rebalance_timeout(idle: str) -> None:
    bench = Bench()
    one, two = joined_pair(bench, session_ms=60_000, rebalance_ms=20_000)
    sync = bench.sync(two, 1) if idle == "leader" else bench.sync(one, 1, {one: b"a"})
    bench.advance(19_999)
    assert bench.heartbeat(one, 1) is ErrorCode.NONE
    bench.advance(1)
    late, there = (one, two) if idle == "leader" else (two, one)
    assert sync.error is (ErrorCode.REBALANCE_IN_PROGRESS if idle == "leader" else ErrorCode.NONE)
    assert bench.heartbeat(late, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(there, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_parked_sync_keeps_the_session() -> None:
    bench = Bench()
    one, two = joined_pair(bench)
    sync = bench.sync(two, 1)
    for _ in range(3):
        bench.advance(SESSION_MS - 1)
        assert bench.heartbeat(one, 1) is ErrorCode.NONE
    assert bench.state() == "CompletingRebalance", "the follower waits for an answer: it is not at fault"
    bench.sync(one, 1, {one: b"a", two: b"b"})
    assert sync.synced.assignment == b"b"
    bench.advance(SESSION_MS)
    assert bench.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- Heartbeat ----


def test_heartbeats_keep_a_member_and_silence_ends_its_session() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    for _ in range(5):
        bench.advance(SESSION_MS - 1)
        assert bench.heartbeat(one, 1) in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
    assert bench.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.coordinator.counters.members_expired == 1
    join = bench.join(one)
    assert join.joined.generation_id == 2
    assert [member.member_id for member in join.joined.members] == [one]


def test_a_session_ends_exactly_when_it_should() -> None:
    bench = Bench()
    bench.stable_group(1)
    bench.advance(SESSION_MS - 1)
    assert bench.state() == "Stable"
    bench.advance(1)
    assert bench.state() == "Empty"


def test_heartbeats_that_do_not_fit_are_refused() -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    assert bench.heartbeat(one, 0) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(one, 2) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat("who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(one, 1, group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(one, 1, group_id="") is ErrorCode.INVALID_GROUP_ID
    assert bench.heartbeat(one, 1, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(one, 1) is ErrorCode.NONE


def test_a_refused_heartbeat_does_not_keep_the_session() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.advance(SESSION_MS - 1)
    bench.heartbeat(one, 7)
    bench.advance(1)
    assert bench.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- LeaveGroup ----


def test_who_leaves_is_gone_at_once_and_the_others_rebalance() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    assert bench.leave(one) == [ErrorCode.NONE]
    assert bench.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    join = bench.join(two)
    assert (join.joined.generation_id, join.joined.leader) == (2, two)


def test_when_the_last_member_leaves_the_group_is_empty_and_that_is_remembered() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    assert bench.leave(one, two) == [ErrorCode.NONE, ErrorCode.NONE]
    assert bench.state() == "Empty"
    stored = bench.coordinator.store.groups[GROUP]
    assert (stored.generation, stored.members, stored.leader, stored.protocol) == (2, (), None, None)
    assert (stored.protocol_type, stored.state_since_ms) == ("consumer", bench.moment.epoch_ms)


def test_each_leaver_gets_its_own_answer() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    pending = bench.join().joined.member_id
    answers = bench.leave(one, "who", pending, ("", None), ("", "i9"), (two, "i9"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answers == [ErrorCode.NONE, unknown, ErrorCode.NONE, unknown, unknown, unknown]
    assert bench.heartbeat(two, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_pending_id_that_is_given_back_disturbs_nobody() -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    pending = bench.join().joined.member_id
    assert bench.leave(pending) == [ErrorCode.NONE]
    assert bench.heartbeat(one, 1) is ErrorCode.NONE
    assert bench.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_old_versions_leave_one_by_one() -> None:
    bench = Bench()
    one, _ = bench.stable_group()

    def leave(member_id: str, group_id: str = GROUP) -> int:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
        return bench.ask(request, 2, LeaveGroupResponse).error_code

    assert leave("who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(one) == ErrorCode.NONE
    assert leave(one) == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(one, "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(one, "") == ErrorCode.INVALID_GROUP_ID


def test_who_leaves_takes_its_parked_requests_along() -> None:
    bench = Bench()
    one, two = joined_pair(bench)
    sync = bench.sync(two, 1)
    bench.leave(two)
    assert sync.error is ErrorCode.UNKNOWN_MEMBER_ID
    three, join = bench.join_new()
    bench.leave(three)
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(one).joined.generation_id == 2


def test_a_rebalance_ends_when_the_only_one_missing_leaves() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    join: Parked = bench.join(one)
    assert not join.answered
    bench.leave(two)
    assert join.joined.generation_id == 2


def test_a_parked_join_keeps_the_session_of_a_known_member() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    join = bench.join(one)
    for _ in range(3):
        bench.advance(SESSION_MS - 1)
        bench.heartbeat(two, 1)
    assert not join.answered
    assert REBALANCE_MS > 3 * SESSION_MS
    bench.join(two)
    assert join.joined.generation_id == 2
