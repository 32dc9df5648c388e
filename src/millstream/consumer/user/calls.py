"""Calls of the user that wait for brokers: commits, positions, offset searches, metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.client.blocking import Deadline
from millstream.client.cluster import Cluster
from millstream.consumer.cores import Pending
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching.list_offsets import LATEST_TIMESTAMP
from millstream.consumer.user.arguments import OffsetsToCommit, offsets_to_commit
from millstream.consumer.user.callbacks import UserCallbacks
from millstream.consumer.user.progress import UserProgress
from millstream.consumer.user.waits import UserWaits
from millstream.errors import MillstreamError, MillstreamTimeoutError, MisuseError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]


class UserCalls:
    """The waiting calls of one consumer. The caller is alone in it, and it is open."""

    def __init__(
        self, driver: ConsumerDriver, waits: UserWaits, callbacks: UserCallbacks, progress: UserProgress
    ) -> None:
        self._driver = driver
        self._waits = waits
        self._callbacks = callbacks
        self._progress = progress

    # --- committed offsets

    def commit(self, offsets: OffsetsToCommit | None, deadline: Deadline) -> None:
        """Commit ``offsets``, or what was consumed, and wait. Callbacks of earlier commits run, too."""
        wanted = self._wanted(offsets)
        if not wanted:
            self._callbacks.finish_commits(deadline)
            self._callbacks.run_commits()
            return
        pending = self._driver.commit(wanted, deadline.remaining_ms)
        try:
            self._group_outcome(pending, deadline, "the commit")
        finally:
            self._callbacks.run_commits()

    def commit_async(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> None:
        """Commit ``offsets``, or what was consumed, in the background."""
        wanted = self._wanted(offsets)
        self._callbacks.run_commits()
        self._driver.commit_async(wanted, callback)

    def _wanted(self, offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self._check_group()
        if offsets is None:
            with self._driver.lock:
                return self._progress.consumed()
        return offsets_to_commit(offsets)

    def committed(
        self, partitions: list[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed."""
        if not partitions:
            return {}
        self._check_group()
        pending = self._driver.fetch_committed(partitions, deadline.remaining_ms)
        found = self._group_outcome(pending, deadline, "reading committed offsets")
        return {partition: found.get(partition) for partition in partitions}

    def _check_group(self) -> None:
        if not self._driver.has_group:
            raise MisuseError("this consumer has no group_id, so it has nowhere to commit to: set one")

    def _group_outcome(self, pending: Pending, deadline: Deadline, what: str) -> Any:
        """Wait for an outcome. An error of the group counts as raised: poll() does not repeat it."""
        try:
            return self._waits.outcome(pending, deadline, what)
        except MillstreamError as error:
            self._driver.error_raised(error)
            raise

    # --- positions and offsets

    def position(self, partition: TopicPartition, deadline: Deadline) -> int:
        """The offset of the next record, once it is known."""
        self._driver.find_positions()
        self._driver.wake()
        found = self._waits.wait(lambda: self._known_position(partition), deadline)
        if found is None:
            raise MillstreamTimeoutError(
                f"the position of {partition} was not found within {deadline.timeout_s:g} seconds: "
                + self._driver.diagnose()
            )
        return found

    def _known_position(self, partition: TopicPartition) -> int | None:
        offset = self._progress.position(partition)
        if offset is None:
            self._driver.raise_partition_errors()
        return offset

    def lag(self, partition: TopicPartition, deadline: Deadline) -> int:
        """How many records the user has not seen, once that is known."""
        with self._driver.lock:
            known = self._progress.lag(partition)
        if known is not None:
            return known
        offset = self.position(partition, deadline)
        end = self.offsets({partition: LATEST_TIMESTAMP}, deadline)[partition]
        return 0 if end is None else max(0, end.offset - offset)

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition from a time on, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP."""
        if not timestamps:
            return {}
        pending = self._driver.find_offsets(timestamps, deadline.remaining_ms)
        return dict(self._waits.outcome(pending, deadline, "looking for offsets"))

    def cluster(self, topics: list[str] | None, deadline: Deadline) -> Cluster:
        """The cluster with ``topics``, or all topics, as it is now."""
        pending = self._driver.refresh_metadata(topics)
        if self._waits.wait(lambda: pending.is_done or None, deadline) is None:
            raise MillstreamTimeoutError(
                f"no metadata within {deadline.timeout_s:g} seconds: {self._driver.diagnose()}"
            )
        pending.outcome()
        return self._driver.cluster
