"""What the group's leader does: from the subscriptions of all members to an assignment for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.consumer.assignors.base import (
    Assignment,
    Assignor,
    ClusterView,
    Members,
    RebalanceProtocol,
    Subscription,
)
from millstream.consumer.assignors.protocol import decode_assignment, decode_subscription, encode_assignment
from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from millstream.wire.messages.group_admin import DescribedGroup
from millstream.wire.messages.groups import JoinGroupResponseMember

EncodedAssignments = list[tuple[str, bytes]]
"""Member ids and their assignments as bytes."""

AssignedRacks = dict[str, Sequence[frozenset[str]]]
"""The racks of every partition of every topic, as an assignment was made with them."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The members of a generation as its leader sees them, and the topics that they want."""

    members: Members
    topics: tuple[str, ...]


def read_members(members: Iterable[JoinGroupResponseMember]) -> GroupMembers:
    """Read all subscriptions. A member with invalid bytes counts as subscribed to nothing."""
    subscriptions: dict[str, Subscription] = {}
    for member in members:
        try:
            subscription = decode_subscription(member.metadata, member.group_instance_id)
        except CorruptMessage:
            subscription = Subscription(topics=(), group_instance_id=member.group_instance_id)
        subscriptions[member.member_id] = subscription
    topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    return GroupMembers(subscriptions, tuple(sorted(topics)))


def assign(
    assignor: Assignor, protocol: RebalanceProtocol, cluster: ClusterView, members: Members
) -> EncodedAssignments:
    """Run the assignor. Whatever it raises is passed on: it may be the user's code."""
    assignments = assignor.assign(cluster, members)
    if protocol is RebalanceProtocol.COOPERATIVE:
        assignments = withhold_claimed(assignments, members)
    return [
        (member_id, encode_assignment(assignments.get(member_id, Assignment())))
        for member_id in sorted(members)
    ]


def withhold_claimed(assignments: Mapping[str, Assignment], members: Members) -> Mapping[str, Assignment]:
    """Take out what a member is to get while another one still says that it owns it.

    An assignor that knows how to cooperate leaves these out by itself (KIP-429). This holds it of every
    assignor: the owner finds the partition missing, gives it up and rejoins, and only then is it free.
    """
    claims: dict[TopicPartition, list[str]] = {}
    for member_id, subscription in members.items():
        for partition in subscription.owned_partitions:
            claims.setdefault(partition, []).append(member_id)
    return {
        member_id: Assignment(
            tuple(p for p in assignment.partitions if p not in claims or member_id in claims[p]),
            assignment.user_data,
        )
        for member_id, assignment in assignments.items()
    }


def has_moving(encoded: EncodedAssignments, members: Members) -> bool:
    """Whether a partition that a member says it owns is assigned to no one: it is to move."""
    assigned = {partition for _, data in encoded for partition in decode_assignment(data).partitions}
    return any(not assigned.issuperset(member.owned_partitions) for member in members.values())


def assigned_partitions(description: DescribedGroup) -> frozenset[TopicPartition]:
    """What the members of a group are assigned at present; invalid bytes count as nothing."""
    assigned: set[TopicPartition] = set()
    for member in description.members:
        try:
            assigned.update(decode_assignment(member.member_assignment).partitions)
        except CorruptMessage:
            continue
    return frozenset(assigned)


def assigned_counts(assigned: Iterable[TopicPartition]) -> dict[str, int]:
    """How many partitions each topic had when ``assigned`` was assigned, as far as it shows."""
    counts: dict[str, int] = {}
    for topic, number in assigned:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    return counts


def snapshot(cluster: ClusterView, topics: Iterable[str], *, with_racks: bool) -> AssignedRacks:
    """What an assignment depends on: a later snapshot that differs calls for another one.

    Racks count only where members say theirs.
    """
    if with_racks:
        return {topic: tuple(cluster.racks.get(topic, ())) for topic in topics}
    return {topic: (frozenset[str](),) * cluster.count(topic) for topic in topics}
