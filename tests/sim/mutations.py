"""Bugs planted on purpose: each must be caught, or the simulation is not worth much.

``python -m tests.sim.mutations`` applies them one after the other and runs seeds until one catches it.
"""

# ruff: noqa: T201 - a command speaks
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import PropertyMock, patch

from millstream.broker.groups.outcome import Effects
from millstream.broker.groups.requests.commits import CommitHandler
from millstream.broker.groups.requests.rebalance import Rebalances
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.table import GroupTable
from millstream.consumer.assignors import sticky
from millstream.consumer.assignors.base import Assignment, Members
from millstream.consumer.consumer import Consumer
from millstream.consumer.core_guard import CoreGuard
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching import positions
from millstream.consumer.fetching.partition_state import FetchPhase
from millstream.consumer.fetching.sessions import FetchSessionHandler
from millstream.consumer.membership import leader, responses
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.heartbeats import HeartbeatTimer
from millstream.consumer.membership.leaves import Leaves
from millstream.consumer.membership.lookup import CoordinatorLookup
from millstream.consumer.membership.outbox import Outbox
from millstream.consumer.membership.ownership import Ownership
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.state import MemberState
from millstream.consumer.membership.values import CallbackEvent
from millstream.consumer.offsets.commits import OffsetCommits, PendingCommit
from millstream.consumer.user.callbacks import UserCallbacks
from millstream.consumer.user.progress import UserProgress
from millstream.consumer.user.waits import UserWaits
from millstream.errors import ErrorCode, MillstreamError
from millstream.model import OffsetAndMetadata, TopicPartition
from tests.sim.families import Family, isolated, orderly, run_seed


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug: what is wrong, and where it is planted."""

    description: str
    targets: Callable[[], tuple[Any, ...]]
    """Makes the patches to apply; each is a context manager."""
    family: Family | None = None
    """The kind of run that catches it; None: any."""


def _nothing(*args: Any, **keywords: Any) -> None:
    return None


# ---- the member ----


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
    return (patch.object(Ownership, "lose", _nothing),)


def _metadata_unwatched() -> tuple[Any, ...]:
    return (patch.object(responses, "watch_metadata", _nothing),)


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
    return (patch.object(Leaves, "add", _nothing),)


# ---- the driver and the user's side ----


def _unsubscribe_leaves_zombie() -> tuple[Any, ...]:
    """Row 1 of issue 14: what follows a callback is left to the I/O thread."""

    def callback_done(self: ConsumerDriver, event: CallbackEvent) -> None:
        cores: Any = self._cores
        with patch.object(cores, "handle_member_events", _nothing):
            done(self, event)

    done = ConsumerDriver.callback_done
    return (patch.object(ConsumerDriver, "callback_done", callback_done),)


def _give_back_by_seeking(self: UserProgress, partitions: Collection[TopicPartition] = ()) -> None:
    for partition, (offset, epoch) in self.iteration.first_offsets().items():
        state = self._positions.get(partition)
        if state is not None and state.position is not None and state.position.offset > offset:
            self._positions.seek(partition, OffsetAndMetadata(offset, "", epoch))
    self.iteration.stop()


def _only_validated() -> Any:
    return patch.object(positions, "_KNOWN", frozenset({FetchPhase.FETCHING}))


def _loop_commits_nothing() -> tuple[Any, ...]:
    return (patch.object(UserProgress, "give_back", _give_back_by_seeking), _only_validated())


def _commits_only_validated() -> tuple[Any, ...]:
    return (_only_validated(),)


def _loop_moves_uncommitted() -> tuple[Any, ...]:
    original = UserProgress.give_back

    def give_back(self: UserProgress, partitions: Collection[TopicPartition] = ()) -> None:
        (original if partitions else _give_back_by_seeking)(self, partitions)

    return (patch.object(UserProgress, "give_back", give_back), _only_validated())


def _poll_waits_for_commit() -> tuple[Any, ...]:
    original = UserCallbacks.run_rebalances

    def run_rebalances(self: UserCallbacks, consumer: Any, *, poll_deadline: Any = None) -> bool:
        return original(self, consumer)

    return (patch.object(UserCallbacks, "run_rebalances", run_rebalances),)


def _needs_topic_ids() -> tuple[Any, ...]:
    original = FetchSessionHandler.plan

    def plan(self: FetchSessionHandler) -> Any:
        return replace(original(self), max_version=None)

    return (patch.object(FetchSessionHandler, "plan", plan),)


def _close_without_time_stays() -> tuple[Any, ...]:
    original = Membership._give_up

    def give_up(self: Membership, reason: str, now_ms: int, deadline_ms: int) -> None:
        original(self, reason, now_ms, deadline_ms - 1_000 if self._state.closing else deadline_ms)

    return (patch.object(Membership, "_give_up", give_up),)


def _close_waits_for_nobody() -> tuple[Any, ...]:
    return (patch.object(CoordinatorLookup, "is_failing", PropertyMock(return_value=False)),)


def _failures_only_logged() -> tuple[Any, ...]:
    def run(self: CoreGuard, work: Callable[..., Any], *args: Any) -> Any:
        with self._lock, suppress(Exception):
            return work(*args)

    return (patch.object(CoreGuard, "run", run),)


def _loop_commits_unseen() -> tuple[Any, ...]:
    return (patch.object(UserProgress, "consumed", lambda self: self._positions.consumed()),)


def _wakeup_unheard() -> tuple[Any, ...]:
    original = UserWaits.wait

    def wait(self: UserWaits, look: Any, deadline: Any, *, interruptible: bool = True) -> Any:
        return original(self, look, deadline, interruptible=False)

    return (patch.object(UserWaits, "wait", wait),)


def _takes_during_rebalances() -> tuple[Any, ...]:
    def begin_take(self: ConsumerDriver) -> list[Any]:
        with self.lock:
            self.guard.check()
            return self._fetcher.begin_take()

    def finish_take(self: ConsumerDriver, drained: Any) -> Any:
        with self.lock:
            return self._fetcher.finish_take(drained, self._client.now_ms())

    return (
        patch.object(ConsumerDriver, "begin_take", begin_take),
        patch.object(ConsumerDriver, "finish_take", finish_take),
        patch.object(UserCallbacks, "run_rebalances", _late_rebalances(UserCallbacks.run_rebalances)),
    )


def _late_rebalances(original: Callable[..., bool]) -> Callable[..., bool]:
    def run_rebalances(self: UserCallbacks, consumer: Any, *, poll_deadline: Any = None) -> bool:
        if poll_deadline is not None and self._driver._fetcher.ready():
            return True
        return original(self, consumer, poll_deadline=poll_deadline)

    return run_rebalances


def _unsubscribe_forgets() -> tuple[Any, ...]:
    def unsubscribe(self: Consumer) -> None:
        with self._alone:
            with self._session.changing():
                self._driver.unsubscribe()
            self._session.callbacks.run_rebalances(self)
            self._driver.read(())

    return (patch.object(Consumer, "unsubscribe", unsubscribe),)


# ---- commits ----


def _commits_as_somebody_else() -> tuple[Any, ...]:
    """A commit from before a loss goes out as the member that was born after it."""

    def is_current(self: OffsetCommits, commit: PendingCommit) -> bool:
        try:
            commit.identity = self._group.commit_identity()
        except MillstreamError:  # wait for better times
            commit.retry_at_ms = max(commit.retry_at_ms, commit.deadline_ms - 4_000) + 100
            return False
        return True

    return (patch.object(OffsetCommits, "_is_current", is_current),)


def _async_repeats() -> tuple[Any, ...]:
    original = PendingCommit.__init__

    def init(self: PendingCommit, *args: Any, **keywords: Any) -> None:
        original(self, *args, **keywords)
        self.repeats = True

    def latest(self: OffsetCommits, commit: PendingCommit) -> bool:
        commit.attempts, attempts = 0, commit.attempts
        try:
            return current(self, commit)
        finally:
            commit.attempts = attempts

    current = OffsetCommits._is_current
    return (patch.object(PendingCommit, "__init__", init), patch.object(OffsetCommits, "_is_current", latest))


# ---- the coordinator ----


def _acknowledges_early() -> tuple[Any, ...]:
    def write(self: Effects, records: Any, then: Any) -> None:
        self.records += records
        then(ErrorCode.NONE, self)

    return (patch.object(Effects, "write", write),)


def _accepts_stale_commits() -> tuple[Any, ...]:
    def refusal(self: Any, group: Any, request: Any, version: int) -> ErrorCode:
        return ErrorCode.NONE

    return (patch.object(CommitHandler, "_caller_error", refusal),)


def _same_generation() -> tuple[Any, ...]:
    original = ClassicGroup.next_generation

    def next_generation(self: ClassicGroup, epoch_ms: int) -> None:
        original(self, epoch_ms)
        self.generation = max(1, self.generation - 1)

    return (patch.object(ClassicGroup, "next_generation", next_generation),)


def _sessions_never_end() -> tuple[Any, ...]:
    return (patch.object(Rebalances, "session_timeout", _nothing),)


def _nobody_is_fenced() -> tuple[Any, ...]:
    original = ClassicGroup.member_error

    def member_error(self: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        error = original(self, member_id, instance_id)
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error

    def caller_error(self: GroupTable, group: Any, member_id: str, instance_id: Any, generation: int) -> Any:
        error = checked(self, group, member_id, instance_id, generation)
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error

    checked = GroupTable.caller_error
    return (
        patch.object(ClassicGroup, "member_error", member_error),
        patch.object(GroupTable, "caller_error", caller_error),
    )


def _forgets_groups() -> tuple[Any, ...]:
    return (
        patch.object(
            ClassicGroup, "restored", classmethod(lambda cls, group_id, stored: ClassicGroup(group_id))
        ),
    )


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
    "static-leaves": Mutation("a static member leaves the group when it is closed", _static_leaves),
    "fenced-goes-on": Mutation("a fenced member joins again, and fences the other one", _fenced_goes_on),
    "stalled-user-stays": Mutation(
        "a member whose user does not poll goes on sending heartbeats, with no end to its leases",
        _stalled_user_stays,
    ),
    "never-leaves": Mutation("close does not tell the coordinator", _never_leaves),
    "unsubscribe-leaves-zombie": Mutation(
        "unsubscribing while a callback is due leaves a member behind", _unsubscribe_leaves_zombie
    ),
    "unsubscribe-forgets": Mutation(
        "unsubscribing inside a callback drops what was read and not committed yet",
        _unsubscribe_forgets,
        orderly,
    ),
    "loop-commits-nothing": Mutation(
        "in a loop, after pause, resume or seek, commit() stores nothing", _loop_commits_nothing
    ),
    "loop-moves-uncommitted": Mutation(
        "a partition that moves during a loop is not committed before on_revoked", _loop_moves_uncommitted
    ),
    "commits-only-validated": Mutation(
        "commit() leaves out positions that are being validated after a change of leader",
        _commits_only_validated,
    ),
    "loop-commits-unseen": Mutation(
        "a commit in a loop covers records that the loop has not seen", _loop_commits_unseen
    ),
    "poll-waits-for-commit": Mutation(
        "poll() waits for the commit before on_revoked, whatever its timeout", _poll_waits_for_commit
    ),
    "needs-topic-ids": Mutation("topics without ids are fetched by id", _needs_topic_ids),
    "close-without-time-stays": Mutation("close(0) sends no LeaveGroup", _close_without_time_stays),
    "close-waits-for-nobody": Mutation(
        "close() waits for a coordinator that cannot be found", _close_waits_for_nobody
    ),
    "failures-only-logged": Mutation("an exception in a core does not reach poll()", _failures_only_logged),
    "wakeup-unheard": Mutation("calls that wait do not hear wakeup()", _wakeup_unheard),
    "takes-during-rebalances": Mutation(
        "poll() returns records of partitions that are lost or being revoked", _takes_during_rebalances
    ),
    "commits-as-somebody-else": Mutation(
        "a commit that was made before partitions were lost is sent with the identity of after",
        _commits_as_somebody_else,
    ),
    "async-repeats": Mutation(
        "an asynchronous commit is repeated although a later one was made", _async_repeats
    ),
    "acknowledges-early": Mutation(
        "the coordinator answers before its records are on the disk", _acknowledges_early
    ),
    "accepts-stale-commits": Mutation(
        "the coordinator stores the commits of old generations and former members", _accepts_stale_commits
    ),
    "same-generation": Mutation("a rebalance ends in the generation that it began in", _same_generation),
    "sessions-never-end": Mutation("the coordinator keeps members that are dead", _sessions_never_end),
    "nobody-is-fenced": Mutation(
        "the coordinator goes on with a static member that was replaced", _nobody_is_fenced
    ),
    "forgets-groups": Mutation(
        "a coordinator that restarts remembers offsets but no groups", _forgets_groups
    ),
}


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """The code with the bug in it."""
    patches = mutation.targets()
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


def catch(mutation: Mutation, seeds: range) -> tuple[int, str] | None:
    """The first seed that catches the bug, with what it says. An exception of the code counts as well."""
    with planted(mutation):
        for seed in seeds:
            try:
                result, _ = run_seed(seed, family=mutation.family)
            except Exception as error:  # noqa: BLE001 - our assertions, mostly: the bug shows
                return seed, f"{type(error).__name__}: {error}"
            if result.violation is not None:
                return seed, result.violation
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations to plant; all when none is named")
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds may be needed")
    options = parser.parse_args()
    missed = 0
    for name in options.names or MUTATIONS:
        began = time.perf_counter()
        caught = catch(MUTATIONS[name], range(options.seeds))
        took = time.perf_counter() - began
        if caught is None:
            missed += 1
            print(f"{name:26} MISSED in {options.seeds} seeds ({took:.1f} s)")
        else:
            print(f"{name:26} seed {caught[0]:4} ({took:.1f} s): {caught[1][:140]}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
