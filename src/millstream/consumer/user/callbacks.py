"""The user's callbacks, on the user's thread: rebalance listeners and the callbacks of commit_async."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.client.blocking import Deadline
from millstream.consumer.cores import Pending
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership.values import CallbackEvent, Lost, Revoke
from millstream.consumer.offsets.values import Offsets
from millstream.consumer.user.waits import UserWaits

log = logging.getLogger("millstream.consumer")


@dataclass(frozen=True, slots=True)
class _CommitBefore:
    """The automatic commit before on_revoked: for which event, and how long to wait for it."""

    event: Revoke
    pending: Pending | None
    limit: Deadline


class UserCallbacks:
    """Runs the callbacks of one consumer, and the automatic commits that must precede them."""

    def __init__(
        self,
        driver: ConsumerDriver,
        waits: UserWaits,
        uncommitted: Callable[[], Offsets],
        auto_commit_s: float,
    ) -> None:
        """``uncommitted``: the offsets to commit. ``auto_commit_s``: how long to wait for that on_revoked."""
        self._driver = driver
        self._waits = waits
        self._uncommitted = uncommitted
        self._auto_commit_s = auto_commit_s
        self.is_running = False
        """Whether a rebalance callback is running."""
        self.listener: RebalanceListener | None = None
        self._commit: _CommitBefore | None = None
        self._closing: Deadline | None = None

    # --- rebalances

    def run_rebalances(self, consumer: Any, *, poll_deadline: Deadline | None = None) -> bool:
        """Run the callbacks that are due. The first error of a callback is raised after the last one.

        In poll(), its deadline and wakeup() end the wait for the automatic commit that precedes on_revoked:
        the next poll() goes on waiting. Returns whether all have run.
        """
        if self.is_running:
            return False
        failure: Exception | None = None
        self.is_running = True
        try:
            while self._driver.callbacks:
                if not self._has_committed(poll_deadline):
                    break
                event = self._driver.callbacks.popleft()
                try:
                    self._run(event, consumer)
                except Exception as error:
                    log.exception("a rebalance callback failed")
                    failure = failure or error
        finally:
            self.is_running = False
        if failure is not None:
            raise failure
        return not self._driver.callbacks

    def _has_committed(self, poll_deadline: Deadline | None) -> bool:
        """Whether the next callback may run: before on_revoked, wait for the automatic commit."""
        driver, event = self._driver, self._driver.callbacks[0]
        if not isinstance(event, Revoke):
            return True
        if self._commit is None or self._commit.event is not event:
            limit = self._closing or self._waits.deadline(self._auto_commit_s)
            pending = driver.auto_commit(self._uncommitted, limit.remaining_ms)
            self._commit = _CommitBefore(event, pending, limit)
        commit = self._commit

        def is_over() -> bool | None:
            is_lost = driver.callbacks[0] is not event
            return commit.pending is None or commit.pending.is_done or commit.limit.is_over or is_lost or None

        in_poll = poll_deadline is not None
        deadline = poll_deadline or self._closing or commit.limit
        return self._waits.wait(is_over, deadline, interruptible=in_poll) or not in_poll

    def _run(self, event: CallbackEvent, consumer: Any) -> None:
        listener = self.listener
        try:
            if isinstance(event, Revoke):
                if listener is not None and event.partitions:
                    listener.on_revoked(consumer, list(event.partitions))
            elif isinstance(event, Lost):
                if listener is not None and event.partitions:
                    listener.on_lost(consumer, list(event.partitions))
            else:
                self._driver.take_over(event)
                if listener is not None:
                    listener.on_assigned(consumer, list(event.added))
        finally:
            self._driver.callback_done(event)

    def finish(self, consumer: Any, deadline: Deadline) -> None:
        """Before a consumer is closed: commit, leave the group, and run all callbacks."""
        self._closing = deadline
        try:
            self.commit_automatically(deadline)
            self.finish_commits(deadline)
        finally:
            self._leave(consumer, deadline)
        self.run_commits()

    def _leave(self, consumer: Any, deadline: Deadline) -> None:
        """Leave the group after the callbacks that this causes; then raise the first error of one."""
        driver = self._driver
        driver.leave(deadline.remaining_ms)
        # Callbacks may follow each other: those of a rebalance in progress, then on_revoked.
        failure: Exception | None = None
        while True:
            try:
                self.run_rebalances(consumer)
            except Exception as error:  # noqa: BLE001 - raised once the member has left
                failure = failure or error
            if driver.has_left or deadline.is_over:
                break
            self._waits.wait(
                lambda: driver.has_left or bool(driver.callbacks) or None, deadline, interruptible=False
            )
        if failure is not None:
            raise failure

    # --- commits

    def run_commits(self) -> None:
        """Run the callbacks of asynchronous commits that have ended."""
        finished = self._driver.finished_commits
        while finished:
            callback, event = finished.popleft()
            callback(dict(event.offsets), event.error)

    def finish_commits(self, deadline: Deadline) -> None:
        """Wait until all asynchronous commits have ended."""
        self._driver.wake()
        self._waits.wait(lambda: not self._driver.async_commits or None, deadline, interruptible=False)

    def commit_automatically(self, deadline: Deadline) -> None:
        """Commit what was consumed, if enable_auto_commit is on, and wait. A failure is only logged."""
        pending = self._driver.auto_commit(self._uncommitted, deadline.remaining_ms)
        if pending is not None:
            self._waits.wait(lambda: pending.is_done or None, deadline, interruptible=False)
