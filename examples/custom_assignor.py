"""Your own assignor: members with more weight get more partitions.

Every member sends its weight with its subscription. The group's leader, which is one of the members, assigns
the partitions. All members must have an assignor with this name.
"""

import argparse
import signal
from collections.abc import Collection, Mapping

from millstream import Consumer, RebalanceListener, TopicPartition
from millstream.consumer.assignors import Assignment, Assignor, ClusterView, Members
from millstream.errors import WakeupError


class WeightedAssignor(Assignor):
    """Deals partitions one by one, each to the member that has the fewest for its weight."""

    name = "weighted"

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        """What this member sends to the leader."""
        return str(self.weight).encode()

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        """Assign the partitions. Called on the leader only."""
        weights = {member: int(each.user_data or b"1") for member, each in members.items()}
        hands: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in sorted({topic for each in members.values() for topic in each.topics}):
            takers = sorted(member for member, each in members.items() if topic in each.topics)
            for partition in cluster.partitions(topic):
                lightest = min(takers, key=lambda member: (len(hands[member]) + 1) / weights[member])
                hands[lightest].append(partition)
        return {member: Assignment(tuple(hand)) for member, hand in hands.items()}


class Reporter(RebalanceListener):
    """Prints what this member reads after each rebalance."""

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Print them."""
        print("assigned", *partitions, flush=True)


def main() -> None:
    """Be a member of this weight until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="custom-assignor")
    parser.add_argument("--weight", type=int, default=1)
    options = parser.parse_args()

    with Consumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=WeightedAssignor(options.weight),
    ) as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.wakeup())
        consumer.subscribe([options.topic], listener=Reporter())
        try:
            while True:
                consumer.poll(timeout=1.0)
        except WakeupError:
            print("stopped", flush=True)


if __name__ == "__main__":
    main()
