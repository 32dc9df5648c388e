"""RoundRobinAssignor: partitions of all topics, dealt to the members one by one."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.consumer.assignors.base import (
    Assignment,
    Assignor,
    ClusterView,
    Members,
    in_order,
    subscribed_topics,
)
from millstream.model import TopicPartition


class RoundRobinAssignor(Assignor):
    """Gives partitions of all topics, sorted by topic and number, to the members in turn.

    Two members and two topics of three partitions: the first gets t0-0, t0-2 and t1-1, the second t0-1, t1-0
    and t1-2. A member that did not subscribe to a topic is passed over, so the counts differ by at most one
    only when all subscribe to the same topics.
    """

    name = "roundrobin"

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        order = in_order(members)
        wanted = [frozenset(members[member_id].topics) for member_id in order]
        hands: list[list[TopicPartition]] = [[] for _ in order]
        turn = 0
        for topic in subscribed_topics(cluster, members):
            for partition in cluster.partitions(topic):
                while topic not in wanted[turn]:
                    turn = (turn + 1) % len(order)
                hands[turn].append(partition)
                turn = (turn + 1) % len(order)
        return {member_id: Assignment(tuple(hand)) for member_id, hand in zip(order, hands, strict=True)}
