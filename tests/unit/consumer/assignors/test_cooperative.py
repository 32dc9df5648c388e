"""CooperativeSticky: a partition changes hands only after its owner has given it up."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings

from millstream.consumer.assignors import (
    Assignment,
    ClusterView,
    CooperativeStickyAssignor,
    Members,
    RebalanceProtocol,
    StickyAssignor,
    Subscription,
)
from millstream.consumer.assignors.user_data import encode_cooperative, encode_sticky
from millstream.model import TopicPartition
from tests.unit.consumer.assignors.groups import (
    check_complete,
    check_placement,
    having,
    loads,
    members,
    outcome,
    partitions,
    rebalancing,
    with_owned,
)


def taken_while_owned(members: Members, result: Mapping[str, Assignment]) -> list[TopicPartition]:
    """The partitions that an assignment takes from one member and gives to another at once: must be none."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, subscription in members.items():
        given = set(result.get(member_id, Assignment()).partitions)
        added |= given.difference(subscription.owned_partitions)
        revoked |= set(subscription.owned_partitions) - given
    return sorted(added & revoked)


Situation = tuple[ClusterView, dict[str, Subscription]]


def test_a_partition_that_moves_is_withheld_for_one_round() -> None:
    cluster = ClusterView.of({"t": 4})
    group = having(members(c0="t", c1="t"), 1, c0="t-0 t-1 t-2 t-3")
    first = outcome(CooperativeStickyAssignor(), cluster, group)
    assert first == {"c0": "t-0 t-1", "c1": ""}
    second = outcome(CooperativeStickyAssignor(), cluster, having(group, 2, **first))
    assert second == {"c0": "t-0 t-1", "c1": "t-2 t-3"}


def test_partitions_of_a_member_that_left_are_given_at_once() -> None:
    group = having(members(c0="t", c1="t"), 1, c0="t-0", c1="t-1")
    cluster = ClusterView.of({"t": 4})
    assert outcome(CooperativeStickyAssignor(), cluster, group) == {"c0": "t-0 t-2", "c1": "t-1 t-3"}


def test_a_partition_claimed_twice_in_one_generation_goes_to_nobody_until_both_gave_it_up() -> None:
    group = having(members(c0="t", c1="t"), 1, c0="t-0 t-1", c1="t-1 t-2")
    cluster = ClusterView.of({"t": 3})
    first = outcome(CooperativeStickyAssignor(), cluster, group)
    assert first == {"c0": "t-0", "c1": "t-2"}
    second = outcome(CooperativeStickyAssignor(), cluster, having(group, 2, **first))
    assert second == {"c0": "t-0 t-1", "c1": "t-2"}


def test_a_claim_from_an_older_generation_does_not_take_the_partition_from_its_owner() -> None:
    group = having(members(c0="t", c1="t"), 5, c0="t-0 t-1", c1="t-0 t-1")
    group["c0"] = with_owned(group["c0"], partitions("t-0 t-1"), 4)
    # One of the two must move to c0, which believes that it has it: c1 is to give it up first all the same.
    assert outcome(CooperativeStickyAssignor(), ClusterView.of({"t": 2}), group) == {"c0": "", "c1": "t-0"}


def test_a_topic_that_its_owner_no_longer_wants_is_withheld_too() -> None:
    group = having(members(c0="t0", c1="t0 t1"), 1, c0="t0-0 t1-0", c1="t0-1")
    cluster = ClusterView.of({"t0": 2, "t1": 1})
    first = outcome(CooperativeStickyAssignor(), cluster, group)
    assert first == {"c0": "t0-0", "c1": "t0-1"}
    second = outcome(CooperativeStickyAssignor(), cluster, having(group, 2, **first))
    assert second == {"c0": "t0-0", "c1": "t0-1 t1-0"}


def test_members_too_old_to_say_their_generation_say_it_in_the_user_data() -> None:
    cluster = ClusterView.of({"t": 2})
    mine = partitions("t-0")

    def claims(first: bytes, second: bytes) -> dict[str, str]:
        group = {"c0": Subscription(("t",), first, mine), "c1": Subscription(("t",), second, mine)}
        return outcome(CooperativeStickyAssignor(), cluster, group)

    java, librdkafka = encode_cooperative, lambda generation: encode_sticky(mine, generation)
    for encode in (java, librdkafka):
        assert claims(encode(3), encode(4)) == {"c0": "t-1", "c1": "t-0"}
        assert claims(encode(4), encode(3)) == {"c0": "t-0", "c1": "t-1"}
        assert claims(encode(4), encode(4)) == {"c0": "", "c1": "t-1"}
        assert claims(b"", encode(4)) == {"c0": "t-1", "c1": "t-0"}


def test_an_assignor_that_takes_without_waiting_is_found_out() -> None:
    cluster = ClusterView.of({"t": 4})
    group = having(members(c0="t", c1="t"), 1, c0="t-0 t-1 t-2 t-3")
    assert taken_while_owned(group, StickyAssignor().assign(cluster, group)) == list(partitions("t-2 t-3"))
    assert taken_while_owned(group, {"c1": Assignment(partitions("t-1"))}) == list(partitions("t-1"))
    assert taken_while_owned(group, {}) == []


def test_what_a_member_sends() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment(partitions("t-0")), 7)
    assert assignor.subscription_user_data(["t"]) == b"\x00\x00\x00\x07"
    assert assignor.protocols == (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)


def next_round(group: dict[str, Subscription], owned: dict[str, Assignment]) -> dict[str, Subscription]:
    return {
        member_id: with_owned(subscription, owned[member_id].partitions, 10)
        for member_id, subscription in group.items()
    }


@settings(max_examples=200, deadline=None)
@given(rebalancing())
def test_nothing_is_taken_over_while_owned_and_two_rounds_settle_it(situation: Situation) -> None:
    cluster, group = situation
    first = dict(CooperativeStickyAssignor().assign(cluster, group))
    check_placement(cluster, group, first)
    owner = {
        partition: member_id
        for member_id, subscription in group.items()
        for partition in subscription.owned_partitions
    }
    assert taken_while_owned(group, first) == []
    for member_id, assignment in first.items():
        assert all(owner.get(partition, member_id) == member_id for partition in assignment.partitions)

    group = next_round(group, first)
    second = dict(CooperativeStickyAssignor().assign(cluster, group))
    check_complete(cluster, group, second)
    for member_id, assignment in first.items():
        assert set(assignment.partitions) <= set(second[member_id].partitions)

    assert CooperativeStickyAssignor().assign(cluster, next_round(group, second)) == second


@settings(deadline=None)
@given(rebalancing())
def test_in_the_end_loads_are_what_the_eager_assignor_makes_them(situation: Situation) -> None:
    cluster, group = situation
    first = dict(CooperativeStickyAssignor().assign(cluster, group))
    second = CooperativeStickyAssignor().assign(cluster, next_round(group, first))
    assert loads(second) == loads(StickyAssignor().assign(cluster, group))
