"""Sharing partitions: how many members get what, who decides it, and that groups do not disturb others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer, RebalanceListener
from millstream.consumer.assignors import Assignment, Assignor, ClusterView, Members
from millstream.consumer.assignors.base import Subscription
from millstream.consumer.assignors.protocol import PROTOCOL_TYPE, decode_assignment, encode_subscription
from millstream.errors import InconsistentGroupProtocolError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conftest import NewTopic
from tests.system.members import (
    Member,
    Settings,
    is_shared,
    partitions_of,
    poll_until,
    until_owns,
    until_shared,
)
from tests.system.raw_client import RawClient
from tests.waiting import SECONDS, until

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def produce(producer: Producer, topic: str, partitions: int, count: int) -> None:
    """Records numbered by their values, in turn to each partition; returns when all are stored."""
    futures = [producer.send(topic, b"%d" % number, partition=number % partitions) for number in range(count)]
    for future in futures:
        future.result(SECONDS)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_four_partitions_among_one_two_four_and_five_members(
    bootstrap_servers: str,
    producer: Producer,
    admin: Admin,
    new_topic: NewTopic,
    group: str,
    assignor: str,
) -> None:
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    produce(producer, topic, 4, 40)
    members: list[Member] = []
    with ExitStack() as stack:

        def share_among(*counts: int) -> None:
            while len(members) < len(counts):
                new = Member(bootstrap_servers, group, [topic], partition_assignment_strategy=assignor)
                members.append(stack.enter_context(new))
            until_shared(everything, members, counts)

        share_among(4)
        until(lambda: len(members[0].records) == 40, "the only member reads everything")
        share_among(2, 2)
        share_among(1, 1, 1, 1)
        share_among(0, 1, 1, 1, 1)

        produce(producer, topic, 4, 40)
        until(lambda: sum(len(member.records) for member in members) >= 80, "all records are read")
        described = admin.describe_group(group)
        assert described.assignor == assignor
        assert Counter(len(member.assignment) for member in described.members) == Counter([1, 1, 1, 1, 0])
        for member in members:
            owners = {record.topic_partition for record in member.records if record.offset >= 10}
            assert owners == member.owned, "a record went to somebody who does not own its partition"
    seen = Counter((record.partition, record.offset) for member in members for record in member.records)
    assert set(seen.values()) == {1} and len(seen) == 80, "clean rebalances neither lose nor repeat records"


def test_each_group_gets_every_record(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=3)
    produce(producer, topic, 3, 60)
    everything = {b"%d" % number for number in range(60)}
    with (
        Member(bootstrap_servers, f"{group}-G1", [topic]) as alone,
        Member(bootstrap_servers, f"{group}-G2", [topic]) as first,
        Member(bootstrap_servers, f"{group}-G2", [topic]) as second,
    ):
        until(lambda: len(alone.records) == 60, "G1 reads everything")
        until(lambda: len(first.records) + len(second.records) == 60, "G2 reads everything")
        assert {record.value for record in alone.records} == everything
        assert {record.value for record in [*first.records, *second.records]} == everything


# --- who decides


def test_the_coordinator_shows_each_member_with_its_own_part(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=4)
    with (
        Member(bootstrap_servers, group, [topic], client_id="one") as one,
        Member(bootstrap_servers, group, [topic], client_id="two") as two,
    ):
        until_shared(partitions_of(topic, 0, 1, 2, 3), [one, two], [2, 2])
        described = admin.describe_group(group)
        assert described.state == "Stable"
        assert {each.client_id: frozenset(each.assignment) for each in described.members} == {
            "one": one.owned,
            "two": two.owned,
        }
        assert {each.client_id: each.topics for each in described.members} == {
            "one": (topic,),
            "two": (topic,),
        }


def test_the_first_member_leads_and_the_others_see_only_their_part(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    """The protocol by hand: a stranger joins behind a consumer, which leads and assigns for both."""
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    with (
        Member(bootstrap_servers, group, [topic], partition_assignment_strategy="range") as leader,
        RawClient(bootstrap_servers) as raw,
    ):
        until_owns(leader, everything)
        leader_id = leader.call(lambda consumer: consumer.group_metadata().member_id)
        answer = raw_join(raw, group, topic, raw_join(raw, group, topic, "").member_id)
        assert answer.leader == leader_id
        assert answer.members == [], "only the leader learns who else is there"
        mine = raw.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=answer.protocol_name,
                assignments=[],
            ),
            5,
            SyncGroupResponse,
        )
        part = frozenset(decode_assignment(mine.assignment).partitions)
        until(lambda: leader.owned == everything - part, "the leader has the rest")
        assert len(part) == 2


def raw_join(raw: RawClient, group: str, topic: str, member_id: str) -> JoinGroupResponse:
    return raw.call(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=encode_subscription(Subscription((topic,))))
            ],
        ),
        7,
        JoinGroupResponse,
    )


# --- assignors


def share_two_topics(
    servers: str, group: str, topics: Sequence[str], **settings: Any
) -> Mapping[str, list[str]]:
    """What the documents' C1 and C2 get of T1 and T2, three partitions each."""
    names = dict(zip(topics, ("T1", "T2"), strict=True))
    everything = partitions_of(topics[0], 0, 1, 2) | partitions_of(topics[1], 0, 1, 2)
    with (
        Member(servers, group, topics, client_id="C1", **settings) as c1,
        Member(servers, group, topics, client_id="C2", **settings) as c2,
    ):
        until_shared(everything, [c1, c2])
        return {
            name: [f"{names[each.topic]}-{each.partition}" for each in sorted(member.owned)]
            for name, member in (("C1", c1), ("C2", c2))
        }


def test_range_as_in_the_documents(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    topics = [new_topic(3, "T1"), new_topic(3, "T2")]
    assert share_two_topics(bootstrap_servers, group, topics, partition_assignment_strategy="range") == {
        "C1": ["T1-0", "T1-1", "T2-0", "T2-1"],
        "C2": ["T1-2", "T2-2"],
    }


def test_roundrobin_as_in_the_documents(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    topics = [new_topic(3, "T1"), new_topic(3, "T2")]
    kafka_name = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    assert share_two_topics(bootstrap_servers, group, topics, partition_assignment_strategy=kafka_name) == {
        "C1": ["T1-0", "T1-2", "T2-1"],
        "C2": ["T1-1", "T2-0", "T2-2"],
    }


class EverythingToTheLast(Assignor):
    """A user's own: all partitions go to the member with the highest id."""

    name = "everything-to-the-last"

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        last = max(members)
        topics = members[last].topics
        return {last: Assignment(tuple(p for topic in topics for p in cluster.partitions(topic)))}


@pytest.mark.parametrize("assignor", [EverythingToTheLast, [EverythingToTheLast(), "range"]])
def test_an_assignor_of_ones_own(
    bootstrap_servers: str, new_topic: NewTopic, group: str, assignor: object
) -> None:
    topics = [new_topic(3, "T1"), new_topic(3, "T2")]
    settings: Settings = {"partition_assignment_strategy": assignor}
    assert share_two_topics(bootstrap_servers, group, topics, **settings) == {
        "C1": [],
        "C2": ["T1-0", "T1-1", "T1-2", "T2-0", "T2-1", "T2-2"],
    }


def test_members_without_a_common_assignor_are_refused(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    with (
        Member(bootstrap_servers, group, [topic], partition_assignment_strategy="range") as member,
        Consumer(
            bootstrap_servers=bootstrap_servers, group_id=group, partition_assignment_strategy="sticky"
        ) as stranger,
    ):
        until_owns(member, partitions_of(topic, 0))
        stranger.subscribe([topic])
        with pytest.raises(InconsistentGroupProtocolError, match="partition_assignment_strategy"):
            stranger.poll(SECONDS)
        assert member.owned == partitions_of(topic, 0)


def test_from_eager_to_cooperative_one_member_at_a_time(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    """The two restarts of each member that Kafka's documents describe, the second of them here."""
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    both, cooperative = ["range", "cooperative-sticky"], ["cooperative-sticky"]
    with (
        Member(bootstrap_servers, group, [topic], partition_assignment_strategy=both) as old,
        Member(bootstrap_servers, group, [topic], partition_assignment_strategy=cooperative) as new,
    ):
        until_shared(everything, [old, new], [2, 2])


# --- subscriptions


def test_members_with_different_subscriptions(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    """Each gets only what it asked for; the leader assigns topics that it does not read itself."""
    left, both, right = new_topic(2, "left"), new_topic(2, "both"), new_topic(2, "right")
    with (
        Member(bootstrap_servers, group, [left, both], partition_assignment_strategy="roundrobin") as one,
        Member(bootstrap_servers, group, [both, right], partition_assignment_strategy="roundrobin") as two,
    ):
        everything = partitions_of(left, 0, 1) | partitions_of(both, 0, 1) | partitions_of(right, 0, 1)
        until_shared(everything, [one, two])
        assert partitions_of(left, 0, 1) <= one.owned
        assert partitions_of(right, 0, 1) <= two.owned


def test_a_changed_subscription_moves_the_partitions(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    before, after = new_topic(2, "before"), new_topic(2, "after")
    produce(producer, after, 2, 10)
    with Member(bootstrap_servers, group, [before]) as member:
        until_owns(member, partitions_of(before, 0, 1))
        member.call(lambda consumer: consumer.subscribe([after], listener=member.recorder))
        until_owns(member, partitions_of(after, 0, 1))
        until(lambda: len(member.records) == 10, "the new topic is read")
        assert member.call(lambda consumer: consumer.subscription()) == {after}
    assert member.told == [
        ("assigned", partitions_of(before, 0, 1)),
        ("revoked", partitions_of(before, 0, 1)),
        ("assigned", partitions_of(after, 0, 1)),
        ("revoked", partitions_of(after, 0, 1)),
    ]


def test_unsubscribe_leaves_the_group_and_a_new_subscription_joins_it_again(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    with Member(bootstrap_servers, group, [topic]) as other:
        until_owns(other, partitions_of(topic, 0, 1))
        with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, consumer.assignment, "it gets a partition")
            until(lambda: len(other.owned) == 1, "the other keeps one")
            consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
            assert consumer.subscription() == frozenset()
            until_owns(other, partitions_of(topic, 0, 1), 20)  # its session lasts longer
            assert len(admin.describe_group(group).members) == 1

            consumer.subscribe([topic], listener=RebalanceListener())
            poll_until(consumer, consumer.assignment, "it gets a partition again")
        until(lambda: is_shared(partitions_of(topic, 0, 1), [other]), "the other has all again")
        assert other.owned == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
