"""What every assignor sees and returns, and the base class of your own.

The group's leader calls ``assign`` with the subscriptions of all members. The others only send their
subscription, with user data if the assignor has any, and hear of the outcome through ``on_assignment``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Self

from millstream.model import TopicPartition

NO_GENERATION = -1
"""The generation of a member that has never been in the group, or does not say."""


class RebalanceProtocol(IntEnum):
    """How partitions change hands; the higher one is preferred where all assignors know it (KIP-429)."""

    EAGER = 0
    """Every member gives up all its partitions before it rejoins."""
    COOPERATIVE = 1
    """Members keep what they own; what must move is given up in one rebalance and taken in the next."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member sends to the leader.

    ``owned_partitions`` are those it has not given up, as of ``generation_id``; an eager member owns none
    when it joins. ``group_instance_id`` is set for a static member.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member gets from the leader."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The topics that exist. ``racks[topic][partition]`` are the racks of that partition's replicas."""

    racks: Mapping[str, Sequence[frozenset[str]]]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """A cluster without racks, from the number of partitions of each topic."""
        return cls({topic: (frozenset[str](),) * count for topic, count in counts.items()})

    def count(self, topic: str) -> int:
        """How many partitions the topic has; 0 when it does not exist."""
        return len(self.racks.get(topic, ()))

    def has(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < self.count(partition.topic)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions, in order."""
        return [TopicPartition(topic, number) for number in range(self.count(topic))]


Members = Mapping[str, Subscription]
"""The subscription of each member, by member id."""


class Assignor(ABC):
    """Divides the partitions of the subscribed topics among the members of a group.

    A class of your own needs a name, which all members of the group must know, and ``assign``::

        class EverythingToOne(Assignor):
            name = "everything-to-one"

            def assign(self, cluster, members):
                first = min(members)
                topics = members[first].topics
                return {first: Assignment(tuple(p for t in topics for p in cluster.partitions(t)))}

    An assignor that declares ``COOPERATIVE`` must not give a partition to a member while another still owns
    it: it leaves the partition out, and is called again once the owner has given it up.
    """

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    @abstractmethod
    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        """Divide the partitions. A member that the result leaves out gets none.

        Must be a function of its arguments: the leader may have to repeat it.
        """

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """What to send to the leader along with this member's subscription to ``topics``."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:  # noqa: B027 - optional
        """Called on every member, the leader included, with its own part of the outcome."""


def in_order(members: Members) -> list[str]:
    """The member ids in the order in which assignors serve them.

    Static members come first, by instance id: it survives a restart and the member id does not, so a
    restarted member gets the same partitions again (KIP-345).
    """

    def rank(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=rank)


def subscribed_topics(cluster: ClusterView, members: Members) -> list[str]:
    """The topics that a member subscribed to and that have partitions, sorted."""
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    return sorted(topic for topic in topics if cluster.count(topic))


def racks_matter(member_racks: Collection[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Whether placing partitions near their members can gain anything (KIP-881).

    It cannot when no member is in a rack that has replicas, nor when every partition is in all the racks.
    """
    distinct = set(partition_racks)
    everywhere = frozenset[str]().union(*distinct)
    return not everywhere.isdisjoint(member_racks) and distinct != {everywhere}
