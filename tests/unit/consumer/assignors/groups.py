"""Groups for the assignors' tests: short notations, random ones, and what must hold of every assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from millstream.consumer.assignors import Assignment, Assignor, ClusterView, Members, Subscription
from millstream.consumer.assignors.user_data import encode_sticky
from millstream.model import TopicPartition


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """``"t0-1 t1-0"`` as partitions."""
    pairs = (word.rsplit("-", 1) for word in text.split())
    return tuple(TopicPartition(topic, int(number)) for topic, number in pairs)


def members(**topics: str) -> dict[str, Subscription]:
    """``members(c0="t0 t1")``: each member's topics."""
    return {member_id: Subscription(tuple(names.split())) for member_id, names in topics.items()}


def having(group: Members, generation: int, **owned: str) -> dict[str, Subscription]:
    """The group with what members had in a generation, told in both ways: for sticky and for cooperative."""
    return {
        member_id: with_owned(subscription, partitions(owned.get(member_id, "")), generation)
        for member_id, subscription in group.items()
    }


def with_owned(
    subscription: Subscription, owned: tuple[TopicPartition, ...], generation: int
) -> Subscription:
    return replace(
        subscription,
        owned_partitions=owned,
        generation_id=generation,
        user_data=encode_sticky(owned, generation) if owned else None,
    )


def outcome(assignor: Assignor, cluster: ClusterView, group: Members) -> dict[str, str]:
    """What each member gets, as text."""
    result = assignor.assign(cluster, group)
    return {member_id: " ".join(map(str, result[member_id].partitions)) for member_id in group}


def wanted(cluster: ClusterView, group: Members) -> set[TopicPartition]:
    """Every partition that somebody subscribed to."""
    topics = {topic for subscription in group.values() for topic in subscription.topics}
    return {partition for topic in topics for partition in cluster.partitions(topic)}


def check_placement(cluster: ClusterView, group: Members, result: Mapping[str, Assignment]) -> None:
    """Only subscribed members get partitions, and no partition goes to two of them."""
    assert result.keys() == group.keys()
    times = Counter(partition for assignment in result.values() for partition in assignment.partitions)
    assert all(count == 1 for count in times.values())
    for member_id, assignment in result.items():
        assert {partition.topic for partition in assignment.partitions} <= set(group[member_id].topics)
        assert all(map(cluster.has, assignment.partitions))


def check_complete(cluster: ClusterView, group: Members, result: Mapping[str, Assignment]) -> None:
    """Besides, every partition that somebody wants goes to somebody."""
    check_placement(cluster, group, result)
    given = {partition for assignment in result.values() for partition in assignment.partitions}
    assert given == wanted(cluster, group)


def loads(result: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(assignment.partitions) for assignment in result.values())


def kept(group: Members, result: Mapping[str, Assignment]) -> int:
    """How many partitions stay where they were."""
    return sum(
        len(set(subscription.owned_partitions).intersection(result[member_id].partitions))
        for member_id, subscription in group.items()
    )


# ---- random groups ----

RACKS = ("a", "b", "c")
TOPICS = ("t0", "t1", "t2", "t3")


@st.composite
def clusters(draw: st.DrawFn, racks: bool | None = None, max_partitions: int = 7) -> ClusterView:
    with_racks = draw(st.booleans()) if racks is None else racks
    replica_racks = st.frozensets(st.sampled_from(RACKS), max_size=3 if with_racks else 0)
    counts = st.lists(replica_racks, max_size=max_partitions).map(tuple)
    return ClusterView({topic: draw(counts) for topic in TOPICS[: draw(st.integers(1, len(TOPICS)))]})


@st.composite
def groups(
    draw: st.DrawFn, cluster: ClusterView, equal: bool | None = None, max_size: int = 6
) -> dict[str, Subscription]:
    """Members that had nothing before; they may want a topic that does not exist, or nothing at all."""
    names = st.lists(st.sampled_from([*sorted(cluster.racks), "missing"]), unique=True)
    shared = draw(names) if (draw(st.booleans()) if equal is None else equal) else None
    rack = st.sampled_from((None, "", *RACKS, "elsewhere"))
    static = st.booleans()
    return {
        f"m{number}": Subscription(
            topics=tuple(draw(names) if shared is None else shared),
            rack_id=draw(rack),
            group_instance_id=f"i{9 - number}" if draw(static) else None,
        )
        for number in range(draw(st.integers(1, max_size)))
    }


@st.composite
def rebalancing(
    draw: st.DrawFn, equal: bool | None = None, racks: bool | None = None
) -> tuple[ClusterView, dict[str, Subscription]]:
    """A cluster and a group in which each partition has had one owner, of any generation, or none.

    Owners may have had partitions that are gone, or of topics that they no longer want.
    """
    cluster = draw(clusters(racks))
    group = draw(groups(cluster, equal))
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in group}
    owner = st.sampled_from([None, *group])
    for topic in [*cluster.racks, "gone"]:
        for number in range(cluster.count(topic) + draw(st.integers(0, 1))):
            member_id = draw(owner)
            if member_id is not None:
                owned[member_id].append(TopicPartition(topic, number))
    generation = st.integers(0, 3)
    return cluster, {
        member_id: with_owned(subscription, tuple(owned[member_id]), draw(generation))
        for member_id, subscription in group.items()
    }
