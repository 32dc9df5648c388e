"""Sticky: even loads first, and then as many partitions as possible stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumer.assignors import (
    Assignment,
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    Members,
    StickyAssignor,
    Subscription,
)
from millstream.consumer.assignors.protocol import decode_subscription, encode_subscription
from millstream.consumer.assignors.sticky import CONTESTED, settle_claims
from millstream.model import TopicPartition
from tests.unit.consumer.assignors.groups import (
    check_complete,
    having,
    kept,
    loads,
    members,
    outcome,
    partitions,
    rebalancing,
    wanted,
    with_owned,
)


def test_the_first_assignment_is_dealt_like_round_robin() -> None:
    cluster = ClusterView.of({"t0": 2, "t1": 2, "t2": 2, "t3": 2})
    group = members(c0="t0 t1 t2 t3", c1="t0 t1 t2 t3", c2="t0 t1 t2 t3")
    assert outcome(StickyAssignor(), cluster, group) == {
        "c0": "t0-0 t1-1 t3-0",
        "c1": "t0-1 t2-0 t3-1",
        "c2": "t1-0 t2-1",
    }


def test_when_a_member_leaves_only_its_partitions_move() -> None:
    cluster = ClusterView.of({"t0": 2, "t1": 2, "t2": 2, "t3": 2})
    group = having(members(c0="t0 t1 t2 t3", c2="t0 t1 t2 t3"), 1, c0="t0-0 t1-1 t3-0", c2="t1-0 t2-1")
    assert outcome(StickyAssignor(), cluster, group) == {
        "c0": "t0-0 t0-1 t1-1 t3-0",
        "c2": "t1-0 t2-0 t2-1 t3-1",
    }


def test_members_that_want_different_topics_still_get_even_loads() -> None:
    cluster = ClusterView.of({"t0": 1, "t1": 2, "t2": 3})
    group = members(c0="t0", c1="t0 t1", c2="t0 t1 t2")
    first = {"c0": "t0-0", "c1": "t1-0 t1-1", "c2": "t2-0 t2-1 t2-2"}
    assert outcome(StickyAssignor(), cluster, group) == first
    rest = having(members(c1="t0 t1", c2="t0 t1 t2"), 1, c1=first["c1"], c2=first["c2"])
    assert outcome(StickyAssignor(), cluster, rest) == {"c1": "t0-0 t1-0 t1-1", "c2": first["c2"]}


def test_a_newcomer_takes_its_share_and_no_more() -> None:
    cluster = ClusterView.of({"t": 6})
    group = having(members(c0="t", c1="t", c2="t"), 1, c0="t-0 t-2 t-4", c1="t-1 t-3 t-5")
    assert outcome(StickyAssignor(), cluster, group) == {"c0": "t-0 t-2", "c1": "t-1 t-3", "c2": "t-4 t-5"}


def test_added_partitions_go_to_those_with_the_least() -> None:
    group = having(members(c0="t", c1="t", c2="t"), 1, c0="t-0", c1="t-1", c2="t-2")
    cluster = ClusterView.of({"t": 5})
    assert outcome(StickyAssignor(), cluster, group) == {"c0": "t-0 t-3", "c1": "t-1 t-4", "c2": "t-2"}


def test_what_a_member_no_longer_wants_or_what_no_longer_exists_is_not_kept() -> None:
    group = having(members(c0="t0", c1="t0 t1"), 1, c0="t0-0 t1-0 t0-9", c1="t0-1 t1-1 gone-0")
    cluster = ClusterView.of({"t0": 2, "t1": 2})
    assert outcome(StickyAssignor(), cluster, group) == {"c0": "t0-0 t0-1", "c1": "t1-0 t1-1"}


def test_partitions_move_on_through_a_third_member_when_that_evens_the_loads() -> None:
    cluster = ClusterView.of({"t0": 3, "t1": 1})
    group = having(members(c0="t0", c1="t0 t1", c2="t1"), 1, c0="t0-0 t0-1 t0-2", c1="t1-0")
    result = StickyAssignor().assign(cluster, group)
    assert loads(result) == [1, 1, 2]
    assert result["c2"].partitions == partitions("t1-0")


def test_racks_come_before_keeping_and_after_even_loads() -> None:
    cluster = ClusterView({"t": (frozenset("a"), frozenset("b"), frozenset("a"), frozenset("b"))})
    near = having(members(c0="t", c1="t"), 1, c0="t-0 t-1", c1="t-2 t-3")
    near = {m: replace(s, rack_id=rack) for (m, s), rack in zip(near.items(), "ab", strict=True)}
    assert outcome(StickyAssignor(), cluster, near) == {"c0": "t-0 t-2", "c1": "t-1 t-3"}
    both_in_a = {m: replace(s, rack_id="a") for m, s in near.items()}
    assert outcome(StickyAssignor(), cluster, both_in_a) == {"c0": "t-0 t-1", "c1": "t-2 t-3"}


# ---- whose claim counts ----


@pytest.mark.parametrize(
    ("claims", "owner"),
    [
        ([("t-0", 3), ("t-0", 4)], 1),
        ([("t-0", 4), ("t-0", 3)], 0),
        ([("t-0", 3), ("t-0", 3)], CONTESTED),
        ([("t-0", -1), ("t-0", -1)], CONTESTED),
        ([("t-0", -1), ("t-0", 0)], 1),
        ([("t-0", 3), ("t-0", 3), ("t-0", 4)], 2),
        ([("t-0", 4), ("t-0", 3), ("t-0", 3)], 0),
        ([("t-0", 4), ("t-0", 3), ("t-0", 4)], CONTESTED),
        ([("t-0 t-0", 3)], 0),
    ],
)
def test_the_highest_generation_counts_and_a_tie_counts_for_nobody(
    claims: Sequence[tuple[str, int]], owner: int
) -> None:
    owners = settle_claims([(partitions(text), since) for text, since in claims])
    assert owners == {TopicPartition("t", 0): owner}


def test_a_member_back_from_an_older_generation_keeps_what_nobody_took_meanwhile() -> None:
    group = having(members(c0="t", c1="t"), 5, c0="t-0 t-1", c1="t-1 t-2")
    group["c0"] = with_owned(group["c0"], partitions("t-0 t-1"), 3)
    assert outcome(StickyAssignor(), ClusterView.of({"t": 3}), group) == {"c0": "t-0", "c1": "t-1 t-2"}


def test_unreadable_user_data_costs_stickiness_and_nothing_else() -> None:
    group = {"c0": Subscription(("t",), user_data=b"\x7f\xff\xff\xff?"), "c1": Subscription(("t",), b"")}
    assert outcome(StickyAssignor(), ClusterView.of({"t": 2}), group) == {"c0": "t-0", "c1": "t-1"}


# ---- properties ----


def most_that_can_stay(cluster: ClusterView, group: Members) -> int:
    """Of members that want the same topics: each keeps up to its share, and some one more."""
    everything = wanted(cluster, group)
    share, extras = divmod(len(everything), len(group))
    counts = [len(everything.intersection(s.owned_partitions)) for s in group.values()]
    return sum(min(count, share) for count in counts) + min(extras, sum(count > share for count in counts))


@settings(deadline=None)
@given(rebalancing(equal=True, racks=False))
def test_equal_subscribers_get_even_shares_and_keep_all_they_can(
    situation: tuple[ClusterView, dict[str, Subscription]],
) -> None:
    cluster, group = situation
    result = StickyAssignor().assign(cluster, group)
    check_complete(cluster, group, result)
    assert loads(result)[-1] - loads(result)[0] <= 1
    assert kept(group, result) == most_that_can_stay(cluster, group)


@settings(deadline=None)
@given(rebalancing())
def test_nobody_could_take_from_someone_with_two_more(
    situation: tuple[ClusterView, dict[str, Subscription]],
) -> None:
    cluster, group = situation
    result = StickyAssignor().assign(cluster, group)
    check_complete(cluster, group, result)
    for member_id, subscription in group.items():
        for other in group:
            if len(result[other].partitions) >= len(result[member_id].partitions) + 2:
                takable = {p for p in result[other].partitions if p.topic in subscription.topics}
                assert not takable


@settings(deadline=None)
@given(rebalancing())
def test_an_assignment_is_repeated_as_it_is(situation: tuple[ClusterView, dict[str, Subscription]]) -> None:
    cluster, group = situation
    result = StickyAssignor().assign(cluster, group)
    again = {
        member_id: with_owned(subscription, result[member_id].partitions, 9)
        for member_id, subscription in reversed(group.items())
    }
    assert StickyAssignor().assign(cluster, again) == result


# ---- a life of joining and leaving, through the bytes that members really send ----


class Group:
    """Members with assignors of their own, that meet only in what they send."""

    def __init__(self, assignor: type[Assignor]) -> None:
        self._assignor = assignor
        self._members: dict[str, Assignor] = {}
        self.owned: dict[str, tuple[TopicPartition, ...]] = {}
        self._generation = 0

    def rebalance(self, cluster: ClusterView, member_ids: Sequence[str]) -> dict[str, Assignment]:
        self._members = {
            member_id: self._members.get(member_id) or self._assignor() for member_id in member_ids
        }
        eager = self._assignor is StickyAssignor
        group = {
            member_id: decode_subscription(
                encode_subscription(
                    Subscription(
                        tuple(cluster.racks),
                        user_data=assignor.subscription_user_data(tuple(cluster.racks)),
                        owned_partitions=() if eager else self.owned.get(member_id, ()),
                    ),
                    version=1,
                )
            )
            for member_id, assignor in self._members.items()
        }
        result = dict(next(iter(self._members.values())).assign(cluster, group))
        self._generation += 1
        for member_id, assignor in self._members.items():
            assignor.on_assignment(result[member_id], self._generation)
        self.owned = {member_id: assignment.partitions for member_id, assignment in result.items()}
        return result


lives = st.lists(
    st.tuples(st.sets(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(lives)
def test_members_come_and_go(life: list[tuple[set[str], int]]) -> None:
    eager, cooperative = Group(StickyAssignor), Group(CooperativeStickyAssignor)
    for names, count in life:
        cluster = ClusterView.of({"t0": count, "t1": 3})
        for group in (eager, cooperative):
            before = {
                name: {partition for partition in group.owned.get(name, ()) if cluster.has(partition)}
                for name in names
            }
            group.rebalance(cluster, sorted(names))
            result = group.rebalance(cluster, sorted(names))
            assert sum(loads(result)) == count + 3
            assert loads(result)[-1] - loads(result)[0] <= 1
            share, extras = divmod(count + 3, len(names))
            possible = sum(min(len(had), share) for had in before.values())
            possible += min(extras, sum(len(had) > share for had in before.values()))
            assert (
                sum(len(had.intersection(result[name].partitions)) for name, had in before.items())
                == possible
            )
