"""RangeAssignor: each topic is cut into runs of partitions, one for each member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from millstream.consumer.assignors.base import (
    Assignment,
    Assignor,
    ClusterView,
    Members,
    in_order,
    racks_matter,
    subscribed_topics,
)
from millstream.model import TopicPartition

Racks = Mapping[str, str]
"""The rack of each member that names one, by member id."""


class RangeAssignor(Assignor):
    """Gives each member a run of neighbouring partitions of each topic.

    Two members and two topics of three partitions: the first gets 0 and 1 of both, the second gets 2 of both.
    So equal partition numbers of topics with equal partition counts meet at one member, as joins need.

    Where racks matter, partitions first go to members near a replica, as far as that keeps each topic's
    counts even and equal partition numbers together; what is left is cut into runs (KIP-881).
    """

    name = "range"

    def assign(self, cluster: ClusterView, members: Members) -> Mapping[str, Assignment]:
        racks = {member_id: rack for member_id, each in members.items() if (rack := each.rack_id)}
        cuts = [
            _Cut(topic, cluster.racks[topic], member_ids, racks)
            for topic, member_ids in _subscribers(cluster, members).items()
        ]
        if any(cut.racks_matter for cut in cuts):
            _assign_near(cuts)
        hands: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for cut in cuts:
            cut.assign_runs(_anywhere)
            for member_id, numbers in cut.given.items():
                hands[member_id].extend(TopicPartition(cut.topic, number) for number in sorted(numbers))
        return {member_id: Assignment(tuple(hand)) for member_id, hand in hands.items()}


def _subscribers(cluster: ClusterView, members: Members) -> dict[str, list[str]]:
    """The members that want each topic, in order."""
    subscribers: dict[str, list[str]] = {topic: [] for topic in subscribed_topics(cluster, members)}
    for member_id in in_order(members):
        for topic in subscribers.keys() & set(members[member_id].topics):
            subscribers[topic].append(member_id)
    return subscribers


def _anywhere(member_id: str, number: int) -> bool:
    return True


class _Cut:
    """One topic on its way to being divided: who may have how much, and what is left."""

    def __init__(
        self, topic: str, replica_racks: Sequence[frozenset[str]], member_ids: Sequence[str], racks: Racks
    ) -> None:
        self.topic = topic
        self.count = len(replica_racks)
        self.member_ids = member_ids
        self.given: dict[str, list[int]] = {}
        self._left = dict.fromkeys(range(self.count))
        self._quota, self._extras = divmod(self.count, len(member_ids))
        self._racks, self._replica_racks = racks, replica_racks
        known = {racks[member_id] for member_id in member_ids if member_id in racks} if racks else set()
        self.racks_matter = bool(known) and racks_matter(known, replica_racks)

    def near(self, member_id: str, number: int) -> bool:
        """Whether a replica is in the member's rack; a member without a rack is near everything."""
        rack = self._racks.get(member_id)
        return rack is None or rack in self._replica_racks[number]

    def room(self, member_id: str) -> int:
        """How many more the member may get: the quota, and one extra while there are extras."""
        limit = self._quota + (1 if self._extras > 0 else 0)
        return max(0, limit - len(self.given.get(member_id, ())))

    def give(self, member_id: str, numbers: Iterable[int]) -> None:
        mine = self.given.setdefault(member_id, [])
        for number in numbers:
            mine.append(number)
            del self._left[number]
        if len(mine) > self._quota:
            self._extras -= 1

    def assign_runs(self, allowed: Callable[[str, int], bool]) -> None:
        """Give each member in turn the first partitions left that it is allowed to have, up to its room."""
        for member_id in self.member_ids:
            if not self._left:
                break
            suitable = (number for number in self._left if allowed(member_id, number))
            if numbers := list(islice(suitable, self.room(member_id))):
                self.give(member_id, numbers)


def _assign_near(cuts: Iterable[_Cut]) -> None:
    """Place what can be near. Topics with the same members and partition counts are placed together."""
    alike: dict[tuple[frozenset[str], int], list[_Cut]] = {}
    for cut in cuts:
        alike.setdefault((frozenset(cut.member_ids), cut.count), []).append(cut)
    for group in alike.values():
        if len(group) > 1:
            _assign_together(group)
        elif group[0].racks_matter:
            group[0].assign_runs(group[0].near)


def _assign_together(group: Sequence[_Cut]) -> None:
    """Give equal partition numbers of all these topics to one member that is near to all of them."""
    candidates = dict.fromkeys(group[0].member_ids)
    for number in range(group[0].count):
        member_id = _first_near_all(candidates, group, number)
        if member_id is None:
            continue
        for cut in group:
            cut.give(member_id, [number])
        if not any(cut.room(member_id) for cut in group):  # full: no need to ask again
            del candidates[member_id]


def _first_near_all(candidates: Iterable[str], group: Sequence[_Cut], number: int) -> str | None:
    for member_id in candidates:
        if all(cut.near(member_id, number) and cut.room(member_id) for cut in group):
            return member_id
    return None
