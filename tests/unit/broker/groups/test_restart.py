"""Starting, stopping, and starting again: the log is all that a coordinator remembers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.outcome import Caller, Moment
from millstream.broker.groups.settings import GroupSettings
from millstream.errors import ErrorCode
from millstream.wire.frames import encode_response
from millstream.wire.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.wire.schema import Request
from tests.unit.broker.groups.bench import (
    BOTH,
    GROUP,
    INITIAL_DELAY_MS,
    SESSION_MS,
    T0,
    Bench,
    commit_errors,
)


def test_after_a_restart_nobody_needs_to_rebalance() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.commit({T0: 5}, one, 1)
    before = bench.describe()
    bench.restart()
    assert bench.describe() == before
    assert bench.heartbeat(one, 1) is ErrorCode.NONE
    assert bench.sync(two, 1).synced.assignment == f"for {two}".encode()
    assert commit_errors(bench.commit({T0: 6}, two, 1)) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 6}


def test_sessions_start_anew_and_who_does_not_come_back_expires() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.advance(SESSION_MS - 1)
    bench.restart()
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat(one, 1) is ErrorCode.NONE
    bench.advance(1)
    assert bench.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(one).joined.generation_id == 2


def test_static_members_keep_their_place_over_a_restart() -> None:
    bench = Bench()
    leader, follower = bench.static_group(2)
    bench.restart()
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.NONE
    back = bench.join(instance_id="i1").joined
    assert (back.generation_id, back.leader) == (1, leader)
    bench.restart()
    assert bench.heartbeat(follower, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(back.member_id, 1, "i1") is ErrorCode.NONE


def test_only_the_chosen_protocol_is_remembered() -> None:
    bench = Bench()
    one, _ = bench.stable_group(protocols=BOTH)
    bench.restart()
    assert bench.join(protocols=BOTH[1:]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not bench.join(one, protocols=BOTH).answered


@pytest.mark.parametrize("moment", ["joining", "syncing", "storing"])
def test_an_unfinished_rebalance_is_forgotten_and_the_last_generation_is_back(moment: str) -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.slow_disk = True
    bench.join(one)
    if moment != "joining":
        bench.join(two)
    if moment == "storing":
        bench.sync(one, 2, {one: b"all"})
        assert bench.writes
    bench.restart()
    assert bench.state() == "Stable"
    assert bench.heartbeat(one, 1) is ErrorCode.NONE
    assert bench.heartbeat(one, 2) is ErrorCode.ILLEGAL_GENERATION
    assert bench.sync(one, 2).error is ErrorCode.ILLEGAL_GENERATION


def test_a_group_in_its_first_round_and_pending_ids_are_forgotten() -> None:
    bench = Bench()
    one, _ = bench.join_new()
    bench.restart()
    assert bench.listed() == []
    assert bench.join(one).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_remembers_its_generation() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.leave(one)
    bench.restart()
    assert bench.state() == "Empty"
    _, join = bench.join_new()
    bench.wait_for(join)
    assert join.joined.generation_id == 3


def test_a_lost_record_of_emptiness_only_costs_a_session() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.slow_disk = True
    bench.leave(one)
    bench.fail()
    assert bench.state() == "Empty"
    bench.restart()
    assert bench.state() == "Stable"
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"


def test_replaying_twice_changes_nothing() -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    bench.commit({T0: 5}, one, 1)
    bench.log += bench.log
    assert bench.replayed() == bench.coordinator.store


def test_a_compacted_log_says_the_same() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    for offset in range(5):
        bench.commit({T0: offset}, one, 1)
    bench.commit({T0: 1}, group_id="gone")
    bench.delete("gone")
    bench.leave(two)
    whole = bench.replayed()
    latest = dict(bench.log)  # the last value of each key
    bench.log = [(key, value) for key, value in latest.items() if value is not None]
    assert bench.replayed() == whole
    assert len(bench.log) == 2


# ---- before and after ----

REQUESTS: list[Callable[[], Request]] = [
    lambda: JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    ),
    lambda: SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[]),
    lambda: LeaveGroupRequest(group_id=GROUP),
    lambda: OffsetCommitRequest(group_id=GROUP, member_id="m", topics=[]),
    lambda: OffsetDeleteRequest(group_id=GROUP, topics=[]),
    lambda: DescribeGroupsRequest(groups=[GROUP]),
    ListGroupsRequest,
    lambda: DeleteGroupsRequest(groups_names=[GROUP]),
]


def all_versions() -> list[tuple[Request, int]]:
    requests = [build() for build in REQUESTS]
    pairs = [
        (request, version)
        for request in requests
        for version in range(request.api.min_version, request.api.max_version + 1)
    ]
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    pairs += [(OffsetFetchRequest(group_id=GROUP, topics=topics), version) for version in range(1, 8)]
    pairs += [
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP)]), version) for version in (8, 9)
    ]
    return pairs


def test_before_it_has_loaded_the_coordinator_asks_to_wait_and_calms_heartbeats() -> None:
    coordinator = GroupCoordinator(GroupSettings(), str)
    moment = Moment(0, 0)
    for request, version in all_versions():
        outcome = coordinator.handle(request, "ticket", Caller("", "", version), moment)
        (reply,) = outcome.replies
        encode_response(reply.response, version, 1)
        if not isinstance(request, OffsetCommitRequest):
            assert f"error_code={ErrorCode.COORDINATOR_LOAD_IN_PROGRESS!r}" in repr(reply.response)
    heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    (reply,) = coordinator.handle(heartbeat, "ticket", Caller("", "", 4), moment).replies
    assert "error_code=<ErrorCode.NONE: 0>" in repr(reply.response)
    assert coordinator.next_deadline_ms() is None
    assert coordinator.tick(moment).replies == ()


def test_stopping_answers_all_that_waits() -> None:
    bench = Bench()
    one, two = bench.join_new()[0], bench.join_new()[0]
    bench.advance(2 * INITIAL_DELAY_MS)
    sync = bench.sync(two, 1)
    join = bench.join_new(group_id="other")[1]
    bench.slow_disk = True
    commit = bench.commit({T0: 1}, group_id="simple")
    deletion = bench.delete("simple")
    fetch = bench.fetch([T0], require_stable=True, group_id="simple")
    bench.take(bench.coordinator.stop(bench.moment))
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (sync.error, join.error) == (gone, gone)
    assert fetch.answered
    assert bench.heartbeat(one, 1) is gone
    assert not commit.answered, "it may still become durable"
    bench.flush()
    assert commit_errors(commit) == [ErrorCode.NONE]
    assert deletion.answered
    assert set(bench.requests) == set(bench.replies)
    assert bench.coordinator.next_deadline_ms() is None
