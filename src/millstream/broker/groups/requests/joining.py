"""Handles JoinGroup: admits members, assigns their ids, and decides what a rejoin means in each state.

The path of a request: ``_request_error`` -> ``_has_room`` -> ``_join_as_new`` or ``_join_as_known`` -> the
join is parked for the rebalance, or answered at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.requests.rebalance import NO_MEMBER_ID, Rebalances
from millstream.broker.groups.requests.responses import join_error, joined, sync_error
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.members import Member, Protocols
from millstream.broker.groups.state.records import GenerationRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import GroupTable, session_timer
from millstream.errors import ErrorCode
from millstream.wire.messages.groups import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse

_REBALANCE_TIMEOUT_VERSION: Final = 1
_MEMBER_ID_REQUIRED_VERSION: Final = 4  # KIP-394
_SKIP_ASSIGNMENT_VERSION: Final = 9  # KIP-814


@dataclass(frozen=True, slots=True)
class Joiner:
    """A JoinGroup request, independent of its version."""

    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    caller: Caller
    parked: Parked

    @property
    def protocol_names(self) -> list[str]:
        return [name for name, _ in self.protocols]


def joiner_of(request: JoinGroupRequest, parked: Parked, caller: Caller) -> Joiner:
    """Read the request according to its version."""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if caller.version < _REBALANCE_TIMEOUT_VERSION or rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout_ms
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return Joiner(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(protocols.items()),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        caller=caller,
        parked=parked,
    )


def _refusal(request: JoinGroupRequest, version: int, error: int) -> JoinGroupResponse:
    return join_error(Parked(None, version), error, request.member_id)


class JoinHandler:
    """Handles JoinGroup."""

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self._rebalances = rebalances

    @answers(JOIN_GROUP, _refusal)
    def join(self, request: JoinGroupRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        error = self._request_error(request)
        if error is not ErrorCode.NONE:
            effects.reply(parked, join_error(parked, error, request.member_id))
            return
        group = self._table.find_or_create(request.group_id)
        joiner = joiner_of(request, parked, caller)
        if group.closing:
            self._refuse(joiner, ErrorCode.COORDINATOR_NOT_AVAILABLE, effects)
        elif not self._has_room(group, joiner):
            self._refuse_full(group, joiner, effects)
        elif not group.supports(joiner.protocol_type, joiner.protocol_names):
            self._refuse(joiner, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, effects)
        elif joiner.member_id == NO_MEMBER_ID:
            self._join_as_new(group, joiner, effects)
        else:
            self._join_as_known(group, joiner, effects)

    def _request_error(self, request: JoinGroupRequest) -> ErrorCode:
        settings = self._table.settings
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        weight = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
        if weight > settings.member_metadata_max_bytes:
            return ErrorCode.INVALID_REQUEST
        if request.member_id != NO_MEMBER_ID and request.group_id not in self._table.groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _refuse(self, joiner: Joiner, error: ErrorCode, effects: Effects) -> None:
        effects.reply(joiner.parked, join_error(joiner.parked, error, joiner.member_id))

    # ---- room ----

    def _has_room(self, group: ClassicGroup, joiner: Joiner) -> bool:
        """Return whether the group may admit the caller. Members may always rejoin, unless group.max.size was
        lowered meanwhile: then the first to join stay."""
        limit = self._table.settings.group_max_size
        known_id = joiner.member_id or group.static_ids.get(joiner.instance_id or "", "")
        member = group.members.get(known_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.awaiting_joins < limit
        return member is not None or len(group.members) < limit

    def _refuse_full(self, group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
        effects.reply(
            joiner.parked, join_error(joiner.parked, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        )
        if joiner.member_id in group.pending:
            self._drop_pending(group, joiner.member_id)
        member = group.members.get(joiner.member_id)
        if member is not None:
            self._table.counters.members_dropped += 1
            self._rebalances.expel(group, member, effects)
        self._rebalances.end_if_all_joined(group, effects)

    def _drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.pending.discard(member_id)
        self._table.timers.cancel(session_timer(group, member_id))

    # ---- callers without a member id ----

    def _join_as_new(self, group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
        """Assign a member id. A dynamic member must join again with it (KIP-394), so that a client that never
        saw the answer leaves no member behind. A static one is known by its instance id."""
        member_id = f"{joiner.instance_id or joiner.caller.client_id}-{self._table.new_id()}"
        if joiner.instance_id in group.static_ids:
            self._take_over(group, joiner, member_id, effects)
        elif joiner.instance_id is not None or joiner.caller.version < _MEMBER_ID_REQUIRED_VERSION:
            self._admit(group, joiner, member_id, effects)
        else:
            group.pending.add(member_id)
            deadline_ms = effects.moment.now_ms + joiner.session_timeout_ms
            self._table.timers.set(session_timer(group, member_id), deadline_ms)
            answer = join_error(joiner.parked, ErrorCode.MEMBER_ID_REQUIRED, member_id)
            effects.reply(joiner.parked, answer)

    def _admit(self, group: ClassicGroup, joiner: Joiner, member_id: str, effects: Effects) -> None:
        """Add a member and rebalance."""
        member = Member(
            member_id=member_id,
            instance_id=joiner.instance_id,
            client_id=joiner.caller.client_id,
            client_host=joiner.caller.client_host,
            session_timeout_ms=joiner.session_timeout_ms,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            protocols=joiner.protocols,
            is_new=True,
            join=joiner.parked,
        )
        group.add(member, joiner.protocol_type)
        group.joined_in_round = True
        self._table.counters.members_joined += 1
        timeout_ms = self._table.settings.new_member_join_timeout_ms
        self._table.keep_session(group, member, effects, timeout_ms)
        self._rebalances.begin_or_continue(group, effects)

    # ---- callers with a member id ----

    def _join_as_known(self, group: ClassicGroup, joiner: Joiner, effects: Effects) -> None:
        if joiner.member_id in group.pending and joiner.instance_id is None:
            self._admit(group, joiner, joiner.member_id, effects)
            return
        error = group.member_error(joiner.member_id, joiner.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(joiner, error, effects)
            return
        member = group.members[joiner.member_id]
        if self._needs_rebalance(group, member, joiner):
            self._update(group, member, joiner, effects)
            self._rebalances.begin_or_continue(group, effects)
        else:
            self._repeat(group, member, joiner, effects)

    def _needs_rebalance(self, group: ClassicGroup, member: Member, joiner: Joiner) -> bool:
        """Return whether a rejoin changes anything. A leader's does: it may have seen new partitions.

        Any other member that rejoins with the same metadata has only missed the last answer.
        """
        if group.state is GroupState.PREPARING_REBALANCE or member.protocols != joiner.protocols:
            return True
        return group.state is GroupState.STABLE and member.member_id == group.leader

    def _update(self, group: ClassicGroup, member: Member, joiner: Joiner, effects: Effects) -> None:
        group.set_protocols(member, joiner.protocols)
        member.session_timeout_ms = joiner.session_timeout_ms
        member.rebalance_timeout_ms = joiner.rebalance_timeout_ms
        superseded = group.park_join(member, joiner.parked)
        if superseded is not None:  # the client has given this join up
            refusal = join_error(superseded, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            effects.reply(superseded, refusal)

    def _repeat(self, group: ClassicGroup, member: Member, joiner: Joiner, effects: Effects) -> None:
        """Answer with the current generation again. In STABLE a follower only needs to sync."""
        self._table.keep_session(group, member, effects)
        leads = member.member_id == group.leader
        answer = joined(joiner.parked, group, member.member_id, with_members=leads)
        effects.reply(joiner.parked, answer)

    # ---- static members that rejoin (KIP-345) ----

    def _take_over(self, group: ClassicGroup, joiner: Joiner, member_id: str, effects: Effects) -> None:
        """Replace the process that had this instance id; the old one is fenced from now on."""
        member = group.members[group.static_ids[joiner.instance_id or ""]]
        before = _Before(replace(member), group.leader)
        self._fence(group, member, effects)
        group.rename(member, member_id)
        member.client_id, member.client_host = joiner.caller.client_id, joiner.caller.client_host
        member.is_new = False
        self._update(group, member, joiner, effects)
        self._table.keep_session(group, member, effects)
        group.refresh_topics()
        self._table.counters.members_fenced += 1
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
            self._store_take_over(group, member, before, joiner, effects)
        else:
            # In COMPLETING_REBALANCE the leader may be assigning to the old id: all must rejoin.
            self._rebalances.begin_or_continue(group, effects)

    def _fence(self, group: ClassicGroup, member: Member, effects: Effects) -> None:
        self._table.timers.cancel(session_timer(group, member.member_id))
        join, sync = group.take_join(member), member.sync
        member.sync = None
        if join is not None:
            effects.reply(join, join_error(join, ErrorCode.FENCED_INSTANCE_ID, member.member_id))
        if sync is not None:
            effects.reply(sync, sync_error(ErrorCode.FENCED_INSTANCE_ID))

    def _store_take_over(
        self, group: ClassicGroup, member: Member, before: _Before, joiner: Joiner, effects: Effects
    ) -> None:
        """Store the new id in the present generation, without a rebalance, and then answer the join."""
        member_id, generation = member.member_id, group.generation

        def then(error: int, later: Effects) -> None:
            unchanged = group.state is GroupState.STABLE and group.generation == generation
            if (
                not unchanged
                or group.members.get(member_id) is not member
                or member.join is not joiner.parked
            ):
                return  # a rebalance or another take-over has begun, and answers this join
            group.take_join(member)
            if error == ErrorCode.NONE:
                self._table.keep_session(group, member, later)
                later.reply(joiner.parked, self._taken_over(group, member, before, joiner))
            else:
                self._give_back(group, member, before, later)
                later.reply(joiner.parked, join_error(joiner.parked, error, NO_MEMBER_ID))

        record = GenerationRecord(group.group_id, group.snapshot())
        self._table.write(group, [record], effects, then)

    def _taken_over(
        self, group: ClassicGroup, member: Member, before: _Before, joiner: Joiner
    ) -> JoinGroupResponse:
        leads = member.member_id == group.leader
        if joiner.caller.version >= _SKIP_ASSIGNMENT_VERSION:
            return joined(joiner.parked, group, member.member_id, with_members=leads, skip_assignment=leads)
        # Older clients would assign again if they saw that they lead: name the old id instead.
        return joined(joiner.parked, group, member.member_id, leader=before.leader, with_members=False)

    def _give_back(self, group: ClassicGroup, member: Member, before: _Before, effects: Effects) -> None:
        """Restore the old id, because the new one could not be stored."""
        self._table.timers.cancel(session_timer(group, member.member_id))
        old = before.member
        group.rename(member, old.member_id)
        group.set_protocols(member, old.protocols)
        member.session_timeout_ms = old.session_timeout_ms
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        member.client_id, member.client_host = old.client_id, old.client_host
        group.refresh_topics()
        self._table.keep_session(group, member, effects)


class _Before(NamedTuple):
    """A copy of a static member before it was replaced, and the leader of the group then."""

    member: Member
    leader: str | None
