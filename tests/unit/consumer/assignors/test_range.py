"""Range: runs of each topic, static members first, equal numbers together, near racks where they matter."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumer.assignors import ClusterView, RangeAssignor, Subscription
from tests.unit.consumer.assignors.groups import check_complete, clusters, groups, members, outcome

TWO_TOPICS = ClusterView.of({"t0": 3, "t1": 3})


def test_each_topic_is_cut_into_runs() -> None:
    assert outcome(RangeAssignor(), TWO_TOPICS, members(c0="t0 t1", c1="t0 t1")) == {
        "c0": "t0-0 t0-1 t1-0 t1-1",
        "c1": "t0-2 t1-2",
    }


def test_topics_are_cut_among_their_own_subscribers_only() -> None:
    group = members(c0="t0", c1="t0 t1", c2="t0", c3="nothing-here")
    assert outcome(RangeAssignor(), ClusterView.of({"t0": 3, "t1": 2}), group) == {
        "c0": "t0-0",
        "c1": "t0-1 t1-0 t1-1",
        "c2": "t0-2",
        "c3": "",
    }


def test_more_members_than_partitions_leaves_the_last_ones_idle() -> None:
    group = members(c0="t", c1="t", c2="t")
    assert outcome(RangeAssignor(), ClusterView.of({"t": 2}), group) == {"c0": "t-0", "c1": "t-1", "c2": ""}


def test_static_members_keep_their_place_when_their_member_ids_change() -> None:
    before = {"x": static("i1"), "y": static("i2"), "dynamic": Subscription(("t",))}
    after = {"b": static("i2"), "c": static("i1"), "a": Subscription(("t",))}
    cluster = ClusterView.of({"t": 3})
    assert outcome(RangeAssignor(), cluster, before) == {"x": "t-0", "y": "t-1", "dynamic": "t-2"}
    assert outcome(RangeAssignor(), cluster, after) == {"c": "t-0", "b": "t-1", "a": "t-2"}


def static(instance_id: str) -> Subscription:
    return Subscription(("t",), group_instance_id=instance_id)


def in_racks(**racks: str) -> dict[str, Subscription]:
    return {member_id: Subscription(("t0", "t1"), rack_id=rack) for member_id, rack in racks.items()}


def replicas(*racks: str) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, racks))


def test_partitions_go_to_members_in_the_rack_of_a_replica() -> None:
    cluster = ClusterView({"t0": replicas("c", "b", "a")})
    assert outcome(RangeAssignor(), cluster, in_racks(c0="a", c1="b", c2="c")) == {
        "c0": "t0-2",
        "c1": "t0-1",
        "c2": "t0-0",
    }


def test_even_counts_come_before_racks() -> None:
    cluster = ClusterView({"t0": replicas("a", "a", "a", "b")})
    result = RangeAssignor().assign(cluster, in_racks(c0="b", c1="a"))
    assert [len(result[member_id].partitions) for member_id in ("c0", "c1")] == [2, 2]


def test_equal_numbers_of_like_topics_stay_together_rather_than_near() -> None:
    apart = ClusterView({"t0": replicas("a", "b"), "t1": replicas("b", "a")})
    together = ClusterView({"t0": replicas("b", "a"), "t1": replicas("b", "a")})
    group = in_racks(c0="a", c1="b")
    assert outcome(RangeAssignor(), apart, group) == {"c0": "t0-0 t1-0", "c1": "t0-1 t1-1"}
    assert outcome(RangeAssignor(), together, group) == {"c0": "t0-1 t1-1", "c1": "t0-0 t1-0"}


def test_racks_change_nothing_when_every_partition_is_in_all_of_them() -> None:
    cluster = ClusterView({"t0": replicas("ba", "ab")})
    assert outcome(RangeAssignor(), cluster, in_racks(c0="b", c1="a")) == {"c0": "t0-0", "c1": "t0-1"}


def test_partitions_are_listed_in_order_however_they_were_placed() -> None:
    cluster = ClusterView({"t0": replicas("b", "a", "a")})
    assert outcome(RangeAssignor(), cluster, in_racks(c0="a")) == {"c0": "t0-0 t0-1 t0-2"}


@settings(deadline=None)
@given(st.data())
def test_every_topic_is_divided_evenly_and_completely(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    group = data.draw(groups(cluster))
    result = RangeAssignor().assign(cluster, group)
    check_complete(cluster, group, result)
    for topic in cluster.racks:
        counts = [
            sum(partition.topic == topic for partition in result[member_id].partitions)
            for member_id, subscription in group.items()
            if topic in subscription.topics
        ]
        assert not counts or max(counts) - min(counts) <= 1


@settings(deadline=None)
@given(st.data())
def test_like_topics_are_divided_alike(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    group = data.draw(groups(cluster, equal=True))
    result = RangeAssignor().assign(cluster, group)
    for assignment in result.values():
        numbers = {
            topic: [partition.partition for partition in assignment.partitions if partition.topic == topic]
            for topic in cluster.racks
        }
        for topic, other in [
            (a, b) for a in numbers for b in numbers if cluster.count(a) == cluster.count(b)
        ]:
            assert numbers[topic] == numbers[other] or not is_wanted(group, topic, other)


def is_wanted(group: dict[str, Subscription], *topics: str) -> bool:
    return all(topic in subscription.topics for subscription in group.values() for topic in topics)


@settings(deadline=None)
@given(st.data())
def test_the_order_of_members_and_topics_does_not_matter(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    group = data.draw(groups(cluster))
    shuffled = {
        member_id: replace(subscription, topics=tuple(data.draw(st.permutations(subscription.topics))))
        for member_id, subscription in reversed(group.items())
    }
    assert RangeAssignor().assign(cluster, group) == RangeAssignor().assign(cluster, shuffled)
