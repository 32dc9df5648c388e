"""The setting partition_assignment_strategy: every spelling, and every mistake named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from millstream.config import ConsumerConfig
from millstream.consumer.assignors import (
    Assignment,
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    Members,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    common_protocol,
    resolve_assignors,
)
from millstream.errors import ConfigError
from millstream.model import TopicPartition
from tests.unit.consumer.assignors.groups import members, outcome


class EverythingToOne(Assignor):
    name = "everything-to-one"

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        first = min(members)
        topics = members[first].topics
        return {first: Assignment(tuple(p for topic in topics for p in cluster.partitions(topic)))}


class Cooperative(EverythingToOne):
    name = "cooperative-only"
    protocols = (RebalanceProtocol.COOPERATIVE,)


class Nameless(EverythingToOne):
    name = ""


class Picky(EverythingToOne):
    def __init__(self, taste: str) -> None:
        self.taste = taste


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("range", [RangeAssignor]),
        ("roundrobin", [RoundRobinAssignor]),
        ("sticky", [StickyAssignor]),
        ("cooperative-sticky", [CooperativeStickyAssignor]),
        ("org.apache.kafka.clients.consumer.RangeAssignor", [RangeAssignor]),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", [RoundRobinAssignor]),
        ("org.apache.kafka.clients.consumer.StickyAssignor", [StickyAssignor]),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", [CooperativeStickyAssignor]),
        (ConsumerConfig.partition_assignment_strategy, [RangeAssignor, CooperativeStickyAssignor]),
        ("sticky, range ,", [StickyAssignor, RangeAssignor]),
        (RoundRobinAssignor, [RoundRobinAssignor]),
        (EverythingToOne(), [EverythingToOne]),
        ([EverythingToOne, "range", StickyAssignor()], [EverythingToOne, RangeAssignor, StickyAssignor]),
    ],
)
def test_every_way_to_name_assignors(spec: Any, expected: list[type[Assignor]]) -> None:
    assert [type(assignor) for assignor in resolve_assignors(spec)] == expected


def test_an_object_is_used_as_it_is_and_names_make_new_ones() -> None:
    mine = Picky("salt")
    assert resolve_assignors([mine])[0] is mine
    assert resolve_assignors("sticky")[0] is not resolve_assignors("sticky")[0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rnage", "unknown assignor 'rnage': did you mean 'range'?"),
        ("round-robin", "did you mean 'roundrobin'?"),
        ("CooperativeStickyAssignor", "did you mean 'cooperative-sticky'?"),
        ("org.apache.kafka.clients.RangeAssignor", "did you mean 'range'?"),
        ("?", "known are 'range', 'roundrobin', 'sticky', 'cooperative-sticky'"),
        ([], "name at least one assignor"),
        (" , ", "name at least one assignor"),
        (["range", RangeAssignor], "two assignors named 'range'"),
        ([3], "3 is not an assignor"),
        (3, "3 is not an assignor"),
        (dict, "is not an assignor"),
        (Nameless, "Nameless has no name"),
        (Picky, "Picky cannot be created, pass an object instead"),
        (["range", Cooperative], r"no rebalance protocol in common \(range: EAGER; cooperative-only: COOP"),
    ],
)
def test_mistakes_are_named(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        resolve_assignors(spec)


@pytest.mark.parametrize(
    ("spec", "protocol"),
    [
        (ConsumerConfig.partition_assignment_strategy, RebalanceProtocol.EAGER),
        ("cooperative-sticky", RebalanceProtocol.COOPERATIVE),
        (["cooperative-sticky", Cooperative], RebalanceProtocol.COOPERATIVE),
        ("sticky,cooperative-sticky", RebalanceProtocol.EAGER),
    ],
)
def test_the_most_advanced_protocol_that_all_know_is_followed(spec: Any, protocol: RebalanceProtocol) -> None:
    assert common_protocol(resolve_assignors(spec)) is protocol


def test_an_assignor_of_your_own_in_ten_lines() -> None:
    (assignor,) = resolve_assignors(EverythingToOne)
    result = assignor.assign(ClusterView.of({"t": 2}), members(c0="t", c1="t"))
    assert result == {"c0": Assignment((TopicPartition("t", 0), TopicPartition("t", 1)))}
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(result["c0"], 1)


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_without_partitions_and_groups_without_members(name: str) -> None:
    (assignor,) = resolve_assignors(name)
    assert assignor.assign(ClusterView.of({"t": 3}), {}) == {}
    assert outcome(assignor, ClusterView.of({"t": 0}), members(c0="t", c1="")) == {"c0": "", "c1": ""}
