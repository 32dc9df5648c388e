"""A classic group in memory: its state, members and protocols. The handlers decide; this keeps the books.

What must survive a restart is in ``store``, which only ``apply`` writes; a restored group is built from it.
Everything else here (joins, syncs, parked requests) may be lost at any moment: members then join again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from millstream.broker.groups.outcome import Parked
from millstream.broker.groups.state.members import Member, Protocols, restored_member
from millstream.broker.groups.state.records import GroupSnapshot
from millstream.broker.groups.state.states import ALLOWED, GroupState
from millstream.broker.groups.state.subscriptions import CONSUMER, topics_of
from millstream.errors import ErrorCode
from millstream.model import TopicPartition


class ClassicGroup:
    """One group whose members assign the partitions among themselves.

    Invariants: ``awaiting_joins`` counts the members with a parked join; at least one protocol is supported
    by every member; every instance id maps to a member that is here; the leader is a member, or None when
    there are none; syncs are parked in COMPLETING_REBALANCE only.
    """

    group_type: ClassVar[str] = "classic"  # as ListGroups shows it

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = None  # epoch
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # instance id -> member id
        self.pending: set[str] = set()
        """Member ids sent with MEMBER_ID_REQUIRED that no client has joined with yet."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.awaiting_joins = 0
        self.is_initial_round = False
        """In PREPARING_REBALANCE: the group was empty, and waits briefly for more first members."""
        self.initial_round_left_ms = 0
        self.joined_in_round = False
        """In the initial round: a member joined since the wait last started."""
        self.storing_generation: int | None = None
        """The generation whose assignment is being written."""
        self.closing = False
        """Its tombstones are being written."""
        self.writes_in_flight: list[int] = []
        """The tokens of this group's writes that are neither durable nor failed."""
        self.uncommitted: Counter[TopicPartition] = Counter()
        """Partitions with offset records that are being written."""
        self._support: Counter[str] = Counter()
        self._topics: frozenset[str] | None = None

    @classmethod
    def restored(cls, group_id: str, stored: GroupSnapshot) -> ClassicGroup:
        """Build the group of a stored record: stable with its members, or empty."""
        group = cls(group_id)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol = stored.protocol
        for member in stored.members:
            if member.member_id not in group.members and member.instance_id not in group.static_ids:
                group.add(restored_member(member, stored.protocol), group.protocol_type)
        if stored.leader in group.members:
            group.leader = stored.leader
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.state_since_ms = stored.state_since_ms
        group.refresh_topics()
        return group

    # ---- state ----

    def enter(self, state: GroupState, epoch_ms: int) -> None:
        """Change to a state that the table of transitions allows."""
        assert state in ALLOWED[self.state], f"group {self.group_id!r}: {self.state} to {state}"
        self.state = state
        self.state_since_ms = epoch_ms

    def next_generation(self, epoch_ms: int) -> None:
        """End the join phase with the present members."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.unsynced = set(self.members)
        self.is_initial_round = False
        self.enter(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, epoch_ms)
        self.refresh_topics()

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupSnapshot:
        """Return the group as a record stores it; ``assignments`` replaces the present assignments."""
        members = tuple(
            member.snapshot(
                self.protocol,
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupSnapshot(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_since_ms=self.state_since_ms,
            members=members,
        )

    # ---- members ----

    def add(self, member: Member, protocol_type: str | None) -> None:
        """Add a member. The first becomes the leader, and its protocol type the group's."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        self._count_support(member.protocols, 1)
        self.awaiting_joins += member.join is not None

    def remove(self, member_id: str) -> Member:
        """Remove a member. The caller answers its parked requests; the next member becomes the leader."""
        member = self.members.pop(member_id)
        self._count_support(member.protocols, -1)
        self.awaiting_joins -= member.join is not None
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Replace the id of a static member everywhere."""
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self.unsynced:
            self.unsynced.remove(member.member_id)
            self.unsynced.add(member_id)
        assert member.instance_id is not None, "only static members change their id"
        self.static_ids[member.instance_id] = member_id
        member.member_id = member_id
        self.members[member_id] = member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count_support(member.protocols, -1)
        member.protocols = protocols
        self._count_support(protocols, 1)

    def park_join(self, member: Member, parked: Parked) -> Parked | None:
        """Park the member's join; return the one that it replaces, if any."""
        superseded, member.join = member.join, parked
        self.awaiting_joins += superseded is None
        return superseded

    def take_join(self, member: Member) -> Parked | None:
        """Remove and return the member's parked join, to be answered."""
        parked, member.join = member.join, None
        self.awaiting_joins -= parked is not None
        return parked

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined and no member id is pending."""
        return self.awaiting_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, otherwise take the first member that has; False if none has."""
        if self.leader is not None and self.members[self.leader].join is not None:
            return True
        joined = next((member for member in self.members.values() if member.join is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return why the caller is not a member: fenced if another one has its instance id by now."""
        if instance_id is not None:
            owner = self.static_ids.get(instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- protocols ----

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Return whether a member with these protocols can join the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self._support[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes, among those that every member supports.

        In a tie the present one stays, so that a static member that rejoins does not change it.
        """
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        winner, most = votes.most_common(1)[0]
        if self.protocol is not None and votes[self.protocol] == most:
            return self.protocol
        return winner

    def _count_support(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            self._support[name] += by
            if not self._support[name]:
                del self._support[name]

    # ---- subscriptions ----

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def knows_topics(self) -> bool:
        return self._topics is not None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members subscribe to the topic; True if their subscriptions cannot be read."""
        if self._topics is None:
            return self.uses_consumer_protocol
        return topic in self._topics

    def refresh_topics(self) -> None:
        """Read the members' subscriptions again, after a new generation or a changed member."""
        self._topics = topics_of(self._subscriptions()) if self.uses_consumer_protocol else None

    def _subscriptions(self) -> Iterable[bytes]:
        # Members with the same topics mostly send the same bytes: read those once.
        return {member.metadata(self.protocol) for member in self.members.values()}

    # ---- writes ----

    def settle_offsets(self, partitions: Iterable[TopicPartition]) -> None:
        """Offset records are durable or have failed."""
        for partition in partitions:
            self.uncommitted[partition] -= 1
            if not self.uncommitted[partition]:
                del self.uncommitted[partition]

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, no pending member ids and no writes in flight."""
        return self.state is GroupState.EMPTY and not self.pending and not self.writes_in_flight
