"""The rebalance: from the first join to a new generation with assignments.

    begin  ->  joins are parked  ->  end_join_phase  ->  joins are answered, syncs come in (``syncing``)

Every loss of a member leads here too, because the others must then divide its partitions.
"""

from __future__ import annotations

from typing import Final

from millstream.broker.groups.outcome import Effects
from millstream.broker.groups.requests.responses import join_error, joined, sync_error
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.members import Member
from millstream.broker.groups.state.records import GenerationRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import GroupTable, join_timer, session_timer, sync_timer
from millstream.errors import ErrorCode

NO_MEMBER_ID: Final = ""

_RETRY_MS: Final = 1_000
"""The shortest wait before a join phase without any join is checked again."""


class Rebalances:
    """Moves groups through their states. The handlers change the members of a group, and then call this."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def begin_or_continue(self, group: ClassicGroup, effects: Effects) -> None:
        """After a change of members: start a rebalance, or end the join phase of the running one."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.end_if_all_joined(group, effects)
        else:
            self.begin(group, effects)

    def begin(self, group: ClassicGroup, effects: Effects) -> None:
        """Have all members join again. Parked syncs are refused, because their generation is over."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        group.storing_generation = None
        group.unsynced.clear()
        self._table.timers.cancel(sync_timer(group))
        self._table.counters.rebalances_started += 1
        group.is_initial_round = group.state is GroupState.EMPTY
        group.enter(GroupState.PREPARING_REBALANCE, effects.moment.epoch_ms)
        if group.is_initial_round:
            self._begin_initial_round(group, effects)
        elif group.all_joined:
            self.end_join_phase(group, effects)
        else:
            self._set_join_timer(group, group.rebalance_timeout_ms, effects)

    def end_if_all_joined(self, group: ClassicGroup, effects: Effects) -> None:
        """End the join phase if all have joined. The initial round always waits for its deadline."""
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and not group.is_initial_round and group.all_joined:
            self.end_join_phase(group, effects)

    def _begin_initial_round(self, group: ClassicGroup, effects: Effects) -> None:
        delay_ms = self._table.settings.group_initial_rebalance_delay_ms
        group.joined_in_round = False
        group.initial_round_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._set_join_timer(group, delay_ms, effects)

    def join_timeout(self, group: ClassicGroup, effects: Effects) -> None:
        """End the join phase at its deadline; the initial round is extended while members keep joining."""
        if group.is_initial_round and group.joined_in_round and group.initial_round_left_ms:
            delay_ms = min(self._table.settings.group_initial_rebalance_delay_ms, group.initial_round_left_ms)
            group.joined_in_round = False
            group.initial_round_left_ms -= delay_ms
            self._set_join_timer(group, delay_ms, effects)
        else:
            self.end_join_phase(group, effects)

    def end_join_phase(self, group: ClassicGroup, effects: Effects) -> None:
        """Start the next generation with the members that joined, and drop the others.

        Static members are not dropped for being late; only their session timeout removes them. If no member
        has joined, there is none to lead: the phase continues until sessions time out.
        """
        self._table.timers.cancel(join_timer(group))
        late = [member for member in group.members.values() if member.join is None]
        for member in late:
            if member.instance_id is None:
                self._table.counters.members_dropped += 1
                self.expel(group, member, effects)
        if group.members and not group.elect_leader():
            self._set_join_timer(group, max(group.rebalance_timeout_ms, _RETRY_MS), effects)
            return
        group.next_generation(effects.moment.epoch_ms)
        if group.members:
            self._announce(group, effects)
        else:
            self._store_empty(group, effects)

    def _announce(self, group: ClassicGroup, effects: Effects) -> None:
        for member in group.members.values():
            parked = group.take_join(member)
            if parked is not None:
                member.is_new = False
                self._table.keep_session(group, member, effects)
                leads = member.member_id == group.leader
                effects.reply(parked, joined(parked, group, member.member_id, with_members=leads))
        self._table.timers.set(sync_timer(group), effects.moment.now_ms + group.rebalance_timeout_ms)

    def _store_empty(self, group: ClassicGroup, effects: Effects) -> None:
        # If this write fails, a restart finds the old generation, whose sessions then time out.
        record = GenerationRecord(group.group_id, group.snapshot())
        self._table.write(group, [record], effects, lambda error, later: None)

    def session_timeout(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        """Remove a member, or a pending member id, whose session has timed out."""
        member = group.members.get(member_id)
        if member_id in group.pending:
            group.pending.remove(member_id)
            self.end_if_all_joined(group, effects)
        elif member is not None and not member.keeps_session_by_waiting:
            self._table.counters.members_expired += 1
            self.expel(group, member, effects)
            self.begin_or_continue(group, effects)

    def sync_timeout(self, group: ClassicGroup, effects: Effects) -> None:
        """Drop the members that joined this generation and did not sync in time."""
        late = sorted(group.unsynced)
        for member_id in late:
            self._table.counters.members_dropped += 1
            self.expel(group, group.members[member_id], effects)
        if late:
            self.begin(group, effects)

    def expel(self, group: ClassicGroup, member: Member, effects: Effects) -> None:
        """Remove a member and answer its parked requests. The caller then rebalances the group."""
        self._table.timers.cancel(session_timer(group, member.member_id))
        group.remove(member.member_id)
        if member.join is not None:
            refusal = join_error(member.join, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
            effects.reply(member.join, refusal)
        if member.sync is not None:
            effects.reply(member.sync, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.join = member.sync = None

    def refuse_syncs(self, group: ClassicGroup, error: ErrorCode | int, effects: Effects) -> None:
        """Give up the generation: clear all assignments, and answer the parked syncs with the error."""
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                effects.reply(member.sync, sync_error(error))
                member.sync = None
                self._table.keep_session(group, member, effects)

    def _set_join_timer(self, group: ClassicGroup, after_ms: int, effects: Effects) -> None:
        self._table.timers.set(join_timer(group), effects.moment.now_ms + after_ms)
