"""Consumer: Kafka's consumer, for one thread.

Each method checks its arguments, lets one thread in, and passes the call on to the consumer's session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, Unpack

from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.config.keywords import ConsumerKeywords
from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding import arrow
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.fetching.drain import Deserializers
from millstream.consumer.fetching.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership.values import GroupMetadata
from millstream.consumer.user.arguments import (
    OffsetsToCommit,
    checked_listener,
    partition_of,
    record_limit,
    seconds,
    times_of,
    topic_names,
    topic_pattern,
)
from millstream.consumer.user.calls import CommitCallback
from millstream.consumer.user.session import ConsumerSession
from millstream.errors import MisuseError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.registry import choices

_CLOSE_SECONDS = 30.0
_NO_LIMIT = 2**62


class Consumer:
    """Reads topics, alone or as a member of a group.

    Settings are keywords in snake_case, or Kafka's names in a mapping. A consumer belongs to one thread at a
    time; only ``wakeup`` may be called from others. Timeouts are in seconds.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[ConsumerKeywords]
    ) -> None:
        config = ConsumerConfig.from_settings(settings, keywords)
        deserializers = Deserializers.of(*choices.deserializers(config))
        self._config = config
        client = self._connect(config)
        client.close_with(self)
        try:
            session = ConsumerSession(client, config, deserializers)
        except BaseException:
            client.close(0)
            raise
        self._session = session
        self._driver = session.driver
        self._positions = session.driver.positions
        self._alone = session.alone
        compiling.background.on_volume()
        session.driver.start()

    # --- choosing what to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics by name, or all whose whole name matches a pattern, sharing them with the group.

        Replaces the earlier subscription. New topics that match a pattern are picked up as they appear.
        """
        if (topics is None) == (pattern is None):
            raise MisuseError("subscribe() takes topics or a pattern: give one of them")
        names = None if topics is None else topic_names(topics)
        with self._alone:
            with self._session.changing():
                if not self._driver.has_group:
                    raise MisuseError("subscribe() needs a group_id: set one, or use assign()")
                self._session.callbacks.listener = checked_listener(listener)
                if names != []:
                    self._driver.subscribe(names, None if pattern is None else topic_pattern(pattern))
            if names == []:
                self.unsubscribe()

    def unsubscribe(self) -> None:
        """Read nothing: leave the group after on_revoked, or drop the assigned partitions."""
        with self._alone:
            with self._session.changing():
                self._driver.unsubscribe()
            try:
                self._session.callbacks.run_rebalances(self)
            finally:
                # Inside a callback, on_revoked follows: until then, what was read can be committed.
                if not self._session.callbacks.is_running:
                    self._driver.read(())

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed, by name or by pattern."""
        with self._session.opened():
            return self._driver.subscription.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group. New partitions of a topic are not picked up."""
        wanted = [partition_of(each) for each in partitions]
        with self._session.changing():
            self._driver.subscription.choose_partitions()
            self._driver.read_chosen(wanted)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        with self._session.opened():
            return self._positions.assignment()

    # --- reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Records:
        """Wait for records for at most ``timeout`` seconds; at most ``max_records`` (max_poll_records).

        Runs rebalance and commit callbacks, commits automatically, and raises errors.
        """
        limit = self._config.max_poll_records if max_records is None else record_limit(max_records)
        with self._alone:
            return self._session.poll(self, limit, seconds(timeout))

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None, headers: bool = False) -> Any:
        """As ``poll``, but all records that are ready, as one ``pyarrow.RecordBatch``."""
        key_type = arrow.column_type(self._config.key_deserializer, "key_deserializer")
        value_type = arrow.column_type(self._config.value_deserializer, "value_deserializer")
        limit = _NO_LIMIT if max_records is None else record_limit(max_records)
        with self._alone:
            records = self._session.poll(self, limit, seconds(timeout))
            return arrow.to_record_batch(records.columns, key_type, value_type, headers=headers)

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, without end, until ``wakeup`` or ``close``.

        A commit in the loop covers the records that the loop has seen, the current one included.
        """
        session = self._session
        iteration, callbacks = session.progress.iteration, self._driver.callbacks
        while not session.is_closed:
            rest = iteration.rest
            for record in rest if not callbacks else ():
                yield record
                # The loop may have sought or closed, and records of lost partitions must not be returned.
                if iteration.rest is not rest or callbacks:
                    break
            if iteration.rest is rest:
                session.fetch_more(self)

    # --- committing

    def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """Commit ``offsets`` (the next ones to read), or what poll() has returned, and wait.

        Retries until it is stored; raises CommitFailedError when this member no longer owns the partitions.
        """
        with self._alone:
            self._session.calls.commit(offsets, self._deadline(timeout))

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting. ``callback(offsets, error)`` is called in a later poll, commit or close.

        A failed commit is not repeated, so it never overwrites a later one.
        """
        with self._alone:
            self._session.check_open()
            self._session.calls.commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; None where it has not."""
        wanted = [partition_of(each) for each in partitions]
        with self._alone:
            return self._session.calls.committed(wanted, self._deadline(timeout))

    # --- positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that poll() returns; waits until it is known."""
        where = partition_of(partition)
        with self._alone:
            return self._session.calls.position(where, self._deadline(timeout))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at another offset, from the next poll on."""
        where = partition_of(partition)
        with self._session.changing([where]):
            self._positions.seek(where, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from their first record."""
        which = list(map(partition_of, partitions))
        with self._session.changing(which):
            self._positions.seek_to_beginning(which)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from the next record that is written."""
        which = list(map(partition_of, partitions))
        with self._session.changing(which):
            self._positions.seek_to_end(which)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition not older than a time (epoch ms); None where all are older."""
        wanted = times_of(timestamps)
        with self._alone:
            return self._session.calls.offsets(wanted, self._deadline(timeout))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition's log."""
        return self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have."""
        return self._ends(partitions, LATEST_TIMESTAMP, timeout)

    def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(map(partition_of, partitions), which)
        with self._alone:
            found = self._session.calls.offsets(wanted, self._deadline(timeout))
        return {partition: place.offset for partition, place in found.items() if place is not None}

    def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """How many records are between the position and the end; what is not known is looked up.

        With read_committed, the end is where the first open transaction starts.
        """
        where = partition_of(partition)
        with self._alone:
            return self._session.calls.lag(where, self._deadline(timeout))

    # --- flow

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until they are resumed; membership and heartbeats go on."""
        which = list(map(partition_of, partitions))
        with self._session.changing(which):
            self._positions.pause(which)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again."""
        which = list(map(partition_of, partitions))
        with self._session.changing(which):
            self._positions.resume(which)

    def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        """Fetch nothing of this partition from offset ``end`` on; None removes the end.

        Records after it that came in the same batch are returned anyway.
        """
        where = partition_of(partition)
        with self._session.changing([where]):
            self._positions.fetch_until(where, end)

    def paused(self) -> frozenset[TopicPartition]:
        with self._session.opened():
            return self._positions.paused()

    # --- the cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, ready for ``assign``; none where there is no such topic."""
        with self._alone:
            cluster = self._session.calls.cluster([topic], self._deadline(timeout))
            info, error = cluster.topic(topic), cluster.errors.get(topic)
        if error is not None and not error.retriable:
            raise error
        return [] if info is None else [each.topic_partition for each in info.partitions]

    def topics(self, timeout: float | None = None) -> list[str]:
        """The names of all topics, internal ones included."""
        with self._alone:
            return sorted(self._session.calls.cluster(None, self._deadline(timeout)).topics)

    # --- life

    def wakeup(self) -> None:
        """Make the current or the next blocking call raise WakeupError; from any thread or signal handler."""
        self._session.waits.wakeup()

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Commit if enable_auto_commit is on, run on_revoked, leave the group, and end. May be repeated."""
        self._session.close(self, seconds(timeout))

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Rejoin the group in the next poll(), unless a rebalance is under way.

        All members rebalance if this one leads the group, or if what its assignor tells the group has
        changed; otherwise the coordinator confirms the assignment. ``reason`` is for the broker's log.
        """
        with self._session.opened():
            if not self._driver.subscription.is_by_group:
                raise MisuseError("enforce_rebalance() is for members of a group: call subscribe() first")
            self._driver.request_rebalance(reason or "the user enforced a rebalance")

    def group_metadata(self) -> GroupMetadata:
        """This consumer's identity in its group."""
        with self._session.opened():
            metadata = self._driver.group_metadata()
        if metadata is None:
            raise MisuseError("this consumer has no group_id, so it is in no group")
        return metadata

    def metrics(self) -> dict[str, int | float]:
        """Numbers by name: lag, polls, commits, rebalances, requests. Names are Kafka's, in snake_case."""
        with self._session.opened():
            return self._driver.metrics.snapshot()

    def diagnose(self) -> str:
        """Why am I not getting records? In words."""
        with self._alone:
            return "The consumer is closed." if self._session.is_closed else self._driver.diagnose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- inside

    def _connect(self, config: ConsumerConfig) -> Client:
        return Client(config, auto_create_topics=config.allow_auto_create_topics)

    def _deadline(self, timeout: float | None) -> Deadline:
        """When a call must be over: after ``timeout``, or default_api_timeout_ms. Raises if it is closed."""
        self._session.check_open()
        timeout_s = self._config.default_api_timeout_ms / 1000 if timeout is None else seconds(timeout)
        return self._session.waits.deadline(timeout_s)


def session_of(consumer: Consumer) -> ConsumerSession:
    """The session of a consumer: the seam for AsyncConsumer and millstream.spark, not for users."""
    return consumer._session
