"""Consumer: the whole of Kafka's consumer, for one thread.

The methods below only translate: they check what they are given, let one thread in, and hand the call to the
part whose business it is. What comes of it is decided by the cores, on which ``driver`` reports and
``user_side`` waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding import arrow
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.fetching.drain import Deserializers
from millstream.consumer.fetching.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership import GroupMetadata
from millstream.consumer.user.access import Change, Entrance
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
from millstream.consumer.user.commits import CommitCallback, Commits
from millstream.consumer.user.diagnosis import diagnose
from millstream.consumer.user.polling import Polling
from millstream.consumer.user.progress import Progress
from millstream.consumer.user.questions import Questions
from millstream.consumer.user.session import UserSide
from millstream.errors import MisuseError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.serde import deserializer

P = ParamSpec("P")
T = TypeVar("T")

_CLOSE_SECONDS = 30.0
_ITERATION_SECONDS = 1.0
_NO_LIMIT = 2**62


class Consumer:
    """Reads topics, alone or as a member of a group.

    Settings are keywords in snake_case, or Kafka's names in a mapping. A consumer belongs to one thread at a
    time; only ``wakeup`` may be called from others. Timeouts are seconds.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        config = ConsumerConfig.from_settings(settings, keywords)
        deserializers = Deserializers.of(
            deserializer(config.key_deserializer, "key_deserializer"),
            deserializer(config.value_deserializer, "value_deserializer"),
        )
        self._config = config
        self._client = Client(config, auto_create_topics=config.allow_auto_create_topics)
        self._client.close_with(self)
        try:
            driver = ConsumerDriver(self._client, config)
        except BaseException:
            self._client.close(0)
            raise
        self._driver = driver
        self._lock = driver.lock
        self._positions = driver.fetcher.positions
        # None of the parts knows the consumer: one that is forgotten is collected, and ends, at once.
        self._progress = Progress(self._positions)
        self._side = UserSide(driver, self._progress.consumed)
        self._open = Entrance(self._client, driver.lock)
        self._alone = self._open.alone
        self._changing = Change(self._open, self._progress, self._client)
        self._polling = Polling(driver, self._side, self._progress, self._alone, deserializers)
        self._commits = Commits(driver, self._side, self._progress)
        self._questions = Questions(driver, self._side, self._progress)
        compiling.background.on_volume()
        driver.start()

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
            with self._open:
                if self._driver.membership is None:
                    raise MisuseError("subscribe() needs a group_id: set one, or use assign()")
                self._progress.give_back()
                self._side.listener = checked_listener(listener)
                if pattern is not None:
                    self._driver.subscription.choose_pattern(topic_pattern(pattern), self._client.cluster)
                    self._driver.apply_subscription()
                elif names:
                    self._driver.subscription.choose_topics(names)
                    self._driver.apply_subscription()
            if names == []:
                self.unsubscribe()

    def unsubscribe(self) -> None:
        """Read nothing any more: leave the group after on_revoked, or drop what was assigned."""
        with self._alone:
            with self._open:
                self._progress.give_back()
                by_group = self._driver.subscription.is_by_group
                self._driver.subscription.clear()
                if by_group and self._driver.membership is not None:
                    self._driver.membership.unsubscribe(self._driver.now_ms())
                    self._driver.handle_events(self._driver.now_ms())
            self._side.run_rebalance_callbacks(self)
            with self._lock:
                self._positions.assign(())
                self._driver.track_topics()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed, by name or by pattern."""
        with self._open:
            return self._driver.subscription.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing. New partitions of a topic are your business."""
        wanted = [partition_of(each) for each in partitions]
        with self._changing:
            self._driver.subscription.choose_partitions()
            self._positions.assign(wanted)
            self._driver.track_topics()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        with self._open:
            return self._positions.assignment()

    # --- reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Records:
        """Wait for records up to ``timeout`` seconds, and return those there are, up to max_poll_records.

        Also the place where rebalance and commit callbacks run, where offsets are committed automatically,
        and where errors are raised.
        """
        limit = self._config.max_poll_records if max_records is None else record_limit(max_records)
        with self._alone:
            return self._poll(limit, seconds(timeout))

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None, headers: bool = False) -> Any:
        """As ``poll``, but all that is ready, as one ``pyarrow.RecordBatch``, with ``headers`` if wanted."""
        key_type = arrow.column_type(self._config.key_deserializer, "key_deserializer")
        value_type = arrow.column_type(self._config.value_deserializer, "value_deserializer")
        limit = _NO_LIMIT if max_records is None else record_limit(max_records)
        with self._alone:
            records = self._poll(limit, seconds(timeout))
            return arrow.to_record_batch(records.columns, key_type, value_type, headers=headers)

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, for ever, until ``wakeup`` or ``close`` ends it.

        A commit in the loop covers the records that the loop has seen, the present one included.
        """
        iteration, callbacks = self._progress.iteration, self._driver.callbacks
        while not self._open.is_closed:
            rest = iteration.rest
            for record in rest if not callbacks else ():
                yield record
                # The loop may have sought or closed; and records of partitions that may be lost are not ours.
                if iteration.rest is not rest or callbacks:
                    break
            if iteration.rest is rest:
                self.fetch_more()

    def next_fetched(self) -> Record | None:
        """The next record of an iteration that is there already, without waiting.

        None while a callback is due: partitions may be lost, and their records are not for this consumer.
        """
        with self._alone:
            return None if self._driver.callbacks else self._progress.iteration.next()

    def fetch_more(self) -> None:
        """Wait a while for the records that an iteration goes on with."""
        with self._alone:
            records = self._poll(self._config.max_poll_records, _ITERATION_SECONDS)
            self._progress.iteration.start(records)

    def _poll(self, limit: int, timeout_s: float) -> Records:
        deadline = Deadline(timeout_s)
        self._open.check_open()
        if self._progress.iteration:
            with self._lock:
                self._progress.give_back()
        return self._polling.poll(self, limit, deadline)

    # --- committing

    def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """Commit and wait: what was handed out, or exactly ``offsets`` (the next ones to read).

        Repeats until it is stored; raises CommitFailedError when this member no longer owns the partitions.
        """
        with self._alone:
            self._commits.commit(offsets, self._deadline(timeout))

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting. ``callback(offsets, error)`` is called in a later poll, commit or close.

        It is not repeated when it fails, so it never overwrites a later commit.
        """
        with self._alone:
            self._open.check_open()
            self._commits.commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; None where it has not."""
        wanted = [partition_of(each) for each in partitions]
        with self._alone:
            return self._commits.committed(wanted, self._deadline(timeout))

    # --- positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that poll() returns; waits until it is known."""
        where = partition_of(partition)
        with self._alone:
            return self._questions.position(where, self._deadline(timeout))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from another offset, from the next poll on."""
        with self._changing:
            self._positions.seek(partition_of(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from their first record."""
        with self._changing:
            self._positions.seek_to_beginning(map(partition_of, partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from the next record that is written."""
        with self._changing:
            self._positions.seek_to_end(map(partition_of, partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition not older than a time (epoch ms); None where all are older."""
        wanted = times_of(timestamps)
        with self._alone:
            return self._questions.offsets(wanted, self._deadline(timeout))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where each partition's log begins."""
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
            found = self._questions.offsets(wanted, self._deadline(timeout))
        return {partition: place.offset for partition, place in found.items() if place is not None}

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records lie between the position and the end, as far as it is known without asking."""
        where = partition_of(partition)
        with self._open:
            return self._progress.lag(where)

    # --- flow

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until they are resumed; membership and heartbeats go on."""
        with self._changing:
            self._positions.pause(map(partition_of, partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        with self._changing:
            self._positions.resume(map(partition_of, partitions))

    def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        """Fetch nothing of this partition from offset ``end`` on, for whoever will not read further; None: no
        end. Records behind it that came with others are handed out all the same.
        """
        with self._changing:
            self._positions.fetch_until(partition_of(partition), end)

    def paused(self) -> frozenset[TopicPartition]:
        with self._open:
            return self._positions.paused()

    # --- the cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, ready for ``assign``; none where there is no such topic."""
        with self._alone:
            info = self._questions.cluster([topic], self._deadline(timeout)).topic(topic)
            return [] if info is None else [each.topic_partition for each in info.partitions]

    def topics(self, timeout: float | None = None) -> list[str]:
        """The names of all topics, internal ones included."""
        with self._alone:
            return sorted(self._questions.cluster(None, self._deadline(timeout)).topics)

    # --- life

    def wakeup(self) -> None:
        """Make the present or the next blocking call raise WakeupError; from any thread or signal handler."""
        self._side.wakeup()

    def remember_polls(self) -> None:
        """Keep what the last poll returned, so that ``undo_poll`` can take it back."""
        self._polling.remember()

    def undo_poll(self) -> None:
        """Nobody has seen the last poll's records: the next poll returns them again."""
        self._polling.undo()

    def forget_wakeup(self) -> None:
        """Take back a ``wakeup`` that came too late to end anything."""
        self._side.forget_wakeup()

    @property
    def is_closed(self) -> bool:
        return self._open.is_closed

    @property
    def client_id(self) -> str:
        return self._config.client_id

    def lend(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method for the thread that is in this consumer now, and waits for the caller."""
        owner = self._alone.lend()
        try:
            return method(*args, **kwargs)
        finally:
            self._alone.take_back(owner)

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Commit where that is automatic, run on_revoked, leave the group, and end. Repeating is harmless."""
        with self._alone:
            if self._open.is_closed or self._client.io.is_forked:
                return
            if self._side.in_callback:
                raise MisuseError(
                    "close() cannot be called in a rebalance callback, which the group waits for: call "
                    "wakeup() there, and close() when poll() has raised WakeupError"
                )
            deadline = Deadline(seconds(timeout))
            try:
                try:
                    self._side.commit_automatically(deadline)
                    self._side.finish_commits(deadline)
                finally:
                    self._side.leave(self, deadline)
                self._side.run_commit_callbacks()
            finally:
                self._open.is_closed = True
                self._progress.iteration.stop()
                with self._lock:
                    last = self._driver.end()
                self._client.submit(lambda: self._driver.send_last(last))
                self._client.close(max(1.0, deadline.remaining_s))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""
        with self._open:
            if self._driver.membership is None:
                raise MisuseError("this consumer has no group_id, so it is in no group")
            return self._driver.membership.metadata

    def metrics(self) -> dict[str, Any]:
        """Counters of this consumer, as plain values."""
        with self._open:
            return {
                **self._client.metrics.snapshot(),
                "assigned_partitions": len(self._positions.assignment()),
                "buffered_bytes": self._driver.fetcher.buffered_bytes,
            }

    def diagnose(self) -> str:
        """Why am I not getting records? In words."""
        with self._alone, self._lock:
            if self._open.is_closed:
                return "The consumer is closed."
            return diagnose(self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside

    def _deadline(self, timeout: float | None) -> Deadline:
        """When a call must be over, which the consumer has to be open for."""
        self._open.check_open()
        return Deadline(self._config.default_api_timeout_ms / 1000 if timeout is None else seconds(timeout))
