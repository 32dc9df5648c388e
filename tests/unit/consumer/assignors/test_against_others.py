"""Our assignors beside those of Apache Kafka and kafka-python, given the same groups.

``kafka_4_1.tsv`` holds random groups with what the classes of Apache Kafka 4.1.0 made of them. Columns: the
assignor; topics with the racks of each partition (``t0:ab,c``); members with instance id, rack, topics,
partitions and generation (``m0;i1;a;t0+t1;t0-0+t1-0;4``); and the partitions that each member got.

Range and RoundRobin must give the same. Sticky assignors have a choice: ours may not be less even, nor
farther from the replicas, nor move more. (Kafka's own sometimes are: they look at one move at a time.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from millstream.consumer.assignors import ClusterView, Members, Subscription, resolve_assignors
from millstream.consumer.assignors.base import racks_matter
from millstream.consumer.assignors.protocol import encode_subscription
from millstream.consumer.assignors.user_data import encode_sticky
from millstream.model import TopicPartition
from tests.unit.consumer.assignors.groups import partitions, wanted

Hands = Mapping[str, tuple[TopicPartition, ...]]
CASES = (Path(__file__).parent / "kafka_4_1.tsv").read_text().splitlines()


def cases_of(*names: str) -> list[Any]:
    return [
        pytest.param(line, id=f"line {number}")
        for number, line in enumerate(CASES, start=1)
        if line.startswith(tuple(f"{name}\t" for name in names))
    ]


def read_case(line: str) -> tuple[str, ClusterView, dict[str, Subscription], dict[str, Any]]:
    name, topics, members, result = line.split("\t")
    cluster = {}
    for entry in topics.split("|"):
        topic, racks = entry.split(":")
        cluster[topic] = tuple(map(frozenset, racks.split(",")))
    group = dict(map(read_member, members.split("|")))
    given = dict(entry.split("=") for entry in result.split("|"))
    return (
        name,
        ClusterView(cluster),
        group,
        {m: partitions(text.replace("+", " ")) for m, text in given.items()},
    )


def read_member(text: str) -> tuple[str, Subscription]:
    member_id, instance_id, rack, topics, owned_text, generation = text.split(";")
    owned = partitions(owned_text.replace("+", " "))
    return member_id, Subscription(
        topics=tuple(topics.split("+")),
        user_data=encode_sticky(owned, int(generation)) if owned else None,
        owned_partitions=owned,
        generation_id=int(generation),
        rack_id=rack or None,
        group_instance_id=instance_id or None,
    )


def score(cluster: ClusterView, group: Members, hands: Hands) -> tuple[int, int, int]:
    """Unevenness, partitions in the wrong rack, and partitions that left their owner."""
    known = {subscription.rack_id for subscription in group.values() if subscription.rack_id}
    topics = {partition.topic for partition in wanted(cluster, group)}
    in_use = bool(known) and racks_matter(known, [racks for t in topics for racks in cluster.racks[t]])
    across = sum(
        rack is not None and rack not in cluster.racks[topic][number]
        for member_id, hand in hands.items()
        for rack in [group[member_id].rack_id]
        for topic, number in hand
    )
    moved = sum(
        len(set(subscription.owned_partitions).difference(hands[member_id]))
        for member_id, subscription in group.items()
    )
    return sum(len(hand) ** 2 for hand in hands.values()), across if in_use else 0, moved


@pytest.mark.parametrize("line", cases_of("range", "roundrobin"))
def test_range_and_round_robin_are_those_of_kafka(line: str) -> None:
    name, cluster, group, expected = read_case(line)
    (assignor,) = resolve_assignors(name)
    result = assignor.assign(cluster, group)
    assert {member_id: assignment.partitions for member_id, assignment in result.items()} == expected


@pytest.mark.parametrize("line", cases_of("sticky"))
def test_sticky_is_as_good_as_that_of_kafka(line: str) -> None:
    name, cluster, group, expected = read_case(line)
    (assignor,) = resolve_assignors(name)
    hands = {member_id: each.partitions for member_id, each in assignor.assign(cluster, group).items()}
    assert score(cluster, group, hands) <= score(cluster, group, expected)
    fresh = not any(subscription.owned_partitions for subscription in group.values())
    alike = len({frozenset(subscription.topics) for subscription in group.values()}) == 1
    if fresh and alike and not any(subscription.rack_id for subscription in group.values()):
        assert hands == expected


@pytest.mark.parametrize("line", cases_of("cooperative-sticky"))
def test_cooperative_sticky_is_as_good_as_that_of_kafka(line: str) -> None:
    name, cluster, group, expected = read_case(line)
    (assignor,) = resolve_assignors(name)

    def settled(hands: Hands) -> Hands:
        following = {
            member_id: Subscription(each.topics, None, hands[member_id], 5, each.rack_id)
            for member_id, each in group.items()
        }
        return {m: each.partitions for m, each in assignor.assign(cluster, following).items()}

    first = {member_id: each.partitions for member_id, each in assignor.assign(cluster, group).items()}
    # Either leader may be followed by ours: what one of them began, the other one completes.
    assert score(cluster, group, settled(first)) <= score(cluster, group, settled(expected))


# ---- kafka-python, whose members are given our bytes ----


def theirs(assignor: Any, cluster: ClusterView, group: Members) -> Hands:
    view = SimpleNamespace(
        topics=lambda: set(cluster.racks),
        partitions_for_topic=lambda topic: set(range(cluster.count(topic))) or None,
    )
    joined = [
        SimpleNamespace(
            member_id=member_id,
            group_instance_id=None,
            metadata=SimpleNamespace(
                topics=ConsumerProtocolSubscription.decode(encode_subscription(subscription)).topics,
                user_data=their_user_data(subscription),
            ),
        )
        for member_id, subscription in group.items()
    ]
    result = assignor.assign(view, joined)
    return {
        member_id: tuple(sorted(TopicPartition(topic, n) for topic, numbers in entries for n in numbers))
        for member_id in group
        for entries in [result[member_id].assigned_partitions]
    }


def their_user_data(subscription: Subscription) -> Any:
    """Not our bytes: kafka-python 3 puts a version before its own, which neither Java nor librdkafka does."""
    if not subscription.owned_partitions:
        return b""
    previous: dict[str, list[int]] = {}
    for topic, number in subscription.owned_partitions:
        previous.setdefault(topic, []).append(number)
    return StickyAssignorUserData(list(previous.items()), subscription.generation_id)


def random_group(seed: int, *, equal: bool) -> tuple[ClusterView, dict[str, Subscription]]:
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(chance.randint(1, 4))]
    group = {}
    for number in range(chance.randint(1, 6)):
        topics = names if equal else chance.sample(names, chance.randint(1, len(names)))
        group[f"m{number}"] = Subscription(tuple(topics))
    return ClusterView.of({name: chance.randint(1, 7) for name in names}), group


@pytest.mark.parametrize("seed", range(20))
def test_range_is_that_of_kafka_python(seed: int) -> None:
    cluster, group = random_group(seed, equal=False)
    (assignor,) = resolve_assignors("range")
    ours = {m: each.partitions for m, each in assignor.assign(cluster, group).items()}
    assert ours == theirs(RangePartitionAssignor, cluster, group)


@pytest.mark.parametrize("seed", range(20))
def test_round_robin_and_the_first_sticky_assignment_are_those_of_kafka_python(seed: int) -> None:
    cluster, group = random_group(seed, equal=True)
    expected = theirs(RoundRobinPartitionAssignor, cluster, group)
    for name in ("roundrobin", "sticky", "cooperative-sticky"):
        (assignor,) = resolve_assignors(name)
        assert {m: each.partitions for m, each in assignor.assign(cluster, group).items()} == expected


@pytest.mark.parametrize("seed", range(20))
def test_sticky_is_as_good_as_that_of_kafka_python(seed: int) -> None:
    cluster, group = random_group(seed, equal=seed % 2 == 0)
    chance = random.Random(seed)
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in group}
    for partition in sorted(wanted(cluster, group)):
        able = [m for m, subscription in group.items() if partition.topic in subscription.topics]
        owned[chance.choice(able)].append(partition)
    group = {
        m: Subscription(each.topics, encode_sticky(owned[m], 3), tuple(owned[m]), 3)
        for m, each in group.items()
    }
    (assignor,) = resolve_assignors("sticky")
    ours = {m: each.partitions for m, each in assignor.assign(cluster, group).items()}
    other = theirs(StickyPartitionAssignor(), cluster, group)
    assert score(cluster, group, ours) <= score(cluster, group, other)
