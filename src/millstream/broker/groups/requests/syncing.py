"""Handles SyncGroup, Heartbeat and LeaveGroup: the requests of members between joins."""

from __future__ import annotations

from typing import Final

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.requests.rebalance import NO_MEMBER_ID, Rebalances
from millstream.broker.groups.requests.responses import sync_error, synced
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.members import Member
from millstream.broker.groups.state.records import GenerationRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import GroupTable, session_timer, sync_timer
from millstream.errors import ErrorCode
from millstream.wire.messages.groups import (
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)

_LEAVE_SEVERAL_VERSION: Final = 3
_PROTOCOL_VERSION: Final = 5  # KIP-559


class SyncHandler:
    """Handles SyncGroup: the leader sends all assignments, each member receives its own.

    No member receives its assignment before the record with all of them is durable, so that a restarted
    coordinator and the members agree on the generation.
    """

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self._rebalances = rebalances

    @answers(SYNC_GROUP, lambda _, __, error: sync_error(error))
    def sync(self, request: SyncGroupRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        group = self._table.groups.get(request.group_id)
        error = self._refusal(group, request, caller.version)
        if group is None or error is not ErrorCode.NONE:
            effects.reply(parked, sync_error(error))
            return
        member = group.members[request.member_id]
        self._mark_synced(group, member)
        if group.state is GroupState.STABLE:
            self._table.keep_session(group, member, effects)
            effects.reply(parked, synced(group, member.assignment))
        else:
            self._park(member, parked, effects)
            if member.member_id == group.leader and group.storing_generation is None:
                self._store_assignments(group, request, effects)

    def _refusal(self, group: ClassicGroup | None, request: SyncGroupRequest, version: int) -> ErrorCode:
        error = self._request_error(request, version) or self._table.caller_error(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        if group is None or error is not ErrorCode.NONE:
            return error
        same_type = request.protocol_type in (None, group.protocol_type)
        if not same_type or request.protocol_name not in (None, group.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        weight = sum(len(entry.member_id) + len(entry.assignment) for entry in request.assignments)
        if weight > self._table.settings.assignment_max_bytes:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _request_error(self, request: SyncGroupRequest, version: int) -> ErrorCode:
        """Return what is wrong with a request of any sender; newer versions must name the protocol."""
        named = request.protocol_type is not None and request.protocol_name is not None
        if version >= _PROTOCOL_VERSION and not named:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID

    def _mark_synced(self, group: ClassicGroup, member: Member) -> None:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._table.timers.cancel(sync_timer(group))

    def _park(self, member: Member, parked: Parked, effects: Effects) -> None:
        if member.sync is not None:  # the client has given this request up
            effects.reply(member.sync, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = parked

    def _store_assignments(self, group: ClassicGroup, request: SyncGroupRequest, effects: Effects) -> None:
        """Write the generation. A leader that syncs again meanwhile does not change what is written: there
        must never be two versions of one generation."""
        generation = group.generation
        assignments = {entry.member_id: entry.assignment for entry in request.assignments}

        def then(error: int, later: Effects) -> None:
            if group.state is GroupState.COMPLETING_REBALANCE and group.storing_generation == generation:
                self._settle(group, assignments, error, later)

        group.storing_generation = generation
        record = GenerationRecord(group.group_id, group.snapshot(assignments))
        self._table.write(group, [record], effects, then)

    def _settle(
        self, group: ClassicGroup, assignments: dict[str, bytes], error: int, effects: Effects
    ) -> None:
        """Hand out the assignments if the generation is durable; otherwise have all members join again."""
        if error != ErrorCode.NONE:
            self._rebalances.refuse_syncs(group, error, effects)
            self._rebalances.begin(group, effects)
            return
        group.storing_generation = None
        group.enter(GroupState.STABLE, effects.moment.epoch_ms)
        self._table.counters.rebalances_completed += 1
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                effects.reply(member.sync, synced(group, member.assignment))
                member.sync = None
                self._table.keep_session(group, member, effects)


class HeartbeatHandler:
    """Handles Heartbeat: keeps the session alive, and tells members of a rebalance."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    @answers(HEARTBEAT, lambda _, __, error: HeartbeatResponse(error_code=error))
    def heartbeat(self, request: HeartbeatRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        group = self._table.groups.get(request.group_id)
        error = self._table.caller_error(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        if group is not None and error is ErrorCode.NONE:
            self._table.keep_session(group, group.members[request.member_id], effects)
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        effects.reply(parked, HeartbeatResponse(error_code=error))


class LeaveHandler:
    """Handles LeaveGroup, from members and from administrators who name an instance id."""

    def __init__(self, table: GroupTable, rebalances: Rebalances) -> None:
        self._table = table
        self._rebalances = rebalances

    @answers(LEAVE_GROUP, lambda _, __, error: LeaveGroupResponse(error_code=error))
    def leave(self, request: LeaveGroupRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        group = self._table.groups.get(request.group_id)
        if not request.group_id:
            effects.reply(parked, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif group is not None and group.closing:
            effects.reply(parked, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            several = caller.version >= _LEAVE_SEVERAL_VERSION
            leavers = request.members if several else [MemberIdentity(member_id=request.member_id)]
            members_before = len(group.members) if group is not None else 0
            left = [self._leave_one(group, leaver, effects) for leaver in leavers]
            effects.reply(parked, _leave_response(left, several))
            if group is not None:
                self._rebalance(group, members_before, effects)

    def _leave_one(
        self, group: ClassicGroup | None, leaver: MemberIdentity, effects: Effects
    ) -> MemberResponse:
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._remove(group, leaver, effects)
        return MemberResponse(
            member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error
        )

    def _remove(self, group: ClassicGroup, leaver: MemberIdentity, effects: Effects) -> ErrorCode:
        member_id = leaver.member_id
        if member_id in group.pending:
            group.pending.remove(member_id)
            self._table.timers.cancel(session_timer(group, member_id))
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID:  # an administrator knows the instance id only
            member_id = group.static_ids.get(leaver.group_instance_id or "", NO_MEMBER_ID)
        error = group.member_error(member_id, leaver.group_instance_id)
        if error is ErrorCode.NONE:
            self._table.counters.members_left += 1
            self._rebalances.expel(group, group.members[member_id], effects)
        return error

    def _rebalance(self, group: ClassicGroup, members_before: int, effects: Effects) -> None:
        if len(group.members) < members_before:
            self._rebalances.begin_or_continue(group, effects)
        else:  # only pending ids left: no rebalance, but the join phase may end now
            self._rebalances.end_if_all_joined(group, effects)


def _leave_response(left: list[MemberResponse], several: bool) -> LeaveGroupResponse:
    """Versions before 3 answer for one member, with the error of the whole response."""
    if several:
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=left)
    return LeaveGroupResponse(error_code=left[0].error_code)
