"""Handles the coordinator's responses, and metadata changes while this member leads the group."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from millstream.consumer.assignors.base import NO_GENERATION, Assignment, ClusterView, RebalanceProtocol
from millstream.consumer.assignors.protocol import PROTOCOL_TYPE, decode_assignment
from millstream.consumer.membership import leader
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.reactions import Reaction, reaction_to
from millstream.consumer.membership.requests import coordinator_of, leave_error
from millstream.consumer.membership.state import MemberState
from millstream.consumer.membership.values import Joined, TopicsWatched
from millstream.errors import (
    BrokerError,
    CorruptMessage,
    ErrorCode,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    MillstreamError,
    for_code,
)
from millstream.wire.messages.group_admin import DescribedGroup, DescribeGroupsResponse
from millstream.wire.messages.groups import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

_MISMATCHES_TOLERATED: Final = 3
_STABLE: Final = "Stable"
"""The state of a group that has an assignment, as DescribeGroups says it."""


def coordinator_answered(state: MemberState, response: FindCoordinatorResponse, now_ms: int) -> None:
    """Use the coordinator, ask again later, or report that the group refuses this member."""
    node, code, message = coordinator_of(response)
    if code == ErrorCode.NONE:
        state.lookup.found(node)
        return
    state.lookup.failed(message or for_code(code).meaning, now_ms)
    if reaction_to(code) is Reaction.FAIL:
        state.fail(_error(state, code, message), now_ms)


# ---- joining ----


def join_answered(state: MemberState, response: JoinGroupResponse, now_ms: int) -> None:
    """A generation has begun, or the join must be repeated, perhaps with the id that the answer brings."""
    code = response.error_code
    if code == ErrorCode.NONE:
        _joined(state, response, now_ms)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        state.who = replace(state.who, generation_id=NO_GENERATION, member_id=response.member_id)
        state.exchange, state.retry_at_ms = None, now_ms
    elif reaction_to(code) is Reaction.REJOIN:
        state.retry_later(now_ms)
    else:
        _refused(state, code, "JoinGroup", now_ms)


def _joined(state: MemberState, response: JoinGroupResponse, now_ms: int) -> None:
    """The leader assigns the generation's partitions; the others wait for that."""
    is_back = state.is_static and state.who.generation_id == NO_GENERATION
    state.who = replace(state.who, generation_id=response.generation_id, member_id=response.member_id)
    state.protocol_name = response.protocol_name or ""
    state.attempts = state.retry_at_ms = 0
    state.heartbeats.start(state.exchange_sent_ms, now_ms)
    state.group_members = None
    state.assignments = []
    leads = response.leader == response.member_id
    state.events.append(Joined(response.generation_id, response.member_id, leads))
    if response.protocol_type not in (None, PROTOCOL_TYPE) or state.assignor() is None:
        chosen = f"{state.protocol_name!r} of type {response.protocol_type!r}"
        detail = f"the group {state.who.group_id!r} has chosen {chosen}"
        state.fail(InconsistentGroupProtocolError(detail), now_ms)
    elif leads:
        _lead(state, response, now_ms)
    else:
        state.must_review = is_back
        state.move_to(MemberPhase.SYNCING, now_ms)


def _lead(state: MemberState, response: JoinGroupResponse, now_ms: int) -> None:
    state.group_members = leader.read_members(response.members)
    state.events.append(TopicsWatched(state.group_members.topics))
    if response.skip_assignment:
        # A static leader is back within its session: the generation and its assignment stay (KIP-814).
        state.must_review = True
        state.move_to(MemberPhase.SYNCING, now_ms)
    elif has_metadata(state):
        assign(state, now_ms)
    else:
        state.move_to(MemberPhase.ASSIGNING, now_ms)


def has_metadata(state: MemberState) -> bool:
    """Whether the leader knows about every topic of the group: that it exists, or that it does not."""
    return state.group_members is not None and state.looked_up.issuperset(state.group_members.topics)


def assign(state: MemberState, now_ms: int) -> None:
    """As leader, make the assignment and send it."""
    assignor = state.assignor()
    assert assignor is not None and state.group_members is not None
    try:
        state.assignments = leader.assign(
            assignor, state.protocol, state.cluster, state.group_members.members
        )
    except Exception as cause:  # noqa: BLE001 - it may be the user's code
        state.fail(_assignor_error(assignor.name, "assign", cause), now_ms)
        return
    if leader.has_moving(state.assignments, state.group_members.members):
        _expect_moves(state, now_ms)
    watch_metadata(state)
    state.move_to(MemberPhase.SYNCING, now_ms)


def _expect_moves(state: MemberState, now_ms: int) -> None:
    """As leader, ask for a rebalance if partitions that are to move have no owner after a while.

    Owners give them up and rejoin. But a static one that is back after a loss, or another process with its
    id, takes its assignment over without a rebalance, and no one would assign them.
    """
    if state.protocol is RebalanceProtocol.COOPERATIVE:
        limit_ms = state.config.max_poll_interval_ms + state.config.session_timeout_ms
        state.moves_until_ms = now_ms + limit_ms


def _assignor_error(name: str, method: str, cause: Exception) -> MillstreamError:
    error = MillstreamError(f"the assignor {name!r} failed in {method}(): {cause!r}")
    error.__cause__ = cause
    return error


def watch_metadata(state: MemberState) -> None:
    """As leader, ask for a rebalance when the partitions are not those that were assigned any more."""
    if state.group_members is None or state.must_review:
        return
    topics = state.looked_up.intersection(state.group_members.topics)
    current = leader.snapshot(state.cluster, topics, with_racks=bool(state.config.client_rack))
    changed = sorted(t for t in topics if state.assigned_with.setdefault(t, current[t]) != current[t])
    if changed:
        state.request_rejoin(f"the partitions of {', '.join(changed[:5])} have changed")


def review_answered(state: MemberState, response: DescribeGroupsResponse, now_ms: int) -> None:
    """As a static member that is back: no partition must stay without an owner.

    Its generation and assignment were kept. As leader, it finds partitions that were added while it was away
    or were to move when it left; otherwise, topics that its former subscription did not have. No other
    member would notice, and neither KIP-345 nor KIP-814 covers it.
    """
    state.review = None
    described = response.groups[0] if response.groups else None
    reaction = reaction_to(described.error_code) if described is not None and described.error_code else None
    if reaction is Reaction.LOOK_UP:
        state.coordinator_lost("it does not know the group", now_ms)
    if reaction in (Reaction.LOOK_UP, Reaction.RETRY):
        state.retry_later(now_ms)
    elif reaction is None and described is not None and described.group_state == _STABLE:
        _compare_with_assigned(state, described, now_ms)
    else:
        state.must_review = False


def _compare_with_assigned(state: MemberState, described: DescribedGroup, now_ms: int) -> None:
    state.must_review = False
    assigned = leader.assigned_partitions(described)
    counts = leader.assigned_counts(assigned)
    if state.group_members is None:
        missing = sorted(t for t in state.joined_topics if state.cluster.count(t) and t not in counts)
        if missing:
            state.request_rejoin(f"no member was assigned partitions of {', '.join(missing[:5])}")
        return
    if sum(counts.values()) > len(assigned):
        _expect_moves(state, now_ms)
    then = ClusterView.of({topic: counts.get(topic, 0) for topic in state.group_members.topics})
    state.assigned_with = {
        topic: then.racks[topic]
        for topic in state.group_members.topics
        if topic not in state.looked_up or then.count(topic) != state.cluster.count(topic)
    }
    watch_metadata(state)


# ---- the assignment ----


def sync_answered(state: MemberState, response: SyncGroupResponse, now_ms: int) -> None:
    """Take the assignment over, or take part in the rebalance that has made it void."""
    code = response.error_code
    if code == ErrorCode.NONE:
        _synced(state, response, now_ms)
    elif reaction_to(code) is Reaction.REJOIN:
        state.begin("the group began another rebalance", now_ms)
    else:
        _refused(state, code, "SyncGroup", now_ms)


def _synced(state: MemberState, response: SyncGroupResponse, now_ms: int) -> None:
    state.attempts = state.retry_at_ms = 0
    if response.protocol_name not in (None, state.protocol_name):
        detail = f"joined with {state.protocol_name!r}, assigned with {response.protocol_name!r}"
        state.fail(InconsistentGroupProtocolError(detail), now_ms)
        return
    try:
        assignment = decode_assignment(response.assignment)
    except CorruptMessage as error:
        state.fail(error, now_ms)
        return
    if _fits_subscription(state, assignment, now_ms):
        if state.group_members is None and state.joined_topics.issubset(
            p.topic for p in assignment.partitions
        ):
            state.must_review = False
        _settle(state, assignment, now_ms)


def _fits_subscription(state: MemberState, assignment: Assignment, now_ms: int) -> bool:
    """Whether the assignment suits the subscription; if not, rejoin.

    The subscription may have changed since it was sent. And a static member that is back with another one
    first gets the assignment of its former life (KIP-345). More often than that, the leader is to blame.
    """
    assert state.wanted is not None
    foreign = sorted({p.topic for p in assignment.partitions if not state.wanted.includes(p.topic)})
    if not foreign:
        state.mismatches = 0
        return True
    state.mismatches += 1
    if state.mismatches > _MISMATCHES_TOLERATED:
        state.mismatches = 0
        detail = f"the group's leader keeps assigning topics that are not subscribed: {', '.join(foreign)}"
        state.fail(MillstreamError(detail), now_ms)
    else:
        state.begin("the assignment does not suit the subscription", now_ms)
    return False


def _settle(state: MemberState, assignment: Assignment, now_ms: int) -> None:
    """Take the assignment over. What is owned and not part of it is given up first (KIP-429)."""
    assignor = state.assignor()
    assert assignor is not None
    try:
        assignor.on_assignment(assignment, state.who.generation_id)
    except Exception as cause:  # noqa: BLE001 - it may be the user's code
        state.fail(_assignor_error(assignor.name, "on_assignment", cause), now_ms)
        return
    state.heartbeats.start(state.exchange_sent_ms, now_ms)
    state.move_to(MemberPhase.SETTLING, now_ms)
    state.assignments = []
    state.settling = frozenset(assignment.partitions)
    leaving = state.ownership.owned - state.settling
    if leaving:
        state.ownership.revoke(leaving)
        state.rejoin_reason = "gave up partitions that move to other members"
    else:
        go_on_settling(state, now_ms)


def go_on_settling(state: MemberState, now_ms: int) -> None:
    """One callback after the other: on_revoked, on_assigned; then the generation counts."""
    if not state.ownership.idle:
        return
    if state.settling is not None:
        partitions, state.settling = state.settling, None
        state.ownership.assign(partitions, state.who.generation_id)
    else:
        state.loss_reason = ""
        state.move_to(MemberPhase.STABLE, now_ms)


# ---- heartbeats, leaving, errors ----


def heartbeat_answered(state: MemberState, response: HeartbeatResponse, now_ms: int) -> None:
    """The lease is extended, also when the answer is that the group rebalances."""
    code = response.error_code
    if code == ErrorCode.NONE:
        state.heartbeats.confirmed(settled=True)
    elif reaction_to(code) is Reaction.REJOIN:
        state.heartbeats.confirmed(settled=False)
        rebalance_noticed(state, now_ms)
    else:
        state.heartbeats.failed(now_ms)
        _refused(state, code, "Heartbeat", now_ms)


def rebalance_noticed(state: MemberState, now_ms: int) -> None:
    """Another rebalance has begun. A member that is not done with this one takes part when it is."""
    if state.phase is MemberPhase.ASSIGNING:
        state.begin("the group began another rebalance", now_ms)
    elif state.phase in (MemberPhase.STABLE, MemberPhase.SETTLING):
        state.request_rejoin("the group is rebalancing")


def leave_answered(state: MemberState, response: LeaveGroupResponse, now_ms: int) -> None:
    """The member id was given up, or was unknown already; other errors do not concern the user."""
    code = leave_error(response)
    reaction = reaction_to(code) if code != ErrorCode.NONE else None
    if reaction is Reaction.LOOK_UP:
        state.coordinator_lost(for_code(code).meaning, now_ms)
    if reaction in (Reaction.LOOK_UP, Reaction.RETRY):
        state.leaves.failed(now_ms)
    else:
        state.leaves.left()


def commit_refused(state: MemberState, code: int, now_ms: int) -> None:
    """A commit as the present member and generation was refused because of who commits."""
    if reaction_to(code) is Reaction.REJOIN:
        rebalance_noticed(state, now_ms)
    else:
        _refused(state, code, "OffsetCommit", now_ms)


def _refused(state: MemberState, code: int, request: str, now_ms: int) -> None:
    """Any request was refused: find the coordinator, rejoin, or report the error; after a back-off."""
    reaction = reaction_to(code)
    error = _error(state, code)
    if reaction is Reaction.LOOK_UP:
        state.coordinator_lost(error.meaning, now_ms)
    elif reaction is Reaction.FAIL:
        state.fail(error, now_ms)
    elif reaction is not Reaction.RETRY:
        reason = f"{request} was refused: {error.meaning.rstrip('.')}"
        state.lose(reason, now_ms, keep_member_id=reaction is Reaction.FORGET_GENERATION)
    state.retry_later(now_ms)


def _error(state: MemberState, code: int, message: str = "") -> BrokerError:
    named = f"group {state.who.group_id!r}"
    if for_code(code) is FencedInstanceIdError:
        named = f"group_instance_id {state.config.group_instance_id!r} in {named}"
    return for_code(code)(f"{named}: {message}" if message else named)
