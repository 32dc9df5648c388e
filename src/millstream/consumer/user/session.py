"""ConsumerSession: one consumer as its user's thread runs it, from the first call to close.

This is the internal seam of the public classes. ``Consumer`` translates each of its methods into calls of the
parts below. ``AsyncConsumer`` and Spark's group member also use what users do not need: ``next_fetched``,
``fetch_more``, ``undo_poll``, ``waits.forget_wakeup``, ``alone.lend``. They get it with ``session_of``.

No part refers to the Consumer itself, so an abandoned one is garbage-collected, which closes its client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching.drain import Deserializers, drain
from millstream.consumer.subscription import SubscriptionMode
from millstream.consumer.user.callbacks import UserCallbacks
from millstream.consumer.user.calls import UserCalls
from millstream.consumer.user.progress import UserProgress
from millstream.consumer.user.single_thread import SingleThread
from millstream.consumer.user.waits import UserWaits
from millstream.errors import ConsumerClosedError, MisuseError
from millstream.model import TopicPartition

_ITERATION_SECONDS = 1.0


class ConsumerSession:
    """The parts of one consumer on the user's thread, and who may use them when."""

    def __init__(self, client: Client, config: ConsumerConfig, deserializers: Deserializers) -> None:
        self.client = client
        self.config = config
        self.driver = ConsumerDriver(client, config)
        self.progress = UserProgress(self.driver.positions)
        self.alone = SingleThread()
        self.is_closed = False
        self.waits = UserWaits(client, self.driver)
        auto_commit_ms = min(config.default_api_timeout_ms, config.max_poll_interval_ms)
        self.callbacks = UserCallbacks(
            self.driver, self.waits, self.progress.uncommitted, auto_commit_ms / 1000
        )
        self.calls = UserCalls(self.driver, self.waits, self.callbacks, self.progress)
        self._deserializers = deserializers
        self._remembers_polls = False
        self._last_poll = Records()

    # --- who may do what

    def check_open(self) -> None:
        """Raise unless the consumer is open and was made in this process."""
        if self.is_closed:
            raise ConsumerClosedError
        self.client.io.check()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Alone in an open consumer, with its lock held."""
        with self.alone:
            self.check_open()
            with self.driver.lock:
                yield

    @contextmanager
    def changing(self, partitions: Collection[TopicPartition] = ()) -> Iterator[None]:
        """As ``opened``, to change how ``partitions`` (none: all) are read; ends an iteration over them."""
        with self.opened():
            self.progress.give_back(partitions)
            try:
                yield
            finally:
                self.client.wake()

    # --- reading

    def poll(self, consumer: Any, max_records: int, timeout_s: float) -> Records:
        """See ``Consumer.poll``. Listeners get ``consumer`` as argument."""
        deadline = self.waits.deadline(timeout_s)
        self.check_open()
        if self.progress.iteration:
            with self.driver.lock:
                self.progress.give_back()
        self._last_poll = Records()
        if self.driver.subscription.mode is SubscriptionMode.NONE:
            raise MisuseError("nothing to poll: call subscribe() or assign() first")
        self.driver.begin_poll(self.progress.uncommitted)
        try:
            records = self._take_or_wait(consumer, max_records, deadline)
        finally:
            self.driver.end_poll(self.alone.entries)
        if self._remembers_polls:
            self._last_poll = records
        return records

    def _take_or_wait(self, consumer: Any, max_records: int, deadline: Deadline) -> Records:
        """Run callbacks that are due, then take records; wait for either while there are none."""
        driver = self.driver
        while True:
            self.waits.check_wakeup()
            driver.guard.check()
            self.callbacks.run_commits()
            if driver.callbacks and not self._run_rebalances(consumer, deadline):
                return Records()
            chunks = driver.begin_take()
            if chunks:
                records = driver.finish_take(drain(chunks, max_records, self._deserializers))
                if records:
                    return records
            driver.wake()
            if self.waits.wait(driver.has_news, deadline) is None:
                return Records()

    def _run_rebalances(self, consumer: Any, deadline: Deadline) -> bool:
        """Run the user's callbacks; their time counts against max_poll_interval_ms. False: more are due."""
        self.driver.user_polled(waiting=False)
        try:
            return self.callbacks.run_rebalances(consumer, poll_deadline=deadline)
        finally:
            self.driver.user_polled(waiting=True)

    def next_fetched(self) -> Record | None:
        """The next record of an iteration if it was fetched already.

        None while a rebalance callback is due: the partitions may be lost, and their records with them.
        """
        with self.alone:
            return None if self.driver.callbacks else next(self.progress.iteration.rest, None)

    def fetch_more(self, consumer: Any) -> None:
        """Poll for the records that an iteration yields next."""
        with self.alone:
            records = self.poll(consumer, self.config.max_poll_records, _ITERATION_SECONDS)
            self.progress.iteration.start(records)

    def remember_polls(self) -> None:
        """Keep the records of the last poll for ``undo_poll``."""
        self._remembers_polls = True

    def undo_poll(self) -> None:
        """Return the records of the last poll again in the next one: the caller never got them."""
        self.progress.iteration.start(self._last_poll)
        self._last_poll = Records()

    # --- the end

    def close(self, consumer: Any, timeout_s: float) -> None:
        """See ``Consumer.close``."""
        with self.alone:
            if self.is_closed or self.client.io.is_forked:
                return
            if self.callbacks.is_running:
                raise MisuseError(
                    "close() cannot be called in a rebalance callback, which the group waits for: call "
                    "wakeup() there, and close() when poll() has raised WakeupError"
                )
            deadline = self.waits.deadline(timeout_s)
            try:
                if not self.driver.guard.has_failed:
                    self.callbacks.finish(consumer, deadline)
            finally:
                self.is_closed = True
                self.progress.iteration.stop()
                self.driver.end()
                self.client.close(max(1.0, deadline.remaining_s))
