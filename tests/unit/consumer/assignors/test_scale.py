"""10,000 partitions and 1,000 members: nothing moves that need not."""

from __future__ import annotations

import random

import pytest

from millstream.consumer.assignors import ClusterView, Subscription, resolve_assignors
from tests.unit.consumer.assignors.groups import check_complete, kept, loads, with_owned

MEMBERS = 1_000
PARTITIONS = 10_000


def group_of(cluster: ClusterView, wanted: int) -> dict[str, Subscription]:
    chance = random.Random(7)
    topics = sorted(cluster.racks)
    return {f"m{number:04}": Subscription(tuple(chance.sample(topics, wanted))) for number in range(MEMBERS)}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize(("topics", "wanted"), [(1, 1), (100, 100), (1_000, 1_000), (100, 30)])
def test_a_thousand_members(name: str, topics: int, wanted: int) -> None:
    (assignor,) = resolve_assignors(name)
    cluster = ClusterView.of({f"t{number:03}": PARTITIONS // topics for number in range(topics)})
    group = group_of(cluster, wanted)

    first = assignor.assign(cluster, group)
    check_complete(cluster, group, first)
    assert loads(first) == [10] * MEMBERS

    rest = {
        member_id: with_owned(subscription, first[member_id].partitions, 1)
        for member_id, subscription in group.items()
        if member_id != "m0500"
    }
    second = assignor.assign(cluster, rest)
    check_complete(cluster, rest, second)
    assert kept(rest, second) == PARTITIONS - 10
    assert loads(second) == [10] * 989 + [11] * 10
