"""The group coordinator: requests and moments in, answers and records out, no input or output inside.

It uses no clock, thread, socket, log or random number. Its decisions are durable only after its records are
in ``__consumer_offsets``. Writing takes a while, and other requests arrive meanwhile, so the state has two
sides:

- the *store* (``store``): what the durable records say. Only ``apply`` writes it. Offsets are read from here.
- the *groups* (``group``): members, phases, parked requests. They change at once, as requests arrive, and are
  ahead of the store: an assignment, a static member's new id or a commit is known to the group while it is
  being written. No client sees it before the write is reported durable.

What the driver must do
-----------------------
1. At the start: ``apply(decode_record(key, value))`` for each record of ``__consumer_offsets``, in the order
   of the log (skip those that decode to None), then ``loaded``. Before that, every request is answered with
   COORDINATOR_LOAD_IN_PROGRESS (heartbeats with success).
2. ``handle`` each request; ``tick`` when ``next_deadline_ms`` has come. Read the deadline again after every
   call: it can become earlier as well as later.
3. Take every Outcome, from whatever call, in the order in which the calls returned:
   send ``replies`` now; if there are ``records``, append them (``encode_record``) to the partition of their
   group, in order, after the records of earlier outcomes. Many writes may be in flight at once, and share
   one fdatasync.
4. When all records of an outcome are durable: ``appended(token)``. When they are not in the log and never
   will be: ``append_failed(token, error)``. Exactly one of the two, once for each token; writes of the same
   group must be reported in the order of their outcomes. Both return an Outcome.
   A failed append must leave nothing behind, because clients were told that its records are lost. (Each
   record alone is valid, so a crash may keep any beginning of an unreported write. Writes of more than one
   group only remove things, so a part of one that stays in the log does no harm.)
5. Do not call ``apply`` for live writes: ``appended`` does.
6. Keep it informed of topics: commits call ``partition_exists``. Call ``topic_deleted`` after a deletion, and
   after ``loaded`` for each of ``committed_topics`` that no longer exists: a topic that is created again
   under the same name must not inherit offsets.
7. Stop with ``stop``: it answers all parked requests.

Every ticket given to ``handle`` comes back in exactly one Reply. If the client is gone by then, drop it.
A request is parked no longer than its group's rebalance and its write take.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from millstream.broker.groups.metrics import GroupCounters, GroupGauges
from millstream.broker.groups.outcome import (
    Caller,
    Continuation,
    Effects,
    Moment,
    Outcome,
    Parked,
    Ticket,
    answer_for_append_error,
    error_response,
)
from millstream.broker.groups.requests.commits import CommitHandler
from millstream.broker.groups.requests.deletions import DeletionHandler
from millstream.broker.groups.requests.describe import DescribeHandler
from millstream.broker.groups.requests.fetches import OffsetFetchHandler
from millstream.broker.groups.requests.joining import JoinHandler
from millstream.broker.groups.requests.rebalance import Rebalances
from millstream.broker.groups.requests.responses import join_error, sync_error
from millstream.broker.groups.requests.syncing import HeartbeatHandler, LeaveHandler, SyncHandler
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import GroupRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.store import Store
from millstream.broker.groups.state.table import (
    RETENTION_TIMER,
    GroupTable,
    NoTopicIds,
    TimerKey,
    TimerKind,
    TopicIds,
)
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.groups import HEARTBEAT
from millstream.wire.schema import Api, Request

Handler = Callable[[Any, Parked, Caller, Effects], None]


@dataclass(frozen=True, slots=True)
class _WriteInFlight:
    """Records that are neither durable nor failed yet, and what continues when they are."""

    records: tuple[GroupRecord, ...]
    continuations: tuple[Continuation, ...]


class GroupCoordinator:
    """All groups of one broker. The module's docstring says what the driver must do."""

    def __init__(
        self,
        settings: GroupSettings,
        id_source: Callable[[], str],
        partition_exists: Callable[[TopicPartition], bool] = lambda partition: True,
        topic_ids: TopicIds | None = None,
    ) -> None:
        """``id_source`` returns the unique part of a member id: the text of a new UUID at each call."""
        self._table = GroupTable(settings, id_source, partition_exists, topic_ids or NoTopicIds())
        self._rebalances = Rebalances(self._table)
        self._fetches = OffsetFetchHandler(self._table)
        self._deletions = DeletionHandler(self._table)
        self._handlers = _handlers(
            JoinHandler(self._table, self._rebalances),
            SyncHandler(self._table, self._rebalances),
            HeartbeatHandler(self._table),
            LeaveHandler(self._table, self._rebalances),
            CommitHandler(self._table),
            self._fetches,
            self._deletions,
            DescribeHandler(self._table),
        )
        self._in_flight: dict[int, _WriteInFlight] = {}
        self._last_token = 0
        self._closed_with: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def apis(self) -> Set[Api]:
        """The APIs that ``handle`` answers."""
        return self._handlers.keys()

    # ---- starting and stopping ----

    def apply(self, record: GroupRecord) -> None:
        """Apply one durable record. Nothing else changes the store."""
        self._table.store.apply(record)

    def loaded(self, moment: Moment) -> Outcome:
        """All records are applied: accept requests.

        Groups are restored from their last durable generation. Sessions start again, so that members have
        time to notice the restart; those that keep heartbeating need not rejoin.
        """
        assert self._closed_with is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loaded twice"
        self._closed_with = None
        effects = self._effects(moment)
        for group_id in self._table.store.group_ids():
            self._restore(group_id, effects)
        deadline_ms = moment.now_ms + self._table.settings.offsets_retention_check_interval_ms
        self._table.timers.set(RETENTION_TIMER, deadline_ms)
        return self._outcome(effects)

    def _restore(self, group_id: str, effects: Effects) -> None:
        stored = self._table.store.groups.get(group_id)
        group = ClassicGroup(group_id) if stored is None else ClassicGroup.restored(group_id, stored)
        self._table.groups[group_id] = group
        for member in group.members.values():
            self._table.keep_session(group, member, effects)
        if len(group.members) > self._table.settings.group_max_size:  # group.max.size was lowered meanwhile
            self._rebalances.begin(group, effects)

    def stop(self, moment: Moment) -> Outcome:
        """Answer all parked requests and refuse new ones. Writes in flight may still be reported."""
        effects = self._effects(moment)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for group in self._table.groups.values():
            self._refuse_parked(group, error, effects)
            group.enter(GroupState.DEAD, moment.epoch_ms)
        for request, parked in self._fetches.take_waiting():
            effects.reply(parked, error_response(request, parked.version, error))
        self._table.groups.clear()
        self._closed_with = error
        return self._outcome(effects)

    def _refuse_parked(self, group: ClassicGroup, error: ErrorCode, effects: Effects) -> None:
        for member in group.members.values():
            join = group.take_join(member)
            if join is not None:
                effects.reply(join, join_error(join, error, member.member_id))
            if member.sync is not None:
                effects.reply(member.sync, sync_error(error))
                member.sync = None

    # ---- requests and time ----

    def handle(self, request: Request, ticket: Ticket, caller: Caller, moment: Moment) -> Outcome:
        """Answer a request, now or in a later Outcome."""
        effects = self._effects(moment)
        parked = Parked(ticket, caller.version)
        if self._closed_with is None:
            self._handlers[request.api](request, parked, caller, effects)
        else:
            effects.reply(parked, self._refusal(request, caller.version, self._closed_with))
        return self._outcome(effects)

    def _refusal(self, request: Request, version: int, error: ErrorCode) -> Any:
        # A heartbeat that cannot be checked yet succeeds: the member is probably still in its group.
        if request.api is HEARTBEAT and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.NONE
        return error_response(request, version, error)

    def topic_deleted(self, topic: str, moment: Moment) -> Outcome:
        """Remove the offsets of a deleted topic from all groups."""
        effects = self._effects(moment)
        self._deletions.topic_deleted(topic, effects)
        return self._outcome(effects)

    def next_deadline_ms(self) -> int | None:
        """Return when ``tick`` must be called next (monotonic); None: not at all."""
        return self._table.timers.next_deadline_ms() if self._closed_with is None else None

    def tick(self, moment: Moment) -> Outcome:
        """Handle the deadlines that have come. Calling too early is harmless; too late only delays."""
        effects = self._effects(moment)
        if self._closed_with is None:
            for key in self._table.timers.pop_due(moment.now_ms):
                self._time_out(key, effects)
        return self._outcome(effects)

    def _time_out(self, key: TimerKey, effects: Effects) -> None:
        if key.kind is TimerKind.RETENTION:
            self._deletions.expire(effects)
            return
        group = self._table.groups.get(key.group_id)
        assert group is not None, f"a deadline outlived its group: {key}"
        if key.kind is TimerKind.SESSION:
            self._rebalances.session_timeout(group, key.member_id, effects)
        elif key.kind is TimerKind.JOIN:
            self._rebalances.join_timeout(group, effects)
        else:
            self._rebalances.sync_timeout(group, effects)

    # ---- results of writes ----

    def appended(self, token: int, moment: Moment) -> Outcome:
        """The outcome's records are durable: apply them, and answer the requests that waited."""
        for record in self._in_flight[token].records:
            self.apply(record)
        return self._settle(token, ErrorCode.NONE, moment)

    def append_failed(self, token: int, error: int, moment: Moment) -> Outcome:
        """The outcome's records are not in the log; ``error`` is the log's error code."""
        self._table.counters.writes_failed += 1
        return self._settle(token, answer_for_append_error(error), moment)

    def _settle(self, token: int, error: int, moment: Moment) -> Outcome:
        write = self._in_flight.pop(token)
        effects = self._effects(moment)
        for then in write.continuations:
            then(error, effects)
        self._fetches.settled(token, effects)
        return self._outcome(effects)

    def _effects(self, moment: Moment) -> Effects:
        self._last_token += 1
        return Effects(moment, self._last_token)

    def _outcome(self, effects: Effects) -> Outcome:
        if not effects.records:
            return Outcome(tuple(effects.replies))
        records = tuple(effects.records)
        self._in_flight[effects.token] = _WriteInFlight(records, tuple(effects.continuations))
        return Outcome(tuple(effects.replies), records, effects.token)

    # ---- for the driver to read ----

    def committed_topics(self) -> set[str]:
        """Return every topic for which a group has an offset."""
        offsets = self._table.store.offsets.values()
        return {partition.topic for partitions in offsets for partition in partitions}

    def groups(self) -> list[ClassicGroup]:
        """Return the groups of this moment, read only."""
        return list(self._table.groups.values())

    @property
    def store(self) -> Store:
        """The durable state, read only."""
        return self._table.store

    @property
    def counters(self) -> GroupCounters:
        return self._table.counters

    def gauges(self) -> GroupGauges:
        """Count groups, members, offsets and waiting requests. Walks over all groups."""
        groups = self._table.groups.values()
        by_state = {state.value: 0 for state in GroupState}
        for group in groups:
            by_state[group.state.value] += 1
        syncs = sum(member.sync is not None for group in groups for member in group.members.values())
        joins = sum(group.awaiting_joins for group in groups)
        return GroupGauges(
            groups_by_state=by_state,
            members=sum(len(group.members) for group in groups),
            offsets=self.store.offset_count,
            parked_requests=joins + syncs + len(self._fetches),
            writes_in_flight=len(self._in_flight),
        )


def _handlers(*parts: object) -> dict[Api, Handler]:
    """Collect the methods that are marked with ``@answers``."""
    methods = (getattr(part, name) for part in parts for name in vars(type(part)))
    return {method.api: method for method in methods if hasattr(method, "api")}
