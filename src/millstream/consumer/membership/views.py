"""What others ask of a member's state: what it waits for, and with which identity it may commit."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.consumer.assignors.base import NO_GENERATION
from millstream.consumer.membership.phases import COMMITTING, JOINED, MemberPhase
from millstream.consumer.membership.state import MemberState
from millstream.consumer.membership.values import GroupMetadata, Wait, Waiting
from millstream.errors import CommitFailedError, RebalanceInProgressError


def waiting(state: MemberState) -> Waiting:
    """What keeps a member from getting records."""
    if state.phase is MemberPhase.CLOSED:
        return Waiting(Wait.LEAVE if state.leaves.pending else Wait.CLOSED, state.since_ms)
    if state.phase is MemberPhase.FAILED:
        return Waiting(Wait.ERROR, state.since_ms, str(state.error))
    if not state.ownership.idle:
        return Waiting(Wait.CALLBACKS, state.since_ms, state.join_reason or state.loss_reason)
    if state.wanted is None:
        return Waiting(Wait.SUBSCRIPTION, state.since_ms)
    if state.lookup.node is None and state.needs_coordinator:
        return Waiting(Wait.COORDINATOR, state.lookup.since_ms, state.lookup.reason)
    return _waiting_for_others(state)


def _waiting_for_others(state: MemberState) -> Waiting:
    detail = state.join_reason
    if state.phase is MemberPhase.UNJOINED or (
        state.phase is MemberPhase.STABLE and state.rejoin_reason is not None
    ):
        return Waiting(Wait.POLL, state.since_ms, state.rejoin_reason or "")
    if state.phase is MemberPhase.ASSIGNING:
        return Waiting(Wait.METADATA, state.since_ms, detail)
    if state.phase not in (MemberPhase.JOINING, MemberPhase.SYNCING):
        return Waiting(Wait.NOTHING, state.since_ms)
    if state.exchange is None:
        return Waiting(Wait.RETRY, state.since_ms, detail)
    what = Wait.MEMBERS if state.phase is MemberPhase.JOINING else Wait.LEADER
    return Waiting(what, state.since_ms, detail)


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """The identity of a commit, and how often partitions had been given up by then.

    While ``gave_up`` stays the same, everything that was owned then is owned still, whatever the generation.
    """

    who: GroupMetadata
    gave_up: int


def commit_identity(state: MemberState) -> CommitIdentity:
    """The identity to commit with now; raises why that is not possible.

    Without a subscription the group is used for its offsets only, and there is no member.
    """
    if state.error is not None:
        raise state.error
    if state.phase in COMMITTING and state.who.generation_id != NO_GENERATION:
        return CommitIdentity(state.who, state.ownership.gave_up)
    if state.phase in JOINED and state.phase is not MemberPhase.LEAVING:
        raise RebalanceInProgressError("The offsets were not committed: call poll(), then commit again")
    if state.wanted is None and not state.loss_reason:
        return CommitIdentity(GroupMetadata(state.who.group_id), state.ownership.gave_up)
    if state.refused_login is not None and state.loss_reason:
        raise state.refused_login
    if not state.loss_reason:
        raise CommitFailedError("The offsets were not committed: call poll() to join the group first")
    raise CommitFailedError(
        f"The offsets were not committed, as the partitions are lost: {state.loss_reason}. "
        "Call poll() to rejoin"
    )
