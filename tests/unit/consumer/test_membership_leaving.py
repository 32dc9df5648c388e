"""The ways to leave a group, and what a membership tells others."""

from __future__ import annotations

import pytest

from docs.generate import member_phases
from millstream.consumer.membership.phases import ALLOWED, MemberPhase
from millstream.consumer.membership.values import Left, Lost, Revoke, Wait
from millstream.errors import (
    CommitFailedError,
    ErrorCode,
    NetworkError,
    UnsupportedVersionError,
)
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from tests.unit.consumer.group_harness import Hand, partitions, settings

COOPERATIVE = "cooperative-sticky"


def test_close_revokes_and_leaves() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.membership.close(hand.now_ms, hand.now_ms + 30_000)
    hand.step()
    assert hand.event(Revoke).partitions == partitions("t-0")
    assert not hand.sends
    assert hand.membership.commit_identity().who.member_id == "me"
    hand.callbacks_done()
    assert not hand.membership.is_closed
    assert hand.membership.waiting().what is Wait.LEAVE
    leave = hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=0))
    assert (leave.members[0].member_id, leave.members[0].reason) == ("me", "the consumer is being closed")
    hand.event(Left)
    assert hand.membership.is_closed
    assert hand.membership.next_wake_ms(hand.now_ms) is None
    assert hand.membership.waiting().what is Wait.CLOSED


def test_a_leave_is_repeated_until_the_deadline() -> None:
    hand = Hand(settings())
    hand.settle()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    hand.fail(LeaveGroupRequest, NetworkError())
    hand.after(100)
    hand.find()
    hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
    hand.after(200)
    hand.find()
    hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    hand.after(5_000)
    assert hand.membership.is_closed


def test_close_does_not_wait_for_a_coordinator_that_cannot_be_found() -> None:
    hand = Hand(settings())
    hand.settle()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    hand.fail(LeaveGroupRequest, NetworkError())
    assert not hand.membership.is_closed, "it may have moved"
    hand.after(100)
    hand.fail(FindCoordinatorRequest, NetworkError())
    assert hand.membership.is_closed


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_leave_that_is_refused_is_over(code: ErrorCode) -> None:
    hand = Hand(settings())
    hand.settle()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    refused = MemberResponse(member_id="me", group_instance_id=None, error_code=code)
    hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=0, members=[refused]))
    assert hand.membership.is_closed


def test_old_brokers_are_left_in_the_old_way() -> None:
    hand = Hand(settings())
    hand.settle()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    _, request = hand.take(LeaveGroupRequest, version=2)
    assert (request.member_id, request.members) == ("me", [])


def test_a_static_member_does_not_leave() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.settle("t-0")
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    hand.callbacks_done()
    assert hand.membership.is_closed
    assert not hand.sends


def test_close_during_a_rebalance_loses_what_is_left() -> None:
    hand = Hand(settings(COOPERATIVE))
    hand.settle("t-0", protocol=COOPERATIVE)
    hand.membership.request_rejoin("for fun")
    hand.poll()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    hand.event(Lost)
    hand.callbacks_done()
    assert "LeaveGroup" in hand.kinds()


def test_close_while_on_assigned_runs_revokes_afterwards() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    hand.sync("t-0")
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.events.clear()
    hand.callbacks_done()
    assert hand.event(Revoke).partitions == partitions("t-0")
    hand.callbacks_done()
    assert hand.kinds() == ["LeaveGroup"]


def test_close_before_anything_happened() -> None:
    hand = Hand(settings())
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    assert hand.membership.is_closed
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    assert hand.membership.is_closed


def test_close_after_a_failure() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    assert hand.membership.is_closed


def test_unsubscribe_leaves_and_subscribing_joins_anew() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.membership.unsubscribe(hand.now_ms)
    hand.step()
    hand.event(Revoke)
    hand.callbacks_done()
    assert hand.phase() is MemberPhase.UNJOINED
    assert hand.membership.waiting().what is Wait.SUBSCRIPTION
    assert hand.membership.commit_identity().who.member_id == "", "the group may be used without joining"
    hand.membership.set_subscription(["u"])
    hand.poll()
    hand.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=0))
    assert hand.join(2).member_id == ""


def test_a_join_that_is_given_up_gives_its_id_back() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    token, _ = hand.take(JoinGroupRequest)
    hand.membership.unsubscribe(hand.now_ms)
    hand.step()
    assert not hand.sends
    response = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="x", member_id="born", members=[]
    )
    hand.membership.receive(token, response, hand.now_ms)
    hand.step()
    assert hand.take(LeaveGroupRequest)[1].members[0].member_id == "born"


def test_a_leave_that_cannot_be_sent_is_over() -> None:
    hand = Hand(settings())
    hand.settle()
    hand.membership.close(hand.now_ms, hand.now_ms + 5_000)
    hand.step()
    hand.fail(LeaveGroupRequest, UnsupportedVersionError())
    assert hand.membership.is_closed


# ---- for others ----


def test_the_group_can_be_used_without_joining() -> None:
    hand = Hand(settings())
    hand.membership.unsubscribe(hand.now_ms)
    hand.step()
    assert not hand.sends
    hand.membership.need_coordinator()
    hand.step()
    hand.find()
    assert not hand.sends
    who = hand.membership.commit_identity().who
    assert (who.group_id, who.generation_id, who.member_id) == ("g", -1, "")


def test_no_commits_before_the_first_poll() -> None:
    hand = Hand(settings())
    with pytest.raises(CommitFailedError, match=r"call poll\(\) to join the group first"):
        hand.membership.commit_identity()


def test_a_refused_commit_tells_about_the_membership() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    who = hand.membership.metadata
    hand.membership.commit_refused(ErrorCode.REBALANCE_IN_PROGRESS, who, hand.now_ms)
    hand.poll()
    hand.event(Revoke)
    hand.membership.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, who, hand.now_ms)
    assert hand.membership.metadata.member_id == ""
    hand.membership.commit_refused(ErrorCode.FENCED_INSTANCE_ID, who, hand.now_ms)
    assert hand.membership.error is None, "old news"


def test_waiting_says_it_in_words() -> None:
    hand = Hand(settings())
    assert hand.membership.waiting().words(hand.now_ms) == "poll() must be called", "since when is not known"
    hand.poll()
    hand.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    words = hand.membership.waiting().words(hand.now_ms + 2_500)
    assert words.startswith("the group's coordinator has not been found, for 2.5 s now")
    hand.after(100)
    hand.find()
    assert hand.membership.waiting().what is Wait.MEMBERS
    words = hand.membership.waiting().words(hand.now_ms + 2_500)
    assert words == "the coordinator waits for the other members to join, for 2.5 s now"


def test_the_table_of_phases_is_drawn() -> None:
    text = member_phases()
    assert text.startswith("```mermaid\nstateDiagram-v2\n    [*] --> Unjoined\n")
    assert "    Stable --> Preparing: rebalance, gives something up\n" in text
    assert sum(len(after) for after in ALLOWED.values()) == text.count(" --> ") - 2
    reachable = {after for transitions in ALLOWED.values() for after in transitions}
    assert reachable | {MemberPhase.UNJOINED} == set(MemberPhase) == set(ALLOWED)
