"""What ``poll`` does on the user's thread: callbacks, then records, or waiting for either."""

from __future__ import annotations

from typing import Any

from millstream.client.blocking import Deadline
from millstream.consumer.decoding.records import Records
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching.drain import Deserializers, draw
from millstream.consumer.membership import Phase
from millstream.consumer.subscription import Mode
from millstream.consumer.user.access import SingleThread
from millstream.consumer.user.progress import Progress
from millstream.consumer.user.session import UserSide
from millstream.errors import MisuseError


class Polling:
    """The polls of one consumer. Whoever polls is alone in it, and it is open."""

    def __init__(
        self,
        driver: ConsumerDriver,
        side: UserSide,
        progress: Progress,
        alone: SingleThread,
        deserializers: Deserializers,
    ) -> None:
        self._driver = driver
        self._lock = driver.lock
        self._fetcher = driver.fetcher
        self._side = side
        self._progress = progress
        self._alone = alone
        self._deserializers = deserializers
        self._last: Records | None = None
        self._after_poll = (0, 0)

    def poll(self, consumer: Any, limit: int, deadline: Deadline) -> Records:
        """Up to so many records, as soon as there are any. ``consumer`` is what the listener gets."""
        if self._driver.subscription.mode is Mode.NONE:
            raise MisuseError("nothing to poll: call subscribe() or assign() first")
        if self._last is not None:
            self._last = Records()
        self._begin()
        try:
            while True:
                self._side.check_wakeup()
                self._side.run_commit_callbacks()
                self._run_rebalance_callbacks(consumer)
                records = self._take(limit)
                if records:
                    if self._last is not None:
                        self._last = records
                    return records
                self._driver.client.wake()
                if self._side.wait(self._news, deadline) is None:
                    return records
        finally:
            self._end()

    # --- taking back

    def remember(self) -> None:
        """Keep what the last poll returned, so that ``undo`` can take it back."""
        self._last = Records()

    def undo(self) -> None:
        """Nobody has seen the last poll's records: they are handed out again."""
        if self._last is not None:
            self._progress.iteration.start(self._last)
            self._last = Records()

    # --- one poll

    def _begin(self) -> None:
        with self._lock:
            self._tell_group(waiting=True)
            if self._driver.offsets is not None:
                self._driver.offsets.auto_commit_if_due(self._progress.consumed, self._driver.now_ms())

    def _end(self) -> None:
        """Wake the I/O thread, unless all it could learn is that there was another poll.

        To switch threads for each poll would cost more than the poll itself. A member that is stable hears of
        it in time by its heartbeats, which are more frequent than max_poll_interval_ms.
        """
        with self._lock:
            self._tell_group(waiting=False)
            is_quiet = self._is_quiet()
        if not is_quiet:
            self._driver.client.wake()

    def _is_quiet(self) -> bool:
        """Whether nothing but this poll has happened since the one before."""
        member, offsets = self._driver.membership, self._driver.offsets
        entries, commit_at_ms = self._alone.entries, offsets.auto_commit_at_ms if offsets is not None else 0
        expected, self._after_poll = self._after_poll, (entries + 1, commit_at_ms)
        if member is not None and self._driver.subscription.is_by_group and member.phase is not Phase.STABLE:
            return False
        return expected == (entries, commit_at_ms) and not self._fetcher.wants_poll

    def _run_rebalance_callbacks(self, consumer: Any) -> None:
        """What the user's callbacks take counts against max_poll_interval_ms."""
        if not self._driver.callbacks:
            return
        with self._lock:
            self._tell_group(waiting=False)
        try:
            self._side.run_rebalance_callbacks(consumer)
        finally:
            with self._lock:
                self._tell_group(waiting=True)

    def _tell_group(self, *, waiting: bool) -> None:
        """The user is in poll() and waits for records, or is on its own."""
        driver = self._driver
        if driver.membership is not None and driver.subscription.is_by_group:
            driver.membership.user_polled(driver.now_ms(), waiting=waiting)

    def _news(self) -> bool | None:
        """Whether there is something to do."""
        driver = self._driver
        failed = driver.membership is not None and driver.membership.error is not None
        failed = failed or driver.has_topic_error
        return bool(driver.callbacks or driver.finished_commits) or failed or self._fetcher.ready() or None

    def _take(self, limit: int) -> Records:
        with self._lock:
            self._raise_group_error()
            self._driver.raise_topic_error()
            self._fetcher.raise_errors(self._driver.now_ms())
            chunks = [] if self._driver.callbacks else self._fetcher.begin_take()
        if not chunks:
            return Records()
        handout = draw(chunks, limit, self._deserializers)
        with self._lock:
            if self._driver.callbacks:  # a rebalance came in between: nothing was handed out yet
                return Records()
            return self._fetcher.finish_take(handout, self._driver.now_ms())

    def _raise_group_error(self) -> None:
        member = self._driver.membership
        if member is not None and member.error is not None:
            error = member.error
            member.error_raised(self._driver.now_ms())
            raise error
