"""Rebalances of a member: eager and cooperative, metadata that changes, static members."""

from __future__ import annotations

import pytest

from millstream.consumer.assignors.base import Assignment, Subscription
from millstream.consumer.assignors.protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.consumer.membership import leader
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Assigned, Failed, JoinStarted, Lost, Revoke, Wait
from millstream.errors import (
    ErrorCode,
    FencedInstanceIdError,
    NetworkError,
    RebalanceInProgressError,
)
from millstream.wire.messages.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.wire.messages.groups import (
    JoinGroupRequest,
)
from tests.unit.consumer.group_harness import Hand, partitions, settings

COOPERATIVE = "cooperative-sticky"


def owned_in(request: JoinGroupRequest) -> tuple[object, int]:
    told = decode_subscription(request.protocols[0].metadata)
    return told.owned_partitions, told.generation_id


def test_eager_members_give_everything_up_before_they_join() -> None:
    hand = Hand(settings("range"))
    hand.settle("t-0", "t-1", generation=2)
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert hand.event(Revoke).partitions == partitions("t-0", "t-1")
    assert hand.phase() is MemberPhase.PREPARING
    assert not hand.sends
    assert hand.membership.assignment == set(partitions("t-0", "t-1")), "until on_revoked has ended"
    assert hand.membership.commit_identity().who.generation_id == 2, "on_revoked may commit"
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)  # heartbeats go on while the callback runs
    hand.callbacks_done()
    assert not hand.membership.assignment
    assert hand.event(JoinStarted).reason == "the group is rebalancing"
    with pytest.raises(RebalanceInProgressError):
        hand.membership.commit_identity()
    request = hand.join(3)
    assert owned_in(request) == ((), 2)
    assert request.reason == "the group is rebalancing"
    hand.sync("t-1")
    assert hand.event(Assigned).added == partitions("t-1")


def test_a_rebalance_waits_for_the_users_poll() -> None:
    hand = Hand(settings("range"))
    hand.settle("t-0")
    hand.leave_poll()
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not hand.has(Revoke)
    assert hand.membership.waiting().what is Wait.POLL
    assert hand.membership.commit_identity().who.member_id == "me", "commits are still good"
    hand.poll()
    assert hand.has(Revoke)


def test_nothing_is_given_up_while_there_is_no_coordinator() -> None:
    hand = Hand(settings("range"))
    hand.settle("t-0")
    hand.leave_poll()
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.membership.coordinator_lost("gone", hand.now_ms)
    hand.poll()
    assert not hand.has(Revoke)
    hand.after(100)
    hand.find()
    assert hand.has(Revoke)


def test_cooperative_members_keep_what_does_not_move() -> None:
    hand = Hand(settings(COOPERATIVE))
    hand.settle("t-0", "t-1", "t-2", generation=2, protocol=COOPERATIVE)
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not hand.has(Revoke)
    assert owned_in(hand.join(3, protocol=COOPERATIVE)) == (partitions("t-0", "t-1", "t-2"), 2)
    assert hand.membership.assignment == set(partitions("t-0", "t-1", "t-2"))
    hand.sync("t-0", "t-2")
    assert hand.event(Revoke).partitions == partitions("t-1")
    assert hand.membership.commit_identity().who.generation_id == 3, (
        "on_revoked may commit in the new generation"
    )
    hand.callbacks_done()
    assert hand.event(Assigned) == Assigned((), partitions("t-0", "t-2"), 3)
    hand.callbacks_done()
    # It rejoins at once, for t-1 to be given to somebody.
    request = hand.join(4, protocol=COOPERATIVE)
    assert owned_in(request) == (partitions("t-0", "t-2"), 3)
    assert "gave up" in (request.reason or "")
    hand.sync("t-0", "t-2", "t-7")
    hand.event(Assigned)
    hand.callbacks_done()
    assert hand.phase() is MemberPhase.STABLE
    assert not hand.sends


def test_a_leader_rebalances_again_when_partitions_that_move_are_left_without_an_owner() -> None:
    """Their owner, a static member, has lost them and was back without a rebalance."""
    hand = Hand(settings(COOPERATIVE, session_timeout_ms=10_000, max_poll_interval_ms=30_000))
    hand.metadata(t=2)
    hand.poll()
    hand.find()
    theirs = encode_subscription(
        Subscription(("t",), owned_partitions=partitions("t-0", "t-1"), generation_id=1)
    )
    mine = encode_subscription(Subscription(("t",)))
    hand.join(2, leader="me", protocol=COOPERATIVE, members={"me": mine, "they": theirs})
    hand.sync()
    hand.run_callbacks()
    assert hand.phase() is MemberPhase.STABLE
    for _ in range(13):
        hand.after(3_000)
        assert hand.kinds() == ["Heartbeat"], "they may be about to give it up"
        hand.beat()
    hand.after(1_000)
    request = hand.join(3, leader="me", protocol=COOPERATIVE, members={"me": mine})
    assert request.reason == "partitions that were to move have no owner"
    hand.sync("t-0", "t-1")
    hand.run_callbacks()
    for _ in range(20):
        hand.after(3_000)
        assert hand.kinds() == ["Heartbeat"], "all have owners"
        hand.beat()


def test_cooperative_members_give_up_what_they_no_longer_want() -> None:
    hand = Hand(settings(COOPERATIVE), ("s", "t"))
    hand.settle("s-0", "t-0", protocol=COOPERATIVE)
    hand.membership.set_subscription(["t"])
    hand.poll()
    assert hand.event(Revoke).partitions == partitions("s-0")
    hand.callbacks_done()
    assert owned_in(hand.join(2, protocol=COOPERATIVE)) == (partitions("t-0"), 1)


def test_partitions_that_are_claimed_are_withheld() -> None:
    members = {
        "a": Subscription(("t",), owned_partitions=partitions("t-0", "t-1")),
        "b": Subscription(("t",), owned_partitions=partitions("t-1")),
    }
    shares = {"a": Assignment(partitions("t-2")), "b": Assignment(partitions("t-0", "t-1", "t-3"), b"x")}
    kept = leader.withhold_claimed(shares, members)
    assert kept == {"a": Assignment(partitions("t-2")), "b": Assignment(partitions("t-1", "t-3"), b"x")}


def test_a_changed_subscription_rejoins() -> None:
    hand = Hand(settings())
    hand.settle("t-0")
    hand.membership.set_subscription(["t"])
    hand.poll()
    assert not hand.sends, "nothing has changed"
    hand.membership.set_subscription(["t", "u"])
    hand.poll()
    hand.callbacks_done()
    request = hand.join(2)
    assert request.reason == "the subscription has changed"
    assert decode_subscription(request.protocols[0].metadata).topics == ("t", "u")


def test_a_subscription_that_changes_while_joining_rejoins_afterwards() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.membership.set_subscription(["u"])
    hand.join()
    hand.sync("t-0")
    assert hand.phase() is MemberPhase.JOINING, "t is not wanted any more"
    assert decode_subscription(hand.join(2).protocols[0].metadata).topics == ("u",)


def test_only_the_leader_watches_metadata() -> None:
    hand = Hand(settings())
    hand.metadata(t=1)
    hand.settle("t-0")
    hand.metadata(t=2)
    assert not hand.has(Revoke)
    hand.membership.request_rejoin("to lead")
    hand.poll()
    hand.callbacks_done()
    subscription = encode_subscription(Subscription(("t",)))
    hand.join(2, leader="me", members={"me": subscription})
    hand.sync("t-0", "t-1")
    hand.run_callbacks()
    hand.metadata(t=2)
    assert hand.phase() is MemberPhase.STABLE
    hand.metadata(t=3)
    assert hand.phase() is MemberPhase.PREPARING
    hand.callbacks_done()
    assert hand.join(3).reason == "the partitions of t have changed"


def test_a_topic_that_disappears_rejoins() -> None:
    hand = Hand(settings(), ("s", "t"))
    hand.metadata(s=1, t=1)
    hand.poll()
    hand.find()
    hand.join(leader="me", members={"me": encode_subscription(Subscription(("s", "t")))})
    hand.sync("s-0", "t-0")
    hand.run_callbacks()
    hand.metadata(s=1, t=0)
    assert hand.phase() is MemberPhase.PREPARING


# ---- static members ----


def described(*assigned: str, error: int = 0, state: str = "Stable") -> DescribeGroupsResponse:
    data = encode_assignment(Assignment(partitions(*assigned)))
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="h", member_metadata=b"", member_assignment=data
    )
    group = DescribedGroup(
        error_code=error,
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    return DescribeGroupsResponse(groups=[group])


def returned_leader(hand: Hand, protocol: str = "range") -> None:
    hand.poll()
    hand.find()
    subscription = encode_subscription(Subscription(("t",)))
    hand.join(5, leader="me", members={"me": subscription}, skip_assignment=True, protocol=protocol)
    assert hand.sync("t-0").assignments == []
    hand.run_callbacks()
    assert hand.phase() is MemberPhase.STABLE


def test_a_static_leader_that_is_back_assigns_nothing() -> None:
    hand = Hand(settings(group_instance_id="i"))
    returned_leader(hand)
    hand.answer(DescribeGroupsRequest, described("t-0", "t-1"))
    hand.metadata(t=2)
    assert hand.phase() is MemberPhase.STABLE
    hand.metadata(t=3)
    assert hand.phase() is MemberPhase.PREPARING


def test_partitions_added_while_the_static_leader_was_away_are_noticed() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.metadata(t=3)
    returned_leader(hand)
    hand.answer(DescribeGroupsRequest, described("t-0", "t-1"))
    assert hand.phase() is MemberPhase.PREPARING


def test_partitions_that_were_to_move_when_the_static_leader_left_get_an_owner() -> None:
    limits = {"session_timeout_ms": 10_000, "max_poll_interval_ms": 30_000}
    hand = Hand(settings(COOPERATIVE, group_instance_id="i", **limits))
    hand.metadata(t=3)
    returned_leader(hand, protocol=COOPERATIVE)
    hand.answer(DescribeGroupsRequest, described("t-0", "t-2"))
    for _ in range(13):
        hand.after(3_000)
        assert hand.kinds() == ["Heartbeat"], "the owner of t-1 may be about to give it up"
        hand.beat()
    hand.after(1_000)
    assert hand.kinds() == ["JoinGroup"]


def returned_follower(hand: Hand, *assigned: str) -> None:
    hand.poll()
    hand.find()
    hand.join(5)
    hand.sync(*assigned)
    hand.run_callbacks()
    assert hand.phase() is MemberPhase.STABLE


def test_a_static_member_that_is_back_with_a_topic_that_no_one_has_rejoins() -> None:
    hand = Hand(settings(group_instance_id="i"), ("s", "t"))
    returned_follower(hand, "t-0")
    assert "DescribeGroups" not in hand.kinds(), "it does not know yet whether s exists"
    hand.metadata(s=1, t=2)
    hand.answer(DescribeGroupsRequest, described("t-0", "t-1"))
    hand.run_callbacks()
    request = hand.join(6)
    assert request.reason == "no member was assigned partitions of s"
    hand.sync("s-0", "t-0")
    hand.run_callbacks()
    assert "DescribeGroups" not in hand.kinds()


def test_a_static_member_that_is_back_and_misses_nothing_stays() -> None:
    hand = Hand(settings(group_instance_id="i"), ("r", "s", "t"))
    hand.metadata(r=0, s=1, t=2)
    returned_follower(hand, "t-0")
    hand.answer(DescribeGroupsRequest, described("t-0", "t-1", "s-0"))
    assert hand.phase() is MemberPhase.STABLE


def test_the_look_at_the_assignment_is_repeated() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.metadata(t=2)
    returned_leader(hand)
    hand.answer(DescribeGroupsRequest, described(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    hand.after(100)
    hand.fail(DescribeGroupsRequest, NetworkError())
    hand.after(200)
    hand.find()
    hand.answer(DescribeGroupsRequest, described(error=ErrorCode.NOT_COORDINATOR))
    hand.after(1_000)
    hand.find()
    hand.answer(DescribeGroupsRequest, described("t-0", "t-1"))
    hand.metadata(t=2)
    assert hand.phase() is MemberPhase.STABLE


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_a_look_that_is_refused_changes_nothing(state: str) -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.metadata(t=2)
    returned_leader(hand)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED if state == "Stable" else 0
    hand.answer(DescribeGroupsRequest, described(error=error, state=state))
    hand.metadata(t=2)
    assert hand.phase() is MemberPhase.STABLE
    assert "DescribeGroups" not in hand.kinds()


def test_fenced_by_a_heartbeat() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.settle("t-0")
    hand.after(3_000)
    hand.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(hand.membership.error, FencedInstanceIdError)
    lost, failed = hand.events
    assert isinstance(lost, Lost) and isinstance(failed, Failed)
    assert not hand.sends, "a static member never leaves"
    with pytest.raises(FencedInstanceIdError):
        hand.membership.commit_identity()
