"""Consumer: the whole of Kafka's consumer, for one thread.

The methods below only translate: what they ask for is decided by the cores, on which ``driver`` reports and
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
from millstream.consumer import arrow, compiling
from millstream.consumer.access import SingleThread
from millstream.consumer.diagnosis import diagnose
from millstream.consumer.driver import ConsumerDriver
from millstream.consumer.handouts import Deserializers, draw
from millstream.consumer.iteration import Iteration
from millstream.consumer.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership import GroupMetadata, Phase
from millstream.consumer.offsets import CommitDone, OffsetStore
from millstream.consumer.records import Record, Records
from millstream.consumer.subscription import Mode
from millstream.consumer.user_side import UserSide
from millstream.errors import (
    ConfigError,
    ConsumerClosedError,
    MillstreamError,
    MillstreamTimeoutError,
    MisuseError,
)
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.serde import deserializer

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]
OffsetsToCommit = Mapping[TopicPartition, int | OffsetAndMetadata]

P = ParamSpec("P")
T = TypeVar("T")

_CLOSE_SECONDS = 30.0
_ITERATION_SECONDS = 1.0


class Consumer:
    """Reads topics, alone or as a member of a group.

    Settings are keywords in snake_case, or Kafka's names in a mapping. A consumer belongs to one thread at a
    time; only ``wakeup`` may be called from others. Timeouts are seconds.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        config = ConsumerConfig.from_settings(settings, keywords)
        self._config = config
        self._deserializers = Deserializers.of(
            deserializer(config.key_deserializer, "key_deserializer"),
            deserializer(config.value_deserializer, "value_deserializer"),
        )
        self._client = Client(config, auto_create_topics=config.allow_auto_create_topics)
        self._client.close_with(self)
        try:
            self._driver = ConsumerDriver(self._client, config)
        except BaseException:
            self._client.close(0)
            raise
        self._lock = self._driver.lock
        self._fetcher = self._driver.fetcher
        self._positions = self._driver.fetcher.positions
        self._alone = SingleThread()
        self._iteration = Iteration()
        self._last_polled: Records | None = None
        self._after_poll = (0, 0)
        self._side = UserSide(self._driver, self._consumed)
        self._closed = False
        compiling.background.on_volume()
        self._driver.start()

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
        names = _topic_names(topics) if topics is not None else None
        with self._alone, self._lock:
            self._check_open()
            member = self._driver.membership
            if member is None:
                raise MisuseError("subscribe() needs a group_id: set one, or use assign()")
            self._give_back()
            self._side.listener = _checked_listener(listener)
            chosen = self._driver.subscription
            if names is not None:
                if not names:
                    self.unsubscribe()
                    return
                chosen.choose_topics(names)
            else:
                assert pattern is not None, "checked above"
                chosen.choose_pattern(_compiled(pattern), self._client.cluster)
            self._driver.apply_subscription()

    def unsubscribe(self) -> None:
        """Read nothing any more: leave the group after on_revoked, or drop what was assigned."""
        with self._alone:
            self._check_open()
            self._give_back()
            with self._lock:
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
        with self._alone, self._lock:
            self._check_open()
            return self._driver.subscription.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing. New partitions of a topic are your business."""
        wanted = [_partition(each) for each in partitions]
        with self._alone, self._lock:
            self._check_open()
            self._give_back()
            self._driver.subscription.choose_partitions()
            self._positions.assign(wanted)
            self._driver.track_topics()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        with self._alone, self._lock:
            self._check_open()
            return self._positions.assignment()

    # --- reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Records:
        """Wait for records up to ``timeout`` seconds, and return those there are, up to max_poll_records.

        Also the place where rebalance and commit callbacks run, where offsets are committed automatically,
        and where errors are raised.
        """
        limit = self._config.max_poll_records if max_records is None else _positive(max_records)
        with self._alone:
            return self._poll(limit, Deadline(_seconds(timeout)), self._deserializers)

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None, headers: bool = False) -> Any:
        """As ``poll``, but all that is ready, as one ``pyarrow.RecordBatch``, with ``headers`` if wanted."""
        key_type = arrow.column_type(self._config.key_deserializer, "key_deserializer")
        value_type = arrow.column_type(self._config.value_deserializer, "value_deserializer")
        limit = 2**62 if max_records is None else _positive(max_records)
        with self._alone:
            records = self._poll(limit, Deadline(_seconds(timeout)), self._deserializers)
            return arrow.to_record_batch(records.columns, key_type, value_type, headers=headers)

    def __iter__(self) -> Iterator[Record]:
        """Records one by one, for ever, until ``wakeup`` or ``close`` ends it.

        A commit in the loop covers the records that the loop has seen, the present one included.
        """
        iteration, callbacks = self._iteration, self._driver.callbacks
        while not self._closed:
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
            return None if self._driver.callbacks else self._iteration.next()

    def fetch_more(self) -> None:
        """Wait a while for the records that an iteration goes on with."""
        with self._alone:
            limit = self._config.max_poll_records
            records = self._poll(limit, Deadline(_ITERATION_SECONDS), self._deserializers)
            self._iteration.start(records)

    def _poll(self, limit: int, deadline: Deadline, deserializers: Deserializers) -> Records:
        self._check_open()
        self._give_back()
        if self._driver.subscription.mode is Mode.NONE:
            raise MisuseError("nothing to poll: call subscribe() or assign() first")
        if self._last_polled is not None:
            self._last_polled = Records()
        self._begin_poll()
        try:
            while True:
                self._side.check_wakeup()
                self._side.run_commit_callbacks()
                self._run_rebalance_callbacks()
                records = self._take(limit, deserializers)
                if records and self._last_polled is not None:
                    self._last_polled = records
                if records:
                    return records
                self._client.wake()
                if self._side.wait(self._news, deadline) is None:
                    return records
        finally:
            self._end_poll()

    def _begin_poll(self) -> None:
        with self._lock:
            self._polled(waiting=True)
            if self._driver.offsets is not None:
                self._driver.offsets.auto_commit_if_due(self._consumed, self._driver.now_ms())

    def _end_poll(self) -> None:
        """Wake the I/O thread, unless all it could learn is that there was another poll.

        To switch threads for each poll would cost more than the poll itself. A member that is stable hears of
        it in time by its heartbeats, which are more frequent than max_poll_interval_ms.
        """
        self._polled(waiting=False)
        with self._lock:
            is_quiet = self._is_quiet()
        if not is_quiet:
            self._client.wake()

    def _is_quiet(self) -> bool:
        """Whether nothing but this poll has happened since the one before."""
        member, offsets = self._driver.membership, self._driver.offsets
        entries, commit_at_ms = self._alone.entries, offsets.auto_commit_at_ms if offsets is not None else 0
        expected, self._after_poll = self._after_poll, (entries + 1, commit_at_ms)
        if member is not None and self._driver.subscription.is_by_group and member.phase is not Phase.STABLE:
            return False
        return expected == (entries, commit_at_ms) and not self._fetcher.wants_poll

    def _run_rebalance_callbacks(self) -> None:
        """In poll(): what the user's callbacks take counts against max_poll_interval_ms."""
        if self._driver.callbacks:
            self._polled(waiting=False)
            try:
                self._side.run_rebalance_callbacks(self)
            finally:
                self._polled(waiting=True)

    def _polled(self, *, waiting: bool) -> None:
        with self._lock:
            if self._driver.membership is not None and self._driver.subscription.is_by_group:
                self._driver.membership.user_polled(self._driver.now_ms(), waiting=waiting)

    def _news(self) -> bool | None:
        """Whether poll() has something to do."""
        driver = self._driver
        failed = driver.membership is not None and driver.membership.error is not None
        failed = failed or driver.has_topic_error
        return bool(driver.callbacks or driver.finished_commits) or failed or self._fetcher.ready() or None

    def _take(self, limit: int, deserializers: Deserializers) -> Records:
        with self._lock:
            self._raise_group_error()
            self._driver.raise_topic_error()
            self._fetcher.raise_errors(self._driver.now_ms())
            chunks = [] if self._driver.callbacks else self._fetcher.begin_take()
        if not chunks:
            return Records()
        handout = draw(chunks, limit, deserializers)
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

    def _give_back(self) -> None:
        """Records that an iteration has fetched and not handed out are read again."""
        if not self._iteration:
            return
        with self._lock:
            for partition, (offset, epoch) in self._iteration.first_offsets().items():
                state = self._positions.get(partition)
                if state is not None and state.position is not None and state.position.offset > offset:
                    self._positions.seek(partition, OffsetAndMetadata(offset, "", epoch))
        self._iteration.stop()

    # --- committing

    def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """Commit and wait: what was handed out, or exactly ``offsets`` (the next ones to read).

        Repeats until it is stored; raises CommitFailedError when this member no longer owns the partitions.
        """
        with self._alone:
            deadline = self._deadline(timeout)
            wanted = self._to_commit(offsets)
            if not wanted:
                self._side.finish_commits(deadline)
                self._side.run_commit_callbacks()
                return
            with self._lock:
                number = self._store().commit(wanted, self._driver.now_ms() + deadline.remaining_ms)
                ticket = self._driver.expect("commit", number)
            try:
                self._outcome(ticket, deadline, "the commit")
            finally:
                self._side.run_commit_callbacks()

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting. ``callback(offsets, error)`` is called in a later poll, commit or close.

        It is not repeated when it fails, so it never overwrites a later commit.
        """
        with self._alone:
            self._check_open()
            wanted = self._to_commit(offsets)
            self._side.run_commit_callbacks()
            with self._lock:
                if wanted:
                    number = self._store().commit_async(wanted, self._driver.now_ms())
                    self._driver.async_commits[number] = callback
                elif callback is not None:
                    self._driver.finished_commits.append((callback, CommitDone(0, {}, None)))
            self._client.wake()

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; None where it has not."""
        wanted = [_partition(each) for each in partitions]
        with self._alone:
            deadline = self._deadline(timeout)
            if not wanted:
                return {}
            with self._lock:
                end_ms = self._driver.now_ms() + deadline.remaining_ms
                ticket = self._driver.expect("committed", self._store().fetch_committed(wanted, end_ms))
            event = self._outcome(ticket, deadline, "reading committed offsets")
            return {partition: event.offsets.get(partition) for partition in wanted}

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

    def _to_commit(self, offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self._check_open()
        self._store()
        if offsets is None:
            with self._lock:
                return self._consumed()
        return {_partition(each): _offset(offset) for each, offset in offsets.items()}

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._iteration.correct(self._positions.consumed())

    def _store(self) -> OffsetStore:
        if self._driver.offsets is None:
            raise MisuseError("this consumer has no group_id, so it has nowhere to commit to: set one")
        return self._driver.offsets

    # --- positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that poll() returns; waits until it is known."""
        where = _partition(partition)
        with self._alone:
            deadline = self._deadline(timeout)
            self._client.wake()
            found = self._side.wait(lambda: self._known_position(where), deadline)
            if found is None:
                raise MillstreamTimeoutError(
                    f"the position of {where} was not found within {deadline.timeout_s:g} seconds: "
                    + diagnose(self._driver)
                )
            return found

    def _known_position(self, partition: TopicPartition) -> int | None:
        offset = self._positions.position(partition)
        if offset is None:
            self._driver.raise_topic_error()
            self._fetcher.raise_errors(self._driver.now_ms())
            return None
        waiting = self._iteration.first_offsets().get(partition)
        return offset if waiting is None else min(offset, waiting[0])

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from another offset, from the next poll on."""
        with self._changing():
            self._positions.seek(_partition(partition), offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from their first record."""
        with self._changing():
            self._positions.seek_to_beginning(map(_partition, partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions, or all, from the next record that is written."""
        with self._changing():
            self._positions.seek_to_end(map(_partition, partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition not older than a time (epoch ms); None where all are older."""
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise MisuseError("a time must not be negative: use beginning_offsets() or end_offsets()")
        return self._search(timestamps, timeout)

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
        found = self._search(dict.fromkeys(map(_partition, partitions), which), timeout)
        return {partition: place.offset for partition, place in found.items() if place is not None}

    def _search(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._alone:
            deadline = self._deadline(timeout)
            if not timestamps:
                return {}
            with self._lock:
                end_ms = self._driver.now_ms() + deadline.remaining_ms
                wanted = {_partition(each): timestamp for each, timestamp in timestamps.items()}
                ticket = self._driver.expect("search", self._fetcher.find_offsets(wanted, end_ms))
            event = self._side.outcome(ticket, Deadline(deadline.remaining_s + 1.0), "looking for offsets")
            return dict(event.offsets)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records lie between the position and the end, as far as it is known without asking."""
        where = _partition(partition)
        with self._alone, self._lock:
            self._check_open()
            behind = self._positions.lag(where)
            position, waiting = self._positions.position(where), self._iteration.first_offsets().get(where)
            if behind is None or position is None or waiting is None:
                return behind
            return behind + position - waiting[0]

    # --- flow

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until they are resumed; membership and heartbeats go on."""
        with self._changing():
            self._positions.pause(map(_partition, partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        with self._changing():
            self._positions.resume(map(_partition, partitions))

    def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        """Fetch nothing of this partition from offset ``end`` on, for whoever will not read further; None: no
        end. Records behind it that came with others are handed out all the same.
        """
        with self._changing():
            self._positions.fetch_until(_partition(partition), end)

    def paused(self) -> frozenset[TopicPartition]:
        with self._alone, self._lock:
            self._check_open()
            return self._positions.paused()

    # --- the cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, ready for ``assign``; none where there is no such topic."""
        with self._alone:
            self._refresh([topic], timeout)
            info = self._client.cluster.topic(topic)
            return [] if info is None else [each.topic_partition for each in info.partitions]

    def topics(self, timeout: float | None = None) -> list[str]:
        """The names of all topics, internal ones included."""
        with self._alone:
            self._refresh(None, timeout)
            return sorted(self._client.cluster.topics)

    def _refresh(self, topics: list[str] | None, timeout: float | None) -> None:
        deadline = self._deadline(timeout)
        outcome: list[Exception | None] = []

        def told(error: Exception | None) -> None:
            with self._lock:
                outcome.append(error)
                self._lock.notify_all()

        self._client.submit(lambda: self._client.metadata.refresh(topics, told))
        if self._side.wait(lambda: outcome or None, deadline) is None:
            raise MillstreamTimeoutError(
                f"no metadata within {deadline.timeout_s:g} seconds: {diagnose(self._driver)}"
            )
        if outcome[0] is not None:
            raise outcome[0]

    # --- life

    def wakeup(self) -> None:
        """Make the present or the next blocking call raise WakeupError; from any thread or signal handler."""
        self._side.wakeup()

    def remember_polls(self) -> None:
        """Keep what the last poll returned, so that ``undo_poll`` can take it back."""
        self._last_polled = Records()

    def undo_poll(self) -> None:
        """Nobody has seen the last poll's records: the next poll returns them again."""
        if self._last_polled is not None:
            self._iteration.start(self._last_polled)
            self._last_polled = Records()

    def forget_wakeup(self) -> None:
        """Take back a ``wakeup`` that came too late to end anything."""
        self._side.forget_wakeup()

    @property
    def is_closed(self) -> bool:
        return self._closed

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
            if self._closed or self._client.io.is_forked:
                return
            if self._side.in_callback:
                raise MisuseError(
                    "close() cannot be called in a rebalance callback, which the group waits for: call "
                    "wakeup() there, and close() when poll() has raised WakeupError"
                )
            deadline = Deadline(_seconds(timeout))
            try:
                try:
                    self._side.commit_automatically(deadline)
                    self._side.finish_commits(deadline)
                finally:
                    self._leave(deadline)
                self._side.run_commit_callbacks()
            finally:
                self._closed = True
                self._iteration.stop()
                with self._lock:
                    last = self._driver.end()
                self._client.submit(lambda: self._driver.send_last(last))
                self._client.close(max(1.0, deadline.remaining_s))

    def _leave(self, deadline: Deadline) -> None:
        member = self._driver.membership
        if member is None:
            return
        with self._lock:
            now_ms = self._driver.now_ms()
            member.close(now_ms, now_ms + deadline.remaining_ms)
            self._driver.handle_events(now_ms)
        self._client.wake()
        # Callbacks may come one after the other: those of a rebalance under way, then on_revoked.
        failure: Exception | None = None
        while not member.is_closed and not deadline.is_over:
            try:
                self._side.run_rebalance_callbacks(self)
            except Exception as error:  # noqa: BLE001 - raised once the member has left
                failure = failure or error
            self._side.wait(
                lambda: member.is_closed or bool(self._driver.callbacks) or None,
                deadline,
                interruptible=False,
            )
        if failure is not None:
            raise failure

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""
        with self._alone, self._lock:
            self._check_open()
            if self._driver.membership is None:
                raise MisuseError("this consumer has no group_id, so it is in no group")
            return self._driver.membership.metadata

    def metrics(self) -> dict[str, Any]:
        """Counters of this consumer, as plain values."""
        with self._alone, self._lock:
            self._check_open()
            return {
                **self._client.metrics.snapshot(),
                "assigned_partitions": len(self._positions.assignment()),
                "buffered_bytes": self._fetcher.buffered_bytes,
            }

    def diagnose(self) -> str:
        """Why am I not getting records? In words."""
        with self._alone, self._lock:
            if self._closed:
                return "The consumer is closed."
            return diagnose(self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside

    def _check_open(self) -> None:
        if self._closed:
            raise ConsumerClosedError
        self._client.io.check()

    def _deadline(self, timeout: float | None) -> Deadline:
        self._check_open()
        default_s = self._config.default_api_timeout_ms / 1000
        return Deadline(default_s if timeout is None else _seconds(timeout))

    def _changing(self) -> _Changing:
        return _Changing(self)


class _Changing:
    """A change of positions: alone, with the lock, and with the iteration's rest given back first."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        consumer = self._consumer
        consumer._alone.__enter__()
        consumer._lock.acquire()
        try:
            consumer._check_open()
            consumer._give_back()
        except BaseException:
            consumer._lock.release()
            consumer._alone.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        consumer = self._consumer
        consumer._lock.release()
        consumer._alone.__exit__(kind, error, trace)
        consumer._client.wake()


def _seconds(timeout: float) -> float:
    if timeout < 0:
        raise MisuseError(f"timeout is {timeout}: seconds must not be negative")
    return float(timeout)


def _positive(max_records: int) -> int:
    if max_records < 1:
        raise MisuseError(f"max_records is {max_records}: it must be at least 1")
    return max_records


def _partition(each: TopicPartition) -> TopicPartition:
    if isinstance(each, TopicPartition):
        return each
    if isinstance(each, tuple) and len(each) == 2:
        return TopicPartition(*each)
    raise MisuseError(f"{each!r} is no partition: write TopicPartition(topic, number)")


def _offset(value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    wanted = OffsetAndMetadata(value) if isinstance(value, int) else value
    if wanted.offset < 0:
        raise MisuseError(f"offset {wanted.offset} cannot be committed: offsets are not negative")
    return wanted


def _topic_names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise MisuseError(f"topics must be a list of names: write subscribe([{topics!r}])")
    names = list(topics)
    if not all(names):
        raise MisuseError("a topic's name must not be empty")
    return names


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from error


def _checked_listener(listener: RebalanceListener | None) -> RebalanceListener | None:
    if listener is not None and not isinstance(listener, RebalanceListener):
        raise MisuseError("the listener must be a RebalanceListener: derive your class from it")
    return listener
