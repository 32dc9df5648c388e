"""Waiting on the user's thread: until a condition holds, the time is up, or wakeup() is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.consumer.cores import Pending
from millstream.consumer.driver import ConsumerDriver
from millstream.errors import MillstreamTimeoutError, WakeupError

T = TypeVar("T")

_LONGEST_WAIT_S = 60.0


class UserWaits:
    """The waits of one consumer, and the wakeup that ends them."""

    def __init__(self, client: Client, driver: ConsumerDriver) -> None:
        self._client = client
        self._guard = driver.guard
        self._lock = driver.lock
        self._woken = False

    def wakeup(self) -> None:
        """Make the current wait, or the next one, raise WakeupError."""
        with self._lock:
            self._woken = True
            self._lock.notify_all()
        # A signal handler may run on the waiting thread itself, after its check and before its wait. That
        # wait misses the notification above, so the I/O thread notifies again once it gets the lock.
        self._client.wake()

    def check_wakeup(self) -> None:
        """Raise WakeupError if it is due, before records are taken that the caller would not get."""
        with self._lock:
            self._raise_if_woken()

    def _raise_if_woken(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError

    def forget_wakeup(self) -> None:
        """Cancel a wakeup that came too late to end anything."""
        self._woken = False

    def deadline(self, timeout_s: float) -> Deadline:
        """When a call that begins now must be over, by the client's clock."""
        return Deadline(timeout_s, self._client.io.clock)

    def wait(
        self, look: Callable[[], T | None], deadline: Deadline, *, interruptible: bool = True
    ) -> T | None:
        """Wait until ``look`` returns something; None after the deadline.

        Raises WakeupError, AuthenticationError while the cluster does not let this client in, and what has
        made the consumer fail.
        """

        def is_over() -> bool:
            ends_early = interruptible and (self._woken or self._client.refusal is not None)
            return look() is not None or ends_early or self._guard.has_failed

        with self._lock:
            while True:
                found = look()
                if found is not None:
                    return found
                if interruptible:
                    self._raise_if_woken()
                    self._client.check_let_in()
                self._client.io.check_running()
                self._guard.check()
                if deadline.is_over:
                    return None
                self._lock.wait_for(is_over, min(deadline.remaining_s, _LONGEST_WAIT_S))

    def outcome(self, pending: Pending, deadline: Deadline, what: str) -> Any:
        """Wait for an operation and return its result; raise its error, or MillstreamTimeoutError."""
        # The operation ends itself at the deadline, with a better error than this one: give it a second more.
        longer = self.deadline(deadline.remaining_s + 1.0)
        if self.wait(lambda: pending.is_done or None, longer) is None:
            raise MillstreamTimeoutError(
                f"{what} did not end within {deadline.timeout_s:g} seconds: diagnose() says what it waits for"
            )
        return pending.outcome()
