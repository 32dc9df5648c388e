"""Sticky and CooperativeSticky: even loads, and then as few moves as possible (KIP-54, KIP-341, KIP-429)."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from millstream.consumer.assignors.balance import PartitionBlock, balance
from millstream.consumer.assignors.base import (
    NO_GENERATION,
    Assignment,
    Assignor,
    ClusterView,
    Members,
    RebalanceProtocol,
    Subscription,
    in_order,
    racks_matter,
    subscribed_topics,
)
from millstream.consumer.assignors.user_data import (
    Claim,
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
)
from millstream.model import TopicPartition

CONTESTED = -1
"""The owner of a partition that several members claim in the same generation: none of them."""

Owners = dict[TopicPartition, int]
"""The previous owner of each claimed partition, as a position in the order of members, or CONTESTED."""


class _StickyBase(Assignor):
    """What both assignors share: previous owners, and the new assignment."""

    @abstractmethod
    def claim(self, subscription: Subscription) -> Claim:
        """The partitions that the member says it has, and since which generation."""

    def plan(self, cluster: ClusterView, members: Members) -> tuple[list[list[TopicPartition]], Owners]:
        """Return what each member, in order, is to have in the end, and who had what."""
        order = in_order(members)
        subscriptions = [members[member_id] for member_id in order]
        owners = settle_claims([self.claim(subscription) for subscription in subscriptions])
        lots = list(_divide_into_lots(cluster, subscribed_topics(cluster, members), subscriptions))
        previous = [lot.previous(owners) for lot in lots]
        counts = balance([lot.block for lot in lots], _by_member(previous, len(order)))
        hands: list[list[TopicPartition]] = [[] for _ in order]
        for lot, held, had in zip(lots, _by_lot(counts, len(lots)), previous, strict=True):
            lot.deal(held, had, hands)
        return hands, owners


class StickyAssignor(_StickyBase):
    """Gives each member an even share, with as many of its earlier partitions as that permits.

    An eager assignor: members give everything up before they join, and remember in the user data what it was.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._previous: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def claim(self, subscription: Subscription) -> Claim:
        return decode_sticky(subscription.user_data)

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        hands, _ = self.plan(cluster, members)
        return _assignments(members, hands)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        if self._previous is None:
            return None
        return encode_sticky(self._previous, self._generation)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._previous, self._generation = assignment.partitions, generation_id


class CooperativeStickyAssignor(_StickyBase):
    """As sticky, for members that keep reading what they own while the group rebalances.

    A partition that is to move is given to no member at first. Its owner sees it missing, gives it up and
    rejoins; then it is free, and the next round hands it over without moving anything else.
    """

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def claim(self, subscription: Subscription) -> Claim:
        generation = subscription.generation_id
        if generation < 0:  # a member too old to say it in the subscription (before version 2)
            generation = decode_cooperative(subscription.user_data)
        return subscription.owned_partitions, generation

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        hands, owners = self.plan(cluster, members)
        safe = [
            [partition for partition in hand if owners.get(partition, member) == member]
            for member, hand in enumerate(hands)
        ]
        return _assignments(members, safe)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return encode_cooperative(self._generation)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._generation = generation_id


def settle_claims(claims: Sequence[Claim]) -> Owners:
    """Decide who had each partition: the highest generation counts.

    Two members that claim a partition in the same generation cannot both be right, and neither is believed.
    """
    owners: Owners = {}
    since: dict[TopicPartition, int] = {}
    for member, (partitions, generation) in enumerate(claims):
        for partition in dict.fromkeys(partitions):
            rival = since.get(partition)
            if rival is None or generation > rival:
                owners[partition], since[partition] = member, generation
            elif generation == rival:
                owners[partition] = CONTESTED
    return owners


Holdings = dict[int, list[TopicPartition]]
"""Partitions of one lot by member, in the order in which a member would rather keep them."""


@dataclass(frozen=True, slots=True)
class _Lot:
    """Partitions that the same members may have, from the same racks; ``block`` is what counting needs."""

    partitions: list[TopicPartition]
    block: PartitionBlock

    def previous(self, owners: Owners) -> Holdings:
        """What each of the members had, low partition numbers first so that every topic keeps some."""
        members = self.block.far.union(self.block.near)
        holdings: Holdings = {}
        for partition in sorted(
            self.partitions, key=lambda partition: (partition.partition, partition.topic)
        ):
            owner = owners.get(partition, CONTESTED)
            if owner in members:
                holdings.setdefault(owner, []).append(partition)
        return holdings

    def deal(self, counts: dict[int, int], previous: Holdings, hands: list[list[TopicPartition]]) -> None:
        """Give each member its count: what it had, and then the others one by one in turn."""
        kept: set[TopicPartition] = set()
        waiting: deque[tuple[int, int]] = deque()
        for member, count in counts.items():
            own = previous.get(member, [])[:count]
            hands[member] += own
            kept.update(own)
            if count > len(own):
                waiting.append((member, count - len(own)))
        for partition in self.partitions:
            if partition not in kept:
                member, need = waiting.popleft()
                hands[member].append(partition)
                if need > 1:
                    waiting.append((member, need - 1))
        assert not waiting, "counts that do not add up to the partitions there are"


def _divide_into_lots(
    cluster: ClusterView, topics: Sequence[str], subscriptions: Sequence[Subscription]
) -> Iterator[_Lot]:
    racks = [subscription.rack_id or None for subscription in subscriptions]
    known = {rack for rack in racks if rack is not None}
    rack_aware = bool(known) and racks_matter(known, (r for topic in topics for r in cluster.racks[topic]))
    for members, shared in _topics_by_members(topics, subscriptions):
        if not rack_aware:
            partitions = [partition for topic in shared for partition in cluster.partitions(topic)]
            yield _Lot(partitions, PartitionBlock(len(partitions), members))
            continue
        by_racks: dict[frozenset[str], list[TopicPartition]] = {}
        for topic in shared:
            for partition, replica_racks in zip(cluster.partitions(topic), cluster.racks[topic], strict=True):
                by_racks.setdefault(replica_racks, []).append(partition)
        for replica_racks, partitions in by_racks.items():
            near = [member for member in members if racks[member] is None or racks[member] in replica_racks]
            yield _Lot(partitions, PartitionBlock(len(partitions), near, frozenset(members).difference(near)))


def _topics_by_members(
    topics: Sequence[str], subscriptions: Sequence[Subscription]
) -> Iterator[tuple[list[int], list[str]]]:
    """Gather the topics that the same members want. Members that want the same are handled as one."""
    alike: dict[frozenset[str], list[int]] = {}
    for member, subscription in enumerate(subscriptions):
        alike.setdefault(frozenset(subscription.topics), []).append(member)
    audiences: dict[str, list[int]] = {topic: [] for topic in topics}
    for number, wanted in enumerate(alike):
        for topic in wanted & audiences.keys():
            audiences[topic].append(number)
    shared: dict[tuple[int, ...], list[str]] = {}
    for topic, audience in audiences.items():
        shared.setdefault(tuple(audience), []).append(topic)
    groups = list(alike.values())
    for audience_key, its_topics in shared.items():
        yield sorted(chain.from_iterable(groups[number] for number in audience_key)), its_topics


def _by_member(previous: Sequence[Holdings], member_count: int) -> list[dict[int, int]]:
    owned: list[dict[int, int]] = [{} for _ in range(member_count)]
    for lot, holdings in enumerate(previous):
        for member, partitions in holdings.items():
            owned[member][lot] = len(partitions)
    return owned


def _by_lot(counts: Sequence[dict[int, int]], lot_count: int) -> list[dict[int, int]]:
    held: list[dict[int, int]] = [{} for _ in range(lot_count)]
    for member, by_lot in enumerate(counts):
        for lot, count in by_lot.items():
            held[lot][member] = count
    return held


def _assignments(members: Members, hands: Sequence[list[TopicPartition]]) -> dict[str, Assignment]:
    return {
        member_id: Assignment(tuple(sorted(hand)))
        for member_id, hand in zip(in_order(members), hands, strict=True)
    }
