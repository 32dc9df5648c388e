"""How long it takes to divide 10,000 partitions among 1,000 members, and how many partitions that moves.

Run with ``python -m benchmarks.assignors``. Each row is one group in one situation: from nothing, after a
member left, and after 500 members joined 500. "moved" counts the partitions that a remaining member loses,
"least" how many that must be for the loads to be even (known only where all members want the same topics).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.report import Section, table
from millstream.consumer.assignors import (
    Assignment,
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)
from millstream.consumer.assignors.user_data import encode_sticky
from millstream.model import TopicPartition

MEMBERS = 1_000
PARTITIONS = 10_000
RACKS = "abcdef"
ROUNDS = 3

Group = dict[str, Subscription]
Result = Mapping[str, Assignment]


@dataclass(frozen=True)
class Scenario:
    """A cluster, and what each member wants of it."""

    title: str
    cluster: ClusterView
    group: Group
    equal: bool


def scenarios() -> Iterator[Scenario]:
    """The groups to measure, the same in every run."""
    chance = random.Random(42)
    for count in (1, 100, 1_000):
        cluster = ClusterView.of({f"t{number:04}": PARTITIONS // count for number in range(count)})
        yield scenario(f"{count:,} topics, all wanted", cluster, count, chance)
        if count > 1:
            yield scenario(f"{count:,} topics, half of them wanted", cluster, count // 2, chance)
    shares = [1 / (number + 1) for number in range(300)]
    sizes = [max(1, round(PARTITIONS * share / sum(shares))) for share in shares]
    uneven = ClusterView.of({f"t{number:04}": size for number, size in enumerate(sizes)})
    yield scenario("300 topics large and small, 3 wanted", uneven, 3, chance)
    racks = tuple(frozenset(chance.sample(RACKS, 2)) for _ in range(100))
    spread = ClusterView({f"t{number:04}": racks for number in range(100)})
    near = scenario("100 topics, half wanted, 6 racks", spread, 50, chance)
    placed = {name: replace(each, rack_id=chance.choice(RACKS)) for name, each in near.group.items()}
    yield replace(near, group=placed)


def scenario(title: str, cluster: ClusterView, count: int, chance: random.Random) -> Scenario:
    """A group in which each member wants so many topics."""
    topics = sorted(cluster.racks)
    group = {
        f"member-{number:04}": Subscription(tuple(sorted(chance.sample(topics, count))))
        for number in range(MEMBERS)
    }
    return Scenario(title, cluster, group, equal=count == len(topics))


def owning(group: Group, result: Result) -> Group:
    """The group when it rebalances next, each member saying what it had."""
    return {
        member_id: replace(
            subscription,
            owned_partitions=result[member_id].partitions,
            generation_id=1,
            user_data=encode_sticky(result[member_id].partitions, 1),
        )
        if member_id in result
        else subscription
        for member_id, subscription in group.items()
    }


def situations(scenario: Scenario) -> Iterator[tuple[str, Group]]:
    """What happens to the group."""
    yield "from nothing", scenario.group
    settled = StickyAssignor().assign(scenario.cluster, scenario.group)
    rest = {name: each for name, each in scenario.group.items() if name != f"member-{MEMBERS // 2:04}"}
    yield "1 leaves", owning(rest, settled)
    half = dict(list(scenario.group.items())[::2])
    yield "500 join", owning(scenario.group, StickyAssignor().assign(scenario.cluster, half))


def measure(assignor: Assignor, cluster: ClusterView, group: Group) -> tuple[float, Result]:
    """The shortest of a few times, in seconds: what else runs on the machine only adds to it."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = assignor.assign(cluster, group)
        times.append(time.perf_counter() - start)
    return min(times), result


def moved(group: Group, result: Result) -> int:
    """How many partitions a member had and has no longer."""
    return sum(
        len(set(subscription.owned_partitions).difference(result[member_id].partitions))
        for member_id, subscription in group.items()
    )


def least_moves(cluster: ClusterView, group: Group) -> int:
    """How many must move at the least when all want the same: what exceeds the even shares."""
    partitions: set[TopicPartition] = {p for topic in cluster.racks for p in cluster.partitions(topic)}
    share, extras = divmod(len(partitions), len(group))
    counts = [len(partitions.intersection(each.owned_partitions)) for each in group.values()]
    return sum(max(0, n - share) for n in counts) - min(extras, sum(n > share for n in counts))


def rows() -> Iterator[tuple[str, ...]]:
    """One row a situation: title, milliseconds of each assignor, partitions moved, and the least possible."""
    for each in scenarios():
        for situation, group in situations(each):
            times, counts = [], {}
            for assignor in ASSIGNORS:
                seconds, result = measure(assignor, each.cluster, group)
                times.append(f"{seconds * 1000:.0f}")
                counts[assignor.name] = moved(group, result)
            assert counts["sticky"] == counts["cooperative-sticky"]
            least = str(least_moves(each.cluster, group)) if each.equal else ""
            yield f"{each.title}, {situation}", *times, str(counts["sticky"]), least


ASSIGNORS: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
HEAD = ("", *(assignor.name for assignor in ASSIGNORS), "moved (sticky)", "least possible")


def section() -> Section:
    """The table for RESULTS.md."""
    print("  assignors")
    return Section(
        "Assignors",
        f"{MEMBERS:,} members, {PARTITIONS:,} partitions; milliseconds, best of {ROUNDS}.\n\n"
        + table(HEAD, rows()),
    )


def main() -> None:
    """Measure everything and print the table."""
    print(" | ".join(HEAD))
    for row in rows():
        print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
