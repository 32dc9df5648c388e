"""Fetcher: from assigned partitions to records, as a pure core.

The driver calls ``poll`` after anything has happened, sends what it returns, brings the answers to
``receive`` (or ``failed``), deals with ``take_events``, and sleeps until ``next_wake_ms`` at most. Records
come from ``begin_take``, ``drain`` and ``finish_take``. Seeks, pauses and assignments go to ``positions``.

The parts: ``positions`` (the state of each partition), ``position_requests`` (resets and validations),
``searches`` (offsets_for_times and the like), ``requests`` and ``responses`` (fetches), ``buffers`` (fetched
data) and ``drain`` (from data to records).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from millstream.client.cluster import Cluster
from millstream.config import ConsumerConfig
from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.buffers import Chunk
from millstream.consumer.fetching.context import FetchContext
from millstream.consumer.fetching.drain import Drained, DrainedChunk
from millstream.consumer.fetching.events import CommittedNeeded, FetchEvent
from millstream.consumer.fetching.partition_state import FetchPhase, FetchPosition, PartitionState
from millstream.consumer.fetching.position_requests import Resets, Validations
from millstream.consumer.fetching.reasons import Reason, explain
from millstream.consumer.fetching.requests import FetchRequests
from millstream.consumer.fetching.searches import OffsetSearches
from millstream.consumer.sends import Send, no_jitter
from millstream.errors import (
    CorruptBatch,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownServerError,
)
from millstream.model import OffsetAndMetadata, TopicPartition

_ROUNDS = 3
"""How often a poll looks at partitions that it has changed itself, as where there is no committed offset."""


class Fetcher:
    """Reads the assigned partitions. All times are monotonic milliseconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        epoch_at_zero_ms: int = 0,
        chance: Callable[[], float] = no_jitter,
    ) -> None:
        """``epoch_at_zero_ms``: the wall clock when ``now_ms`` is 0. ``chance``: numbers from 0 to 1."""
        self._context = FetchContext(config, chance)
        self.positions = self._context.positions
        self._resets = Resets(self._context, epoch_at_zero_ms)
        self._validations = Validations(self._context)
        self._searches = OffsetSearches(self._context)
        self._buffer = self._context.buffer
        self._fetches = FetchRequests(self._context)
        self._parts = (self._resets, self._validations, self._searches, self._fetches)
        self._committed_asked: dict[int, dict[TopicPartition, int]] = {}
        self._committed_held: list[PartitionState] | None = None
        """Partitions whose committed offsets are not asked for yet; None: none is held back."""
        self.wants_poll = True
        """Whether ``finish_take`` has left something to do for ``poll``, such as fetching more."""

    # -- the driver's side

    def update_cluster(self, cluster: Cluster) -> None:
        """Take over a new view of the cluster. Positions are validated where the leader has changed.

        In a topic that was created again they mean nothing: there auto.offset.reset decides.
        """
        for state in self.positions.update_cluster(cluster):
            if state.phase is not FetchPhase.AWAITING_COMMITTED:
                self._resets.recreated(state)

    def poll(self, now_ms: int) -> list[Send]:
        """Everything that may be sent now. Call it after every other call, and at ``next_wake_ms``.

        After ``finish_take`` it may wait, unless ``wants_poll``.
        """
        self.wants_poll = False
        self._buffer.drop_stale()
        sends = self._searches.poll(now_ms)
        for _ in range(_ROUNDS):
            changed = self.positions.attention.take(now_ms)
            sends += self._find_positions(changed, now_ms)
            sends += self._fetches.poll(changed, now_ms)
            if not self.positions.attention:
                break
        return sends

    def _find_positions(self, changed: list[PartitionState], now_ms: int) -> list[Send]:
        """The requests for partitions that have no valid position yet."""
        by_phase: defaultdict[FetchPhase, list[PartitionState]] = defaultdict(list)
        for state in changed:
            if state.phase is not FetchPhase.FETCHING and state.due(now_ms) and self.positions.has(state):
                by_phase[state.phase].append(state)
        if not by_phase:
            return []
        self._ask_committed(by_phase[FetchPhase.AWAITING_COMMITTED], now_ms)
        return [
            *self._resets.poll(by_phase[FetchPhase.AWAITING_RESET], now_ms),
            *self._validations.poll(by_phase[FetchPhase.VALIDATING], now_ms),
        ]

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When to ``poll`` again if nothing happens before. Ask right after ``poll``, with the same time."""
        times = (
            self.positions.attention.next_wake_ms(),
            self._searches.next_wake_ms(now_ms),
            self._fetches.next_wake_ms(now_ms),
        )
        return min((time for time in times if time is not None), default=None)

    def receive(self, token: int, response: Any, now_ms: int) -> None:
        """The response to a Send. Responses to what was abandoned are ignored."""
        for part in self._parts:
            if part.owns(token):
                part.receive(token, response, now_ms)
                return

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        """A Send (or a CommittedNeeded) got no answer; whether the broker saw it is not known."""
        for part in self._parts:
            if part.owns(token):
                part.failed(token, error, now_ms)
                return
        for state in self._committed_waiting(token).values():
            self._context.retry_or_report(state, error, now_ms)

    def take_events(self) -> list[FetchEvent]:
        """The events since the last call."""
        return self._context.take_events()

    def close(self) -> list[Send]:
        """The last requests: they end the fetch sessions; no one waits for the responses."""
        return self._fetches.close()

    # -- committed offsets

    def hold_committed(self) -> None:
        """Ask for no committed offsets until ``release_committed``: the user may seek before."""
        self._committed_held = self._committed_held or []

    def release_committed(self) -> bool:
        """The user wants records or positions: ask for what is still unknown. Whether anything was held."""
        held, self._committed_held = self._committed_held, None
        for state in held or ():
            state.touch()
        return bool(held)

    def _ask_committed(self, states: list[PartitionState], now_ms: int) -> None:
        if not states:
            return
        if self._context.config.group_id is None:
            for state in states:
                self._start_at(state, None)
            return
        if self._committed_held is not None:
            self._committed_held += states
            return
        token = self._context.next_token()
        self._committed_asked[token] = {state.partition: state.asked(now_ms) for state in states}
        self._context.tell(CommittedNeeded(token, tuple(state.partition for state in states)))

    def set_committed(
        self, token: int, offsets: Mapping[TopicPartition, OffsetAndMetadata | None], now_ms: int
    ) -> None:
        """Answer a CommittedNeeded. None: nothing was committed, so auto.offset.reset decides."""
        for partition, state in self._committed_waiting(token).items():
            if partition in offsets:
                self._start_at(state, offsets[partition])
            else:
                missing = UnknownServerError(f"the committed offset of {partition} was not answered")
                self._context.retry_later(state, missing, now_ms)

    def _committed_waiting(self, token: int) -> dict[TopicPartition, PartitionState]:
        """The partitions that still wait for this answer, now waiting no more."""
        states = {}
        for partition, generation in self._committed_asked.pop(token, {}).items():
            state = self.positions.current(partition, generation)
            if state is not None:
                state.answered()
                states[partition] = state
        return states

    def _start_at(self, state: PartitionState, committed: OffsetAndMetadata | None) -> None:
        if committed is None or committed.offset < 0:
            self._context.reset_or_report(state, NoOffsetForPartitionError([state.partition]))
            return
        state.stored = FetchPosition(committed.offset, committed.leader_epoch)
        state.jump(state.stored, validate=True)

    # -- searches

    def find_offsets(self, timestamps: Mapping[TopicPartition, int], deadline_ms: int) -> int:
        """Search by time (or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), in any partitions.

        Returns the number that the event OffsetsFound or OffsetsNotFound will carry.
        """
        return self._searches.start(timestamps, deadline_ms)

    # -- records

    @property
    def buffered_bytes(self) -> int:
        """How much memory fetched data holds."""
        return self._buffer.held_bytes

    def ready(self) -> bool:
        """Whether there is something to drain or to raise."""
        return bool(self.positions.attention.failed) or any(True for _ in self._buffer.ready())

    def begin_take(self) -> list[Chunk]:
        """The data that may be drained, in order. ``drain`` it on any thread, then call ``finish_take``."""
        return list(self._buffer.ready())

    def finish_take(self, drained: Drained, now_ms: int) -> Records:
        """Return what was drained, and move the positions past it.

        Leaves out partitions that were sought, reset or revoked meanwhile. Raises an error that stops a
        partition once all records before it have been returned. The position stays, so the next call raises
        again, unless the user seeks past it or the cause is gone.
        """
        columns: list[Columns] = []
        accepted = False
        for run in drained.runs:
            accepted = self._accept(run, now_ms)
            if accepted:
                columns += run.columns
        if drained.error is not None and accepted and not columns:
            self._defer(drained, now_ms)
            raise drained.error
        return Records(columns)

    def _accept(self, run: DrainedChunk, now_ms: int) -> bool:
        chunk = run.chunk
        state = self.positions.current(chunk.partition, chunk.generation)
        if state is None or state.position is None or state.position.offset != run.offset:
            self._buffer.drop(chunk)
            self.wants_poll = True
            return False
        chunk.cursor = run.cursor
        state.advance(*run.cursor.position)
        if run.cursor.at_end:
            # While a fetch is in flight there, no other can be sent; its response will be followed by a poll.
            self.wants_poll |= not self._fetches.is_asked(state, now_ms)
            self._buffer.drop(chunk)
            self.positions.rotate(chunk.partition)
            if run.cursor.position.offset == chunk.start_offset:  # only with a broken broker
                useless = UnknownServerError(f"{chunk.partition}: only data before the offset came")
                self._context.retry_later(state, useless, now_ms)
        return True

    def _defer(self, drained: Drained, now_ms: int) -> None:
        """Let other partitions go first next time. Damaged bytes are fetched again."""
        self.wants_poll = True
        partition = drained.runs[-1].chunk.partition
        state = self.positions.get(partition)
        if isinstance(drained.error, CorruptBatch) and state is not None:
            self._buffer.drop_partition(partition)
            state.renew()
            self._context.retry_later(state, drained.error, now_ms)
        else:
            self._buffer.defer(partition)

    def raise_errors(self, now_ms: int) -> None:
        """Raise what stops partitions from being read, if anything does; then they are tried again.

        Errors of one kind are raised as one that names all their partitions.
        """
        failed = list(self.positions.attention.failed)
        if not failed:
            return
        self.wants_poll = True
        error = failed[0].error
        assert error is not None
        same = [state for state in failed if type(state.error) is type(error)]
        merged = _merge(error, [state.error for state in same if state.error is not None])
        for state in same if merged is not error else failed[:1]:
            self._context.retry_later(state, state.take_error(), now_ms)
        raise merged

    # -- diagnosis

    def reasons(self) -> dict[TopicPartition, Reason]:
        """Why each partition gives no records at the moment, or that it does."""
        return {
            state.partition: explain(state, self._context, self._fetches) for state in self.positions.states()
        }


def _merge(error: Exception, errors: list[Exception]) -> Exception:
    """One error for all of these, which are of one type, where that type can name several partitions."""
    if isinstance(error, NoOffsetForPartitionError):
        return NoOffsetForPartitionError(
            partition
            for one in errors
            if isinstance(one, NoOffsetForPartitionError)
            for partition in one.partitions
        )
    truncations = [one for one in errors if isinstance(one, LogTruncationError)]
    if truncations:
        return LogTruncationError(
            {partition: offset for one in truncations for partition, offset in one.offsets.items()},
            {partition: cut for one in truncations for partition, cut in one.divergent_offsets.items()},
        )
    ranges = [one for one in errors if isinstance(one, OffsetOutOfRangeError)]
    if ranges:
        return OffsetOutOfRangeError(
            offsets={partition: offset for one in ranges for partition, offset in one.offsets.items()}
        )
    return error
