"""MemberState: a member's state and its transitions, which ``responses`` and ``core`` decide on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from millstream.config import ConsumerConfig
from millstream.consumer.assignors.base import NO_GENERATION, Assignor, ClusterView, RebalanceProtocol
from millstream.consumer.assignors.registry import common_protocol, resolve_assignors
from millstream.consumer.membership.heartbeats import HeartbeatTimer
from millstream.consumer.membership.leader import AssignedRacks, EncodedAssignments, GroupMembers
from millstream.consumer.membership.leaves import Leaves
from millstream.consumer.membership.lookup import CoordinatorLookup
from millstream.consumer.membership.ownership import Ownership
from millstream.consumer.membership.phases import ALLOWED, COMMITTING, HEARTBEATING, JOINED, MemberPhase
from millstream.consumer.membership.values import (
    Event,
    Failed,
    GroupMetadata,
    JoinStarted,
)
from millstream.consumer.sends import retry_delay
from millstream.errors import AuthenticationError, MillstreamError
from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class WantedTopics:
    """The topics that the user wants. A pattern also accepts topics that this member has yet to hear of."""

    topics: frozenset[str]
    accepts: Callable[[str], bool] | None = None

    def includes(self, topic: str) -> bool:
        return topic in self.topics or (self.accepts is not None and self.accepts(topic))


class MemberState:
    """The state of a member, with the transitions that keep it consistent."""

    refused_login: AuthenticationError | None = None
    """Why the member was lost, if the brokers do not let it in: commits say the same as polls."""

    def __init__(self, config: ConsumerConfig, chance: Callable[[], float]) -> None:
        assert config.group_id is not None, "only a group has members"
        self.config = config
        self.assignors = resolve_assignors(config.partition_assignment_strategy)
        self.protocol = common_protocol(self.assignors)
        """How partitions change hands; it does not depend on the assignor that the coordinator chooses."""
        self.events: list[Event] = []
        emit = self.events.append
        self.delay_ms = retry_delay(config, chance)
        self.lookup = CoordinatorLookup(self.delay_ms, emit)
        self.heartbeats = HeartbeatTimer(config, self.delay_ms)
        self.leaves = Leaves(self.delay_ms, emit)
        self.ownership = Ownership(emit)

        self.phase = MemberPhase.UNJOINED
        self.since_ms: int | None = None
        self.who = GroupMetadata(config.group_id, group_instance_id=config.group_instance_id)
        self.error: MillstreamError | None = None
        self.loss_reason = ""
        self.closing = False
        self.leave_reason, self.leave_deadline_ms = "", 0

        self.wanted: WantedTopics | None = None
        self.joined_topics: frozenset[str] = frozenset()
        """The subscription that the coordinator has."""
        self.rejoin_reason: str | None = None
        """Why the member must rejoin; None when it need not."""
        self.join_reason = ""
        """Why the current rebalance was begun."""
        self.exchange: int | None = None
        """The token of the JoinGroup or SyncGroup in flight."""
        self.exchange_sent_ms = 0
        self.retry_at_ms = self.attempts = 0
        self.mismatches = 0
        """How often in a row an assignment did not suit the subscription."""

        self.polled_ms, self.is_in_poll = 0, False
        self.may_go = False
        """poll() has been called since there was a reason to join: joining begins only inside poll(), as
        the user's thread must give partitions up."""

        self.cluster = ClusterView({})
        self.looked_up: frozenset[str] = frozenset()
        self.protocol_name = ""
        self.group_members: GroupMembers | None = None
        """The members of the generation, for its leader."""
        self.assigned_with: AssignedRacks = {}
        """The metadata that the generation's assignment was made with, for its leader."""
        # When partitions that were to move must have been given up, for the leader of the generation.
        self.moves_until_ms: int | None = None
        self.must_review = False
        """Is back in a generation that was kept for it, and must find out what was assigned in it."""
        self.review: int | None = None
        """The token of the DescribeGroups in flight."""
        self.assignments: EncodedAssignments = []
        self.settling: frozenset[TopicPartition] | None = None
        """The new assignment, while what is not part of it is being given up."""

    # ---- small questions ----

    @property
    def is_static(self) -> bool:
        return self.config.group_instance_id is not None

    @property
    def wants_to_begin(self) -> bool:
        """Whether there is a reason to join, and the user's thread can take part."""
        if self.wanted is None or not (self.may_go or self.is_in_poll) or not self.ownership.idle:
            return False
        return self.phase is MemberPhase.UNJOINED or (
            self.phase is MemberPhase.STABLE and self.rejoin_reason is not None
        )

    @property
    def needs_coordinator(self) -> bool:
        return self.phase in JOINED or self.lookup.wanted or self.leaves.pending or self.wants_to_begin

    @property
    def is_beating(self) -> bool:
        """Whether heartbeats are to be sent: the coordinator counts on this member in its generation."""
        return self.phase in HEARTBEATING and self.who.generation_id != NO_GENERATION

    @property
    def poll_deadline_ms(self) -> int | None:
        """When a user who does not call poll() is taken out of the group."""
        if self.is_in_poll or self.phase not in JOINED or self.phase is MemberPhase.LEAVING:
            return None
        return self.polled_ms + self.config.max_poll_interval_ms

    @property
    def lease_deadline_ms(self) -> int | None:
        """When partitions count as lost because the coordinator has not confirmed the member for too long.

        While it holds a JoinGroup or SyncGroup it keeps the member, for as long as the connection lasts.
        """
        beats = self.heartbeats
        if self.is_beating:
            return min(beats.session_until_ms, beats.generation_until_ms)
        if (
            self.phase in (MemberPhase.JOINING, MemberPhase.SYNCING)
            and self.exchange is None
            and self.ownership.owned
        ):
            return beats.session_until_ms
        return None

    def assignor(self) -> Assignor | None:
        """The assignor that the coordinator chose."""
        return next((a for a in self.assignors if a.name == self.protocol_name), None)

    # ---- moves ----

    def move_to(self, phase: MemberPhase, now_ms: int) -> None:
        assert phase in ALLOWED[self.phase], f"{self.phase} to {phase}"
        self.phase, self.since_ms = phase, now_ms
        self.exchange = None
        if phase not in HEARTBEATING:
            self.heartbeats.stop()

    def retry_later(self, now_ms: int) -> None:
        """Send the next JoinGroup or SyncGroup after a back-off."""
        self.exchange = None
        self.attempts += 1
        self.retry_at_ms = now_ms + self.delay_ms(self.attempts)

    def request_rejoin(self, reason: str) -> None:
        """Rejoin in the next poll(), or now if the user waits in one."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason
            self.may_go = False

    def begin(self, reason: str, now_ms: int) -> None:
        """Give up what must not be kept, and then join.

        An eager member gives up everything; a cooperative one only what it no longer subscribes to (KIP-429).
        """
        assert self.wanted is not None
        self.join_reason, self.rejoin_reason = reason, None
        self._forget_assignment()
        kept = self.wanted.topics if self.protocol is RebalanceProtocol.COOPERATIVE else frozenset[str]()
        leaving = [partition for partition in self.ownership.owned if partition.topic not in kept]
        if leaving:
            self.move_to(MemberPhase.PREPARING, now_ms)
            self.ownership.revoke(leaving)
        else:
            self.join(now_ms)

    def join(self, now_ms: int) -> None:
        self.move_to(MemberPhase.JOINING, now_ms)
        self.events.append(JoinStarted(self.join_reason))

    def lose(self, reason: str, now_ms: int, *, keep_member_id: bool) -> None:
        """The coordinator has removed this member: what it owns is lost, and it must rejoin."""
        member_id = self.who.member_id if keep_member_id else ""
        self.who = replace(self.who, generation_id=NO_GENERATION, member_id=member_id)
        self._forget_generation()
        self.loss_reason, self.refused_login = reason, None
        self.ownership.lose(reason)
        if self.phase is MemberPhase.LEAVING:
            return
        self.rejoin_reason = reason
        if self.phase in COMMITTING:
            self.may_go = False
        if self.phase is not MemberPhase.UNJOINED:
            self.move_to(MemberPhase.UNJOINED, now_ms)

    def fail(self, error: MillstreamError, now_ms: int) -> None:
        """The group refuses this member for a reason that only the user can do something about."""
        if self.phase in (MemberPhase.LEAVING, MemberPhase.CLOSED, MemberPhase.FAILED):
            return
        self.give_back_member_id("the consumer failed", now_ms + self.config.session_timeout_ms)
        self.lose(str(error), now_ms, keep_member_id=False)
        self.error = error
        self.refused_login = error if isinstance(error, AuthenticationError) else None
        self.move_to(MemberPhase.FAILED, now_ms)
        self.events.append(Failed(error))

    def coordinator_lost(self, reason: str, now_ms: int) -> None:
        self.lookup.lost(reason, now_ms)

    def _forget_generation(self) -> None:
        self.group_members = self.settling = None
        self._forget_assignment()

    def _forget_assignment(self) -> None:
        self.assigned_with = {}
        self.assignments = []
        self.must_review, self.review = False, None
        self.moves_until_ms = None

    # ---- leaving ----

    def give_up(self, now_ms: int) -> None:
        """Leave the group: on_revoked first, as long as the coordinator still counts on the member."""
        graceful = self.phase in COMMITTING
        self.wanted = self.rejoin_reason = self.settling = None
        self.move_to(MemberPhase.LEAVING, now_ms)
        if not graceful:
            self.ownership.lose(self.leave_reason)
        self.go_on_leaving(now_ms)

    def go_on_leaving(self, now_ms: int) -> None:
        """Revoke what is left once no callback is pending, and leave once nothing is left."""
        if not self.ownership.idle:
            return
        if self.ownership.owned:
            self.ownership.revoke(self.ownership.owned)
        else:
            self._left(now_ms)

    def _left(self, now_ms: int) -> None:
        self.give_back_member_id(self.leave_reason, self.leave_deadline_ms)
        self.who = replace(self.who, generation_id=NO_GENERATION, member_id="")
        self._forget_generation()
        self.loss_reason = ""
        self.may_go = False
        self.move_to(MemberPhase.CLOSED if self.closing else MemberPhase.UNJOINED, now_ms)

    def give_back_member_id(self, reason: str, deadline_ms: int) -> None:
        """Leave the group on the wire. A static member stays, to be back within its session (KIP-345)."""
        if self.who.member_id and not self.is_static:
            self.leaves.add(self.who.member_id, reason, deadline_ms)
