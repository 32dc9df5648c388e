"""What must hold at every moment, whatever happens. ``Violation`` says what does not.

Definitions. A member *holds* a partition from the end of on_assigned until on_revoked has ended, or until
the loss is noticed (its I/O side stops handing out records then). Nobody may hold a partition while another
member takes it, in whatever generation, with two exceptions that the protocol cannot avoid:

- a static member that a process with its instance id replaces hears of it with its next heartbeat;
- a cooperative member keeps what it holds while the coordinator has its JoinGroup or SyncGroup. If that never
  arrived, or its answer never does, the group goes on without it, and it hears of that when its connection
  fails or the request times out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import GenerationRecord, GroupRecord, GroupSnapshot
from millstream.consumer.assignors.base import Assignment, Subscription
from millstream.consumer.assignors.protocol import decode_assignment, decode_subscription
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.values import Wait
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_offsets import OffsetCommitRequest
from millstream.wire.messages.groups import JoinGroupRequest, JoinGroupResponse
from millstream.wire.schema import Request, Response
from tests.sim.world import Violation, World


class Holder(Protocol):
    """A member, as far as it is watched."""

    name: str
    identity: str
    """Who it is across restarts."""

    @property
    def membership(self) -> Membership: ...


class Watched(Protocol):
    """The cluster, as far as it is watched."""

    def group(self) -> ClassicGroup | None: ...


class Invariants:
    """Sees everything, and raises as soon as something is wrong."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster: Watched | None = None
        self.check_assignments = True
        self.is_orderly = False
        """Whether there are no faults: then nothing is read twice, and who leaves has left at once."""
        self.holders: dict[TopicPartition, list[Holder]] = {}
        self.delivered_end: dict[TopicPartition, int] = {}
        self.processed_end: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.generation = 0
        """The last durable generation."""
        self._begun = 0
        """The last generation that some member has been told of."""
        self._participants: set[tuple[int, str]] = set()
        self._granted: dict[tuple[int, TopicPartition], str] = {}
        self._stopped_at: dict[TopicPartition, int | None] = {}
        self.given_up = 0
        """How many partitions members have given up or lost: nothing must move without a reason."""

    def fail(self, text: str) -> None:
        self.world.note(f"VIOLATION: {text}")
        raise Violation(text)

    # ---- ownership ----

    def handed_over(self, member: Holder, added: Iterable[TopicPartition], generation: int) -> None:
        """on_assigned has ended: ``added`` are the member's."""
        for partition in added:
            key = generation, partition
            owner = self._granted.setdefault(key, member.identity)
            if owner != member.identity:
                self.fail(
                    f"{partition} has two owners in generation {generation}: {owner}, {member.identity}"
                )
            holders = self.holders.setdefault(partition, [])
            for other in holders:
                self._check_zombie(other, partition, member, generation)
            holders.append(member)

    def _check_zombie(
        self, holder: Holder, partition: TopicPartition, taker: Holder, generation: int
    ) -> None:
        """A partition is taken while somebody holds it: there are only two excuses."""
        member_id = holder.membership.metadata.member_id
        if holder.identity == taker.identity:
            if member_id in self._member_ids():
                self.fail(f"{taker.name} replaces {holder.name}, which is still a member")
        elif holder.membership.waiting().what not in (Wait.MEMBERS, Wait.LEADER):
            self.fail(f"{taker.name} takes {partition} while {holder.name} holds it")
        elif member_id in self._member_ids() and (generation, member_id) in self._participants:
            self.fail(f"{taker.name} takes {partition} while {holder.name}, a member, holds it")

    def _member_ids(self) -> Iterable[str]:
        assert self.cluster is not None
        group = self.cluster.group()
        return () if group is None else group.members

    def released(self, member: Holder, partitions: Iterable[TopicPartition]) -> None:
        """The member gave partitions up, lost them, or died."""
        for partition in partitions:
            self.holders[partition].remove(member)
            self.given_up += 1

    def has_left(self, member: Holder, member_id: str) -> None:
        """The member has unsubscribed or closed: soon the coordinator knows."""
        if self.is_orderly:
            self.world.later(500, self._check_left, member.name, member_id)

    def _check_left(self, name: str, member_id: str) -> None:
        if self.is_orderly and member_id in self._member_ids():
            self.fail(f"{name} has left, and {member_id} is still a member")

    # ---- records and offsets ----

    def begun(self, member: Holder, partition: TopicPartition, start: int) -> None:
        """The member has got its first record of a partition."""
        stopped = self._stopped_at.pop(partition, None)
        if self.is_orderly and stopped is not None and start != stopped:
            self.fail(f"{member.name} begins {partition} at {start}, and {stopped} was committed")

    def stopped(self, partition: TopicPartition, offset: int | None) -> None:
        """A partition was revoked. ``offset``: all before it was committed, unless it is None."""
        if offset is not None or partition not in self._stopped_at:
            self._stopped_at[partition] = offset

    def delivered(self, member: Holder, partition: TopicPartition, start: int, end: int) -> None:
        if member not in self.holders.get(partition, ()):
            self.fail(f"{member.name} delivers {partition} without holding it")
        known = self.delivered_end.get(partition, 0)
        if start > known:
            self.fail(f"{member.name} starts {partition} at {start}: {known} to {start} are lost")
        self.delivered_end[partition] = max(known, end)

    def processed(self, partition: TopicPartition, end: int) -> None:
        self.processed_end[partition] = max(self.processed_end.get(partition, 0), end)

    def acknowledged(self, member: Holder, partition: TopicPartition, offset: int) -> None:
        """A commit has succeeded in the eyes of its maker."""
        if self.committed.get(partition, -1) < offset:
            self.fail(
                f"{member.name} was told that {partition} at {offset} is committed: it is not on the disk"
            )

    def commit_accepted(self, request: OffsetCommitRequest, member: Holder) -> None:
        """The coordinator is about to write a commit down."""
        generation = request.generation_id_or_member_epoch
        if generation != self._begun:
            self.fail(f"a commit of generation {generation} is stored in generation {self._begun}")
        if request.member_id not in self._member_ids():
            self.fail(f"a commit of {request.member_id}, who is no member, is stored")
        if request.member_id != member.membership.metadata.member_id:
            return  # from a former life of the member, which the coordinator still knows
        for topic in request.topics:
            for partition in topic.partitions:
                self._check_owner(TopicPartition(topic.name, partition.partition_index), member)

    def _check_owner(self, partition: TopicPartition, member: Holder) -> None:
        owner = self._granted.get((self._begun, partition), member.identity)
        if owner != member.identity:
            self.fail(f"{member.name} commits {partition}, which {owner} owns in generation {self._begun}")

    # ---- what the coordinator says and writes ----

    def replied(self, request_type: type[Request], response: Response) -> None:
        if request_type is not JoinGroupRequest or not isinstance(response, JoinGroupResponse):
            return
        if response.error_code != ErrorCode.NONE:
            return
        if response.generation_id < self.generation:
            self.fail(f"generation {response.generation_id} begins after {self.generation} was stored")
        self._begun = max(self._begun, response.generation_id)
        self._participants.add((response.generation_id, response.member_id))

    def coordinator_gone(self) -> None:
        """A generation that was begun and not stored is forgotten."""
        self._begun = self.generation

    def durable(self, record: GroupRecord) -> None:
        """A record is on the disk."""
        if isinstance(record, GenerationRecord):
            if record.value is not None:
                self._check_generation(record.value)
            return
        if record.value is None:
            return
        partition, offset = record.partition, record.value.offset
        if offset > self.processed_end.get(partition, 0):
            self.fail(f"{partition} is committed at {offset}, beyond what anybody has processed")
        if offset < self.committed.get(partition, 0):
            self.fail(f"{partition} is committed at {offset}, after {self.committed[partition]}")
        self.committed[partition] = offset

    def _check_generation(self, group: GroupSnapshot) -> None:
        if group.generation < self.generation:
            self.fail(f"generation {group.generation} is stored after {self.generation}")
        self.generation = group.generation
        self._begun = max(self._begun, group.generation)
        self.world.note(f"generation {group.generation} of {len(group.members)} is stored")
        if self.check_assignments:
            members = {
                member.member_id: (
                    decode_subscription(member.subscription),
                    decode_assignment(member.assignment),
                )
                for member in group.members
            }
            self._check_assignments(members)

    def _check_assignments(self, members: dict[str, tuple[Subscription, Assignment]]) -> None:
        claims: dict[TopicPartition, set[str]] = {}
        for member_id, (subscription, _) in members.items():
            for partition in subscription.owned_partitions:
                claims.setdefault(partition, set()).add(member_id)
        owners: dict[TopicPartition, str] = {}
        for member_id, (_, assignment) in members.items():
            for partition in assignment.partitions:
                other = owners.setdefault(partition, member_id)
                if other != member_id:
                    self.fail(f"{partition} is assigned to {other} and to {member_id}")
                claimed_by = claims.get(partition, {member_id})
                if member_id not in claimed_by:
                    self.fail(f"{partition} is assigned to {member_id} while {claimed_by} own it")
