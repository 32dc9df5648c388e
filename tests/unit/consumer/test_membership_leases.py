"""HeartbeatTimer, leases, and polls that do not come."""

from __future__ import annotations

import pytest

from millstream.consumer.assignors.protocol import (
    decode_subscription,
)
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Assigned, CoordinatorLost, Lost, Revoke
from millstream.errors import (
    CommitFailedError,
    ErrorCode,
    MillstreamTimeoutError,
    NetworkError,
)
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from tests.unit.consumer.group_harness import Hand, partitions, settings

COOPERATIVE = "cooperative-sticky"


def owned_in(request: JoinGroupRequest) -> tuple[object, int]:
    told = decode_subscription(request.protocols[0].metadata)
    return told.owned_partitions, told.generation_id


# ---- heartbeats and leases ----


def test_heartbeats_come_at_their_interval_one_at_a_time() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.after(2_999)
    assert not hand.sends
    assert hand.membership.next_wake_ms(hand.now_ms) == hand.now_ms + 1
    hand.after(1)
    assert hand.sends[0].timeout_ms == 22_500, "half a session: there must be time for another one"
    hand.after(10_000)
    assert len(hand.sends) == 1
    beat = hand.beat()
    assert (beat.group_id, beat.generation_id, beat.member_id) == ("g", 1, "me")
    assert hand.kinds() == ["Heartbeat"], "the next one is overdue"


def test_a_failed_heartbeat_looks_for_the_coordinator_and_goes_on() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.after(3_000)
    hand.fail(HeartbeatRequest, NetworkError())
    hand.event(CoordinatorLost)
    hand.after(100)
    hand.find()
    hand.beat()
    assert hand.phase() is MemberPhase.STABLE, "no rebalance for a broken connection"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_heartbeats_that_could_not_be_answered(code: ErrorCode) -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.after(3_000)
    hand.beat(code)
    hand.after(100)
    if code is ErrorCode.NOT_COORDINATOR:
        hand.find()
    hand.beat()
    assert hand.phase() is MemberPhase.STABLE


def test_the_session_counts_from_the_last_answered_heartbeat_was_sent() -> None:
    hand = Hand(settings(session_timeout_ms=10_000))
    hand.settle("t-0")
    hand.after(3_000)
    sent_ms = hand.now_ms
    hand.now_ms += 2_000
    hand.beat()
    hand.after(sent_ms + 10_000 - hand.now_ms - 1)
    assert hand.membership.assignment
    hand.after(1)
    lost = hand.event(Lost)
    assert lost.partitions == lost.dropped == partitions("t-0")
    assert "session_timeout_ms (10000)" in lost.reason
    assert not hand.membership.assignment
    with pytest.raises(CommitFailedError, match="session_timeout_ms"):
        hand.membership.commit_identity()
    hand.callbacks_done()
    hand.after(100)
    hand.find()
    assert hand.join(2).member_id == "me", "the id may still be good"


def test_a_slow_leader_does_not_cost_the_lease() -> None:
    hand = Hand(settings(session_timeout_ms=10_000))
    hand.poll()
    hand.find()
    hand.join()
    hand.after(60_000)
    hand.sync("t-0")
    hand.run_callbacks()
    hand.after(3_000)
    hand.beat()
    hand.after(3_000)
    assert hand.membership.assignment


def test_a_rebalance_that_waits_for_too_long() -> None:
    """Heartbeats are answered, but the coordinator will not wait for ever: be out before it gives up."""
    hand = Hand(settings(max_poll_interval_ms=20_000))
    hand.settle("t-0")
    hand.leave_poll()
    hand.after(3_000)
    settled_ms = hand.now_ms
    hand.beat()
    hand.now_ms += 2_900
    hand.leave_poll()
    while hand.now_ms < settled_ms + 20_000 - 1:
        hand.after(min(3_000, settled_ms + 20_000 - 1 - hand.now_ms))
        if "Heartbeat" in hand.kinds():
            hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert hand.membership.assignment
    hand.after(1)
    assert "while a rebalance waited for it" in hand.event(Lost).reason


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_thrown_out(code: ErrorCode, member_id: str) -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.after(3_000)
    hand.beat(code)
    assert hand.event(Lost).partitions == partitions("t-0")
    hand.after(100)
    assert not hand.sends, "on_lost comes first"
    hand.callbacks_done()
    request = hand.join(2)
    assert request.member_id == member_id
    assert owned_in(request) == ((), -1)


def test_answers_to_heartbeats_of_the_past_are_ignored() -> None:
    hand = Hand(settings(COOPERATIVE))
    hand.settle("t-0", protocol=COOPERATIVE)
    hand.after(3_000)
    token, _ = hand.take(HeartbeatRequest)
    hand.membership.request_rejoin("for fun")
    hand.poll()
    assert hand.phase() is MemberPhase.JOINING
    hand.membership.failed(token, MillstreamTimeoutError(), hand.now_ms)
    assert hand.membership.assignment


def test_a_cooperative_member_without_a_connection_loses_its_lease() -> None:
    hand = Hand(settings(COOPERATIVE, session_timeout_ms=10_000))
    hand.settle("t-0", protocol=COOPERATIVE)
    hand.membership.request_rejoin("for fun")
    hand.poll()
    hand.after(60_000)
    assert hand.membership.assignment, "the coordinator may hold the join for long"
    hand.fail(JoinGroupRequest, NetworkError())
    assert hand.event(Lost).partitions == partitions("t-0")


# ---- polls that do not come ----


def test_a_user_who_does_not_poll_is_taken_out() -> None:
    hand = Hand(settings(max_poll_interval_ms=10_000))
    hand.settle("t-0")
    hand.leave_poll()
    hand.after(3_000)
    hand.beat()
    hand.after(6_999)
    hand.beat()
    assert hand.membership.assignment
    hand.after(1)
    lost = hand.event(Lost)
    assert "max_poll_interval_ms is 10000" in lost.reason and "max_poll_records" in lost.reason
    leave = hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=0))
    assert leave.members[0].member_id == "me"
    assert "max.poll.interval.ms" in leave.members[0].reason
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        hand.membership.commit_identity()
    hand.after(60_000)
    assert not hand.sends, "it comes back with the next poll"
    hand.poll()
    hand.callbacks_done()
    assert hand.join(2).member_id == ""


def test_who_waits_in_poll_is_never_late() -> None:
    hand = Hand(settings(max_poll_interval_ms=10_000))
    hand.settle("t-0")
    for _ in range(20):
        hand.after(3_000)
        hand.beat()
    assert hand.membership.assignment


def test_a_static_member_that_does_not_poll_falls_silent() -> None:
    hand = Hand(settings(max_poll_interval_ms=10_000, group_instance_id="i"))
    hand.settle("t-0")
    hand.leave_poll()
    hand.after(3_000)
    hand.beat()
    hand.after(7_000)
    hand.sends.clear()
    hand.event(Lost)
    hand.after(100_000)
    assert not hand.sends, "neither a heartbeat nor a farewell"
    hand.poll()
    hand.callbacks_done()
    request = hand.join(1)
    assert (request.member_id, request.group_instance_id) == ("", "i")


def test_a_user_who_stops_polling_while_joining() -> None:
    hand = Hand(settings(max_poll_interval_ms=10_000))
    hand.poll()
    hand.find()
    hand.join(error=ErrorCode.MEMBER_ID_REQUIRED)
    hand.leave_poll()
    token, _ = hand.take(JoinGroupRequest)
    hand.after(10_000)
    assert hand.take(LeaveGroupRequest)[1].members[0].member_id == "me"
    response = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="x", member_id="me", members=[]
    )
    hand.membership.receive(token, response, hand.now_ms)
    assert hand.phase() is MemberPhase.UNJOINED


def test_callbacks_that_take_too_long() -> None:
    """The loss comes while on_revoked runs: it is all that the user hears of these partitions."""
    hand = Hand(settings(max_poll_interval_ms=10_000, session_timeout_ms=9_000))
    hand.settle("t-0")
    hand.membership.request_rejoin("for fun")
    hand.leave_poll()
    assert hand.event(Revoke).partitions == partitions("t-0")
    hand.after(9_000)
    lost = hand.event(Lost)
    assert (lost.partitions, lost.dropped) == ((), partitions("t-0"))
    assert not hand.membership.assignment
    hand.callbacks_done()
    hand.callbacks_done()
    assert hand.phase() in (MemberPhase.UNJOINED, MemberPhase.JOINING)


def test_a_loss_while_on_assigned_runs() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    hand.sync("t-0")
    hand.event(Assigned)
    hand.after(3_000)
    hand.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert hand.event(Lost).partitions == partitions("t-0")
    hand.callbacks_done()
    assert not hand.membership.assignment
    hand.callbacks_done()
    hand.after(100)
    hand.join(2)
