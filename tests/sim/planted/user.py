"""Planted bugs of the driver and the user's side: loops, callbacks, closing, and what poll() returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from unittest.mock import PropertyMock, patch

from millstream.consumer.consumer import Consumer
from millstream.consumer.core_guard import CoreGuard
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching import positions
from millstream.consumer.fetching.partition_state import FetchPhase
from millstream.consumer.fetching.sessions import FetchSessionHandler
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.lookup import CoordinatorLookup
from millstream.consumer.membership.values import CallbackEvent
from millstream.consumer.user.callbacks import UserCallbacks
from millstream.consumer.user.progress import UserProgress
from millstream.consumer.user.waits import UserWaits
from millstream.model import OffsetAndMetadata, TopicPartition
from tests.sim.families import orderly
from tests.sim.planted.mutation import Mutation, nothing


def _unsubscribe_leaves_zombie() -> tuple[Any, ...]:
    """Row 1 of issue 14: what follows a callback is left to the I/O thread."""

    def callback_done(self: ConsumerDriver, event: CallbackEvent) -> None:
        cores: Any = self._cores
        with patch.object(cores, "handle_member_events", nothing):
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


MUTATIONS: Final[Mapping[str, Mutation]] = {
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
}
