"""Questions of the user's thread that only brokers can answer: positions, offsets by time, topics."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.client.blocking import Deadline
from millstream.client.cluster import Cluster
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.user.diagnosis import diagnose
from millstream.consumer.user.progress import Progress
from millstream.consumer.user.session import UserSide
from millstream.errors import MillstreamTimeoutError
from millstream.model import OffsetAndTimestamp, TopicPartition


class Questions:
    """The questions of one consumer. Whoever asks is alone in it, and it is open."""

    def __init__(self, driver: ConsumerDriver, side: UserSide, progress: Progress) -> None:
        self._driver = driver
        self._side = side
        self._progress = progress

    def position(self, partition: TopicPartition, deadline: Deadline) -> int:
        """Where reading goes on, once that is known."""
        self._driver.client.wake()
        found = self._side.wait(lambda: self._known_position(partition), deadline)
        if found is None:
            raise MillstreamTimeoutError(
                f"the position of {partition} was not found within {deadline.timeout_s:g} seconds: "
                + diagnose(self._driver)
            )
        return found

    def _known_position(self, partition: TopicPartition) -> int | None:
        offset = self._progress.position(partition)
        if offset is None:
            self._driver.raise_topic_error()
            self._driver.fetcher.raise_errors(self._driver.now_ms())
        return offset

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition from a time on, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP."""
        if not timestamps:
            return {}
        driver = self._driver
        with driver.lock:
            end_ms = driver.now_ms() + deadline.remaining_ms
            ticket = driver.expect("search", driver.fetcher.find_offsets(timestamps, end_ms))
        event = self._side.outcome(ticket, Deadline(deadline.remaining_s + 1.0), "looking for offsets")
        return dict(event.offsets)

    def cluster(self, topics: list[str] | None, deadline: Deadline) -> Cluster:
        """The cluster with these topics, or all, as it is now."""
        driver = self._driver
        outcome: list[Exception | None] = []

        def told(error: Exception | None) -> None:
            with driver.lock:
                outcome.append(error)
                driver.lock.notify_all()

        driver.client.submit(lambda: driver.client.metadata.refresh(topics, told))
        if self._side.wait(lambda: outcome or None, deadline) is None:
            raise MillstreamTimeoutError(
                f"no metadata within {deadline.timeout_s:g} seconds: {diagnose(driver)}"
            )
        if outcome[0] is not None:
            raise outcome[0]
        return driver.client.cluster
