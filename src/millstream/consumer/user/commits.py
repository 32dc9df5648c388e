"""Committing on the user's thread: what to commit, and waiting for what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.client.blocking import Deadline
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.offsets import CommitDone, OffsetStore
from millstream.consumer.user.arguments import OffsetsToCommit, offsets_to_commit
from millstream.consumer.user.progress import Progress
from millstream.consumer.user.session import UserSide
from millstream.errors import MillstreamError, MisuseError
from millstream.model import OffsetAndMetadata, TopicPartition

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]


class Commits:
    """The commits of one consumer. Whoever commits is alone in it, and it is open."""

    def __init__(self, driver: ConsumerDriver, side: UserSide, progress: Progress) -> None:
        self._driver = driver
        self._lock = driver.lock
        self._side = side
        self._progress = progress

    def commit(self, offsets: OffsetsToCommit | None, deadline: Deadline) -> None:
        """Store these, or all that was handed out, and wait for it. Callbacks that are due run, too."""
        store, wanted = self._store(), self._wanted(offsets)
        if not wanted:
            self._side.finish_commits(deadline)
            self._side.run_commit_callbacks()
            return
        with self._lock:
            number = store.commit(wanted, self._driver.now_ms() + deadline.remaining_ms)
            ticket = self._driver.expect("commit", number)
        try:
            self._outcome(ticket, deadline, "the commit")
        finally:
            self._side.run_commit_callbacks()

    def commit_async(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> None:
        """Store these, or all that was handed out, some time; the callback hears of it."""
        store, wanted = self._store(), self._wanted(offsets)
        self._side.run_commit_callbacks()
        with self._lock:
            if wanted:
                number = store.commit_async(wanted, self._driver.now_ms())
                self._driver.async_commits[number] = callback
            elif callback is not None:
                self._driver.finished_commits.append((callback, CommitDone(0, {}, None)))
        self._driver.client.wake()

    def committed(
        self, partitions: list[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored."""
        if not partitions:
            return {}
        with self._lock:
            end_ms = self._driver.now_ms() + deadline.remaining_ms
            ticket = self._driver.expect("committed", self._store().fetch_committed(partitions, end_ms))
        event = self._outcome(ticket, deadline, "reading committed offsets")
        return {partition: event.offsets.get(partition) for partition in partitions}

    def _outcome(self, ticket: tuple[str, int], deadline: Deadline, what: str) -> Any:
        """Wait for an outcome. Where it is the group that has failed, the user has been told with that."""
        try:
            return self._side.outcome(ticket, Deadline(deadline.remaining_s + 1.0), what)
        except MillstreamError as error:
            with self._lock:
                member = self._driver.membership
                if member is not None and member.error is error:
                    member.error_raised(self._driver.now_ms())
            raise

    def _wanted(self, offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            with self._lock:
                return self._progress.consumed()
        return offsets_to_commit(offsets)

    def _store(self) -> OffsetStore:
        if self._driver.offsets is None:
            raise MisuseError("this consumer has no group_id, so it has nowhere to commit to: set one")
        return self._driver.offsets
