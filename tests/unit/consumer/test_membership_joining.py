"""Becoming a member: finding the coordinator, joining, leading, syncing, and the errors on the way."""

from __future__ import annotations

import pytest

from millstream.client.targets import AnyNode, CoordinatorOf
from millstream.consumer.assignors.base import Assignment, Assignor, ClusterView, Members, Subscription
from millstream.consumer.assignors.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import (
    Assigned,
    CoordinatorFound,
    CoordinatorLost,
    Failed,
    Joined,
    TopicsWatched,
    Wait,
)
from millstream.errors import (
    ErrorCode,
    InconsistentGroupProtocolError,
    MillstreamTimeoutError,
    NetworkError,
    UnsupportedVersionError,
)
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.unit.consumer.group_harness import Hand, partitions, settings


def subscription(*topics: str, owned: tuple[str, ...] = ()) -> bytes:
    return encode_subscription(Subscription(topics, owned_partitions=partitions(*owned)))


def test_nothing_is_sent_before_the_first_poll() -> None:
    hand = Hand(settings())
    hand.step()
    assert not hand.sends
    assert hand.membership.waiting().what is Wait.POLL
    assert hand.membership.next_wake_ms(hand.now_ms) is None


def test_first_join() -> None:
    hand = Hand(settings("range", "roundrobin", max_poll_interval_ms=60_000, client_rack="r1"), ("t", "s"))
    hand.poll()
    assert hand.targets() == [AnyNode()]
    hand.find()
    assert hand.event(CoordinatorFound).node.node_id == 7
    assert hand.targets() == [CoordinatorOf("g")]
    assert hand.sends[0].timeout_ms == 65_000
    first = hand.join(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 45_000, 60_000)
    assert [protocol.name for protocol in first.protocols] == ["range", "roundrobin"]
    told = decode_subscription(first.protocols[0].metadata)
    assert (told.topics, told.rack_id, told.owned_partitions, told.generation_id) == (
        ("s", "t"),
        "r1",
        (),
        -1,
    )
    second = hand.join(generation=3)
    assert second.member_id == "me"
    joined = hand.event(Joined)
    assert (joined.generation_id, joined.member_id, joined.leads) == (3, "me", False)
    assert hand.membership.waiting().what is Wait.LEADER
    sync = hand.sync("t-1", "s-0")
    assert (sync.generation_id, sync.member_id, sync.protocol_name, sync.assignments) == (
        3,
        "me",
        "range",
        [],
    )
    assigned = hand.event(Assigned)
    assert assigned.added == assigned.partitions == partitions("s-0", "t-1")
    assert not hand.membership.assignment
    hand.callbacks_done()
    assert hand.membership.assignment == set(partitions("s-0", "t-1"))
    assert hand.phase() is MemberPhase.STABLE
    assert hand.membership.waiting().what is Wait.NOTHING


def test_the_leader_assigns() -> None:
    hand = Hand(settings(), ("t",))
    hand.metadata(t=3, s=1)
    hand.poll()
    hand.find()
    hand.join(leader="me", members={"me": subscription("t"), "you": subscription("t", "s")})
    assert hand.event(TopicsWatched).topics == ("s", "t")
    assert hand.membership.watched_topics == {"s", "t"}
    sync = hand.sync("t-0", "t-1")
    shares = {each.member_id: decode_assignment(each.assignment).partitions for each in sync.assignments}
    assert shares == {"me": partitions("t-0", "t-1"), "you": partitions("s-0", "t-2")}


def test_the_leader_waits_for_metadata_and_beats_meanwhile() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(leader="me", members={"me": subscription("t"), "you": subscription("s")})
    assert hand.phase() is MemberPhase.ASSIGNING
    assert hand.membership.waiting().what is Wait.METADATA
    hand.after(3_000)
    hand.beat()
    hand.metadata(t=1)
    assert hand.phase() is MemberPhase.ASSIGNING, "nothing is known about s yet"
    hand.metadata(t=1, s=0)
    hand.sync("t-0")
    assert hand.phase() is MemberPhase.SETTLING


def test_the_leader_goes_along_with_another_rebalance() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(leader="me", members={"me": subscription("t")})
    hand.after(3_000)
    hand.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert hand.phase() is MemberPhase.JOINING
    assert hand.join().reason == "the group began another rebalance"


def test_a_member_that_sends_nonsense_gets_nothing() -> None:
    hand = Hand(settings())
    hand.metadata(t=2)
    hand.poll()
    hand.find()
    hand.join(leader="me", members={"me": subscription("t"), "odd": b"?"})
    shares = {each.member_id: decode_assignment(each.assignment) for each in hand.sync("t-0").assignments}
    assert shares == {"me": Assignment(partitions("t-0", "t-1")), "odd": Assignment()}


class Greedy(Assignor):
    name = "greedy"

    def assign(self, cluster: ClusterView, members: Members) -> dict[str, Assignment]:
        raise ZeroDivisionError("oops")


def test_an_assignor_that_fails_is_told_and_the_group_is_left() -> None:
    hand = Hand(settings(Greedy()))
    hand.metadata(t=2)
    hand.poll()
    hand.find()
    hand.join(leader="me", protocol="greedy", members={"me": subscription("t")})
    error = hand.event(Failed).error
    assert "greedy" in str(error) and "oops" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert hand.take(LeaveGroupRequest)[1].members[0].member_id == "me"


def test_lookups_back_off() -> None:
    hand = Hand(settings())
    hand.poll()
    for delay_ms in (100, 200, 400, 800, 1_000, 1_000):
        hand.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert hand.membership.next_wake_ms(hand.now_ms) == hand.now_ms + delay_ms
        hand.after(delay_ms - 1)
        assert not hand.sends
        hand.after(1)
    assert hand.membership.waiting().what is Wait.COORDINATOR
    hand.fail(FindCoordinatorRequest, MillstreamTimeoutError())
    hand.after(1_000)
    hand.find()
    assert hand.kinds() == ["JoinGroup"]


def test_old_lookups() -> None:
    hand = Hand(settings())
    hand.poll()
    token, request = hand.take(FindCoordinatorRequest, version=2)
    assert (request.key, request.coordinator_keys) == ("g", [])
    hand.membership.receive(token, FindCoordinatorResponse(node_id=3, host="h", port=5), hand.now_ms)
    assert hand.membership.coordinator is not None
    assert (hand.membership.coordinator.node_id, hand.membership.coordinator.port) == (3, 5)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_join_goes_to_the_new_coordinator(code: ErrorCode) -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(error=code)
    hand.event(CoordinatorLost)
    hand.after(100)
    hand.find(node_id=8)
    hand.join()
    assert hand.phase() is MemberPhase.SYNCING


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_join_is_repeated(code: ErrorCode) -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    for delay_ms in (100, 200, 400):
        hand.join(error=code)
        hand.after(delay_ms - 1)
        assert not hand.sends
        assert hand.membership.waiting().what is Wait.RETRY
        hand.after(1)
    hand.join()


def test_a_join_without_an_answer_is_repeated_with_its_id() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    hand.fail(JoinGroupRequest, NetworkError())
    hand.after(100)
    hand.find()
    assert hand.join().member_id == "me"


def test_a_sync_without_an_answer_is_repeated_in_its_generation() -> None:
    """A broker that restarts must not cost the group a rebalance."""
    hand = Hand(settings())
    hand.metadata(t=1)
    hand.poll()
    hand.find()
    hand.join(generation=4, leader="me", members={"me": subscription("t")})
    first = hand.fail(SyncGroupRequest, NetworkError())
    hand.after(100)
    hand.find()
    again = hand.sync("t-0")
    assert again == first
    assert again.generation_id == 4


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_sync_that_comes_too_late(code: ErrorCode, member_id: str) -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    hand.sync(error=code)
    assert hand.membership.metadata.generation_id == -1
    hand.after(100)
    assert hand.join().member_id == member_id


def test_a_sync_into_the_next_rebalance() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join(generation=4)
    hand.sync(error=ErrorCode.REBALANCE_IN_PROGRESS)
    request = hand.join(generation=5)
    assert request.member_id == "me"
    assert decode_subscription(request.protocols[0].metadata).generation_id == 4


def test_a_sync_of_another_assignor() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    response = SyncGroupResponse(error_code=0, protocol_name="roundrobin", assignment=b"")
    hand.answer(SyncGroupRequest, response)
    assert isinstance(hand.event(Failed).error, InconsistentGroupProtocolError)


def test_a_sync_with_nonsense_in_it() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    hand.answer(SyncGroupRequest, SyncGroupResponse(error_code=0, assignment=b"?"))
    assert hand.phase() is MemberPhase.FAILED


def test_an_assignment_that_was_not_asked_for() -> None:
    """The member rejoins; when that does not help, the user hears of it."""
    hand = Hand(settings())
    hand.poll()
    hand.find()
    for _ in range(3):
        hand.join()
        hand.sync("other-0")
        assert hand.phase() is MemberPhase.JOINING
    hand.join()
    hand.sync("other-0")
    assert "other" in str(hand.event(Failed).error)


def test_a_pattern_takes_topics_that_it_has_not_heard_of() -> None:
    hand = Hand(settings())
    hand.membership.set_subscription(["t1"], accepts=lambda topic: topic.startswith("t"))
    hand.poll()
    hand.find()
    hand.refresh()
    hand.join()
    hand.sync("t2-0")
    assert hand.event(Assigned).partitions == partitions("t2-0")


def test_a_pattern_looks_for_new_topics_before_each_join() -> None:
    hand = Hand(settings())
    hand.membership.set_subscription(["t1"], accepts=lambda topic: topic.startswith("t"))
    hand.poll()
    hand.find()
    assert hand.kinds() == [] and hand.membership.next_wake_ms(hand.now_ms) is None
    hand.refresh()
    hand.join()
    hand.sync("t1-0")
    hand.callbacks_done()
    hand.membership.set_subscription(["t1", "t2"], accepts=lambda topic: topic.startswith("t"))
    hand.poll()
    assert hand.phase() is MemberPhase.STABLE and "JoinGroup" not in hand.kinds()
    hand.refresh()
    assert hand.phase() is MemberPhase.PREPARING


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join(version: int) -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    _, request = hand.take(JoinGroupRequest, version)
    decoded = JoinGroupRequest.decode(request.encode(version), version)
    assert (decoded.group_id, decoded.protocols) == ("g", request.protocols)


def test_static_membership_needs_a_broker_that_knows_it() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.poll()
    hand.find()
    send = hand.sends.pop()
    with pytest.raises(UnsupportedVersionError, match=r"group_instance_id 'i' needs .*Kafka 2.3") as caught:
        send.build(4)
    hand.membership.failed(send.token, caught.value, hand.now_ms)
    hand.step()
    assert hand.event(Failed).error is caught.value


def test_sync_and_heartbeat_need_it_too() -> None:
    hand = Hand(settings(group_instance_id="i"))
    hand.poll()
    hand.find()
    hand.join()
    with pytest.raises(UnsupportedVersionError):
        hand.sends[0].build(2)
    hand.sync("t-0")
    hand.callbacks_done()
    hand.after(3_000)
    with pytest.raises(UnsupportedVersionError):
        hand.sends[0].build(2)
    assert hand.take(HeartbeatRequest)[1].group_instance_id == "i"


def test_an_empty_assignment() -> None:
    hand = Hand(settings())
    hand.poll()
    hand.find()
    hand.join()
    hand.answer(SyncGroupRequest, SyncGroupResponse(error_code=0, assignment=b""))
    assert hand.event(Assigned).partitions == ()
    hand.callbacks_done()
    assert hand.phase() is MemberPhase.STABLE


def test_on_assignment_that_fails() -> None:
    class Moody(Greedy):
        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            raise KeyError(generation_id)

    hand = Hand(settings(Moody()))
    hand.poll()
    hand.find()
    hand.join(protocol="greedy")
    hand.answer(SyncGroupRequest, SyncGroupResponse(error_code=0, assignment=encode_assignment(Assignment())))
    assert "on_assignment" in str(hand.event(Failed).error)
