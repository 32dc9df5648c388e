"""The user's callbacks, on the user's thread: rebalance listeners and the callbacks of commit_async."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from millstream.client.blocking import Deadline
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership.values import CallbackEvent, Lost, Revoke
from millstream.consumer.offsets.values import Offsets
from millstream.consumer.user.waits import UserWaits

log = logging.getLogger("millstream.consumer")


class UserCallbacks:
    """Runs the callbacks of one consumer, and the automatic commits that must precede them."""

    def __init__(
        self, driver: ConsumerDriver, waits: UserWaits, consumed: Callable[[], Offsets], auto_commit_s: float
    ) -> None:
        """``consumed``: the offsets to commit. ``auto_commit_s``: how long to wait for that on_revoked."""
        self._driver = driver
        self._waits = waits
        self._consumed = consumed
        self._auto_commit_s = auto_commit_s
        self.is_running = False
        """Whether a rebalance callback is running."""
        self.listener: RebalanceListener | None = None

    # --- rebalances

    def run_rebalances(self, consumer: Any) -> None:
        """Run the callbacks that are due. The first error of a callback is raised after the last one."""
        if self.is_running:
            return
        failure: Exception | None = None
        self.is_running = True
        try:
            while self._driver.callbacks:
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

    def _run(self, event: CallbackEvent, consumer: Any) -> None:
        listener = self.listener
        try:
            if isinstance(event, Revoke):
                self.commit_automatically(Deadline(self._auto_commit_s))
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

    def leave(self, consumer: Any, deadline: Deadline) -> None:
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
        pending = self._driver.auto_commit(self._consumed, deadline.remaining_ms)
        if pending is not None:
            self._waits.wait(lambda: pending.is_done or None, deadline, interruptible=False)
