"""What happens on the user's thread: waiting for news, running callbacks, being woken up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.client.blocking import Deadline
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership import Assigned, CallbackEvent, Lost, Revoke
from millstream.consumer.offsets import Offsets
from millstream.errors import MillstreamTimeoutError, WakeupError

log = logging.getLogger("millstream.consumer")

T = TypeVar("T")


class UserSide:
    """The waits and callbacks of one consumer."""

    def __init__(self, driver: ConsumerDriver, consumed: Callable[[], Offsets]) -> None:
        """``consumed``: what was handed out."""
        self._driver = driver
        self._consumed = consumed
        self._woken = False
        self.in_callback = False
        self.listener: RebalanceListener | None = None

    # --- waiting

    def wakeup(self) -> None:
        """End the present wait, or the next, with WakeupError."""
        with self._driver.lock:
            self._woken = True
            self._driver.lock.notify_all()
        # A signal handler may have come between a look and a wait of this very thread, which then is not
        # notified yet: the I/O thread does it once more, when it gets the lock.
        self._driver.client.wake()

    def check_wakeup(self) -> None:
        """Raise WakeupError if it is due, before anything is handed out that the caller would not get."""
        with self._driver.lock:
            if self._woken:
                self._woken = False
                raise WakeupError

    def forget_wakeup(self) -> None:
        self._woken = False

    def wait(
        self, look: Callable[[], T | None], deadline: Deadline, *, interruptible: bool = True
    ) -> T | None:
        """Wait until ``look`` finds something; None when the time is over. Raises WakeupError."""
        driver = self._driver
        with driver.lock:
            while True:
                found = look()
                if found is not None:
                    return found
                if interruptible and self._woken:
                    self._woken = False
                    raise WakeupError
                driver.client.io.check_running()
                if deadline.is_over:
                    return None
                driver.lock.wait(min(deadline.remaining_s, 60.0))

    def outcome(self, ticket: tuple[str, int], deadline: Deadline, what: str, **options: bool) -> Any:
        """Wait for what an operation came to; MillstreamTimeoutError says what did not end in time."""
        driver = self._driver
        try:
            event = self.wait(lambda: driver.take_outcome(ticket), deadline, **options)
        finally:
            with driver.lock:
                driver.forget_outcome(ticket)
        if event is None:
            raise MillstreamTimeoutError(
                f"{what} did not end within {deadline.timeout_s:g} seconds: diagnose() says what it waits for"
            )
        error = getattr(event, "error", None)
        if error is not None:
            raise error
        return event

    # --- callbacks

    def run_commit_callbacks(self) -> None:
        """Tell the callbacks of asynchronous commits what came of them."""
        finished = self._driver.finished_commits
        while finished:
            callback, event = finished.popleft()
            callback(dict(event.offsets), event.error)

    def run_rebalance_callbacks(self, consumer: Any) -> None:
        """Do what rebalances ask of the user's thread. The first error of a callback is raised at the end."""
        if self.in_callback:
            return
        failure: Exception | None = None
        self.in_callback = True
        try:
            while self._driver.callbacks:
                event = self._driver.callbacks.popleft()
                try:
                    self._run(event, consumer)
                except Exception as error:
                    log.exception("a rebalance callback failed")
                    failure = failure or error
        finally:
            self.in_callback = False
        if failure is not None:
            raise failure

    def _run(self, event: CallbackEvent, consumer: Any) -> None:
        driver, listener = self._driver, self.listener
        try:
            if isinstance(event, Revoke):
                self._commit_automatically()
                if listener is not None and event.partitions:
                    listener.on_revoked(consumer, list(event.partitions))
            elif isinstance(event, Lost):
                if listener is not None and event.partitions:
                    listener.on_lost(consumer, list(event.partitions))
            else:
                self._take_up(event)
                if listener is not None:
                    listener.on_assigned(consumer, list(event.added))
        finally:
            with driver.lock:
                if not isinstance(event, Assigned):
                    driver.fetcher.positions.revoke(event.partitions)
                if isinstance(event, Lost):
                    driver.fetcher.positions.revoke(event.dropped)
                assert driver.membership is not None, "only a group rebalances"
                driver.membership.callbacks_done(driver.now_ms())
            driver.client.wake()

    def _take_up(self, event: Assigned) -> None:
        driver = self._driver
        with driver.lock:
            driver.fetcher.positions.assign(event.partitions)
            assert driver.offsets is not None, "only a group assigns"
            driver.offsets.partitions_assigned(driver.now_ms())
            driver.track_topics()

    def _commit_automatically(self) -> None:
        """Store what was handed out, before it is given up. A failure is not the user's: it is logged."""
        config = self._driver.config
        self.commit_automatically(
            Deadline(min(config.default_api_timeout_ms, config.max_poll_interval_ms) / 1000)
        )

    def commit_automatically(self, deadline: Deadline) -> None:
        """Commit what was handed out, where commits are automatic, and wait for it."""
        driver = self._driver
        if driver.offsets is None:
            return
        with driver.lock:
            end_ms = driver.now_ms() + deadline.remaining_ms
            number = driver.offsets.auto_commit_now(self._consumed, end_ms)
            ticket = None if number is None else driver.expect("commit", number)
        if ticket is None:
            return
        self.wait(lambda: driver.take_outcome(ticket), deadline, interruptible=False)
        with driver.lock:
            driver.forget_outcome(ticket)

    def finish_commits(self, deadline: Deadline) -> None:
        """Wait for asynchronous commits: they need the membership that is about to end."""
        pending = self._driver.async_commits
        self._driver.client.wake()
        self.wait(lambda: not pending or None, deadline, interruptible=False)

    # --- the end

    def leave(self, consumer: Any, deadline: Deadline) -> None:
        """Leave the group, after the callbacks that this asks for. The first error of one is raised then."""
        driver, member = self._driver, self._driver.membership
        if member is None:
            return
        with driver.lock:
            now_ms = driver.now_ms()
            member.close(now_ms, now_ms + deadline.remaining_ms)
            driver.handle_events(now_ms)
        driver.client.wake()
        # Callbacks may come one after the other: those of a rebalance under way, then on_revoked.
        failure: Exception | None = None
        while not member.is_closed and not deadline.is_over:
            try:
                self.run_rebalance_callbacks(consumer)
            except Exception as error:  # noqa: BLE001 - raised once the member has left
                failure = failure or error
            self.wait(
                lambda: member.is_closed or bool(driver.callbacks) or None, deadline, interruptible=False
            )
        if failure is not None:
            raise failure
