"""Planted bugs of a member: how it joins, what it keeps, and when it lets go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final
from unittest.mock import PropertyMock, patch

from millstream.consumer.assignors import sticky
from millstream.consumer.assignors.base import Assignment, Members
from millstream.consumer.membership import leader, responses
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.heartbeats import HeartbeatTimer
from millstream.consumer.membership.leaves import Leaves
from millstream.consumer.membership.outbox import Outbox
from millstream.consumer.membership.ownership import Ownership
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.state import MemberState
from millstream.errors import ErrorCode
from tests.sim.families import isolated, new_topic
from tests.sim.planted.mutation import Mutation, nothing


def _eager_keeps_partitions() -> tuple[Any, ...]:
    def begin(self: MemberState, reason: str, now_ms: int) -> None:
        self.join_reason, self.rejoin_reason = reason, None
        self._forget_assignment()
        self.join(now_ms)

    return (patch.object(MemberState, "begin", begin),)


def _claims_nothing() -> tuple[Any, ...]:
    original = Outbox._subscriptions

    def subscriptions(self: Outbox) -> dict[str, bytes]:
        owned, self._state.ownership.owned = self._state.ownership.owned, frozenset()
        try:
            return original(self)
        finally:
            self._state.ownership.owned = owned

    return (patch.object(Outbox, "_subscriptions", subscriptions),)


def _moves_at_once() -> tuple[Any, ...]:
    def as_planned(self: Any, cluster: Any, members: Members) -> Mapping[str, Assignment]:
        hands, _ = self.plan(cluster, members)
        return sticky._assignments(members, hands)

    def let_through(assignments: Mapping[str, Assignment], members: Members) -> Mapping[str, Assignment]:
        return assignments

    return (
        patch.object(sticky.CooperativeStickyAssignor, "assign", as_planned),
        patch.object(leader, "withhold_claimed", let_through),
    )


def _does_not_rejoin() -> tuple[Any, ...]:
    original = responses._settle

    def settle(state: MemberState, assignment: Assignment, now_ms: int) -> None:
        original(state, assignment, now_ms)
        state.rejoin_reason = None

    return (patch.object(responses, "_settle", settle),)


def _no_lease() -> tuple[Any, ...]:
    return (patch.object(MemberState, "lease_deadline_ms", PropertyMock(return_value=None)),)


def _late_lease() -> tuple[Any, ...]:
    original = HeartbeatTimer.confirmed

    def confirmed(self: HeartbeatTimer, *, settled: bool) -> None:
        self._sent_ms += 2_500
        original(self, settled=settled)

    return (patch.object(HeartbeatTimer, "confirmed", confirmed),)


def _joins_during_callbacks() -> tuple[Any, ...]:
    original = MemberState.begin

    def begin(self: MemberState, reason: str, now_ms: int) -> None:
        original(self, reason, now_ms)
        if self.phase is MemberPhase.PREPARING:
            self.join(now_ms)

    return (patch.object(MemberState, "begin", begin),)


def _loss_unnoticed() -> tuple[Any, ...]:
    return (patch.object(Ownership, "lose", nothing),)


def _metadata_unwatched() -> tuple[Any, ...]:
    return (patch.object(responses, "watch_metadata", nothing),)


def _pattern_joins_blind() -> tuple[Any, ...]:
    return (patch.object(Membership, "_knows_topics", lambda self: True),)


def _static_leaves() -> tuple[Any, ...]:
    return (patch.object(MemberState, "is_static", PropertyMock(return_value=False)),)


def _fenced_goes_on() -> tuple[Any, ...]:
    original = responses._refused

    def refused(state: MemberState, code: int, request: str, now_ms: int) -> None:
        fenced = code == ErrorCode.FENCED_INSTANCE_ID
        original(state, ErrorCode.UNKNOWN_MEMBER_ID if fenced else code, request, now_ms)

    return (patch.object(responses, "_refused", refused),)


def _stalled_user_stays() -> tuple[Any, ...]:
    return (
        patch.object(MemberState, "poll_deadline_ms", PropertyMock(return_value=None)),
        patch.object(HeartbeatTimer, "confirmed", _confirmed_for_ever),
    )


def _confirmed_for_ever(self: Any, *, settled: bool) -> None:
    self.in_flight = None
    self.session_until_ms = self.generation_until_ms = sys.maxsize


def _never_leaves() -> tuple[Any, ...]:
    return (patch.object(Leaves, "add", nothing),)


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "eager-keeps-partitions": Mutation(
        "a member of an eager group joins without giving its partitions up", _eager_keeps_partitions
    ),
    "claims-nothing": Mutation("a cooperative member joins without saying what it owns", _claims_nothing),
    "moves-at-once": Mutation(
        "the leader of a cooperative group gives a partition away while it is owned", _moves_at_once
    ),
    "does-not-rejoin": Mutation(
        "a cooperative member that gave partitions up does not rejoin for them to be assigned",
        _does_not_rejoin,
    ),
    "no-lease": Mutation("a member without a coordinator keeps its partitions for ever", _no_lease, isolated),
    "late-lease": Mutation(
        "leases count from well after a heartbeat was sent, so that they end after the session",
        _late_lease,
        isolated,
    ),
    "joins-during-callbacks": Mutation("a member joins before on_revoked has ended", _joins_during_callbacks),
    "loss-unnoticed": Mutation(
        "a member that is thrown out goes on as if nothing had happened", _loss_unnoticed
    ),
    "metadata-unwatched": Mutation("the leader does not notice new partitions", _metadata_unwatched),
    "pattern-joins-blind": Mutation(
        "a member with a pattern rejoins without looking for new topics", _pattern_joins_blind, new_topic
    ),
    "static-leaves": Mutation("a static member leaves the group when it is closed", _static_leaves),
    "fenced-goes-on": Mutation("a fenced member joins again, and fences the other one", _fenced_goes_on),
    "stalled-user-stays": Mutation(
        "a member whose user does not poll goes on sending heartbeats, with no end to its leases",
        _stalled_user_stays,
    ),
    "never-leaves": Mutation("close does not tell the coordinator", _never_leaves),
}
