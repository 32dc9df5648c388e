"""Which batches to send to which broker, and what follows from each outcome: done, retry, split or fail.

Pure: no clock, no threads, no sockets. The driver calls it under the producer's lock, encodes and sends the
batches of ``plan``, and reports every outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.client.backoff import Backoff
from millstream.client.cluster import Cluster
from millstream.errors import (
    BrokerError,
    ErrorCode,
    MillstreamError,
    MillstreamTimeoutError,
)
from millstream.producer.core.accumulator import AWAKE_MS, MANY_BATCHES, NEVER_MS, Accumulator
from millstream.producer.core.batch import Batch, PartitionQueue
from millstream.producer.core.sequences import Sequences


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The producer's settings on requests."""

    max_request_size: int
    delivery_timeout_ms: int
    retries: int
    backoff: Backoff
    one_at_a_time: bool
    """Whether a partition has at most one batch in flight, which keeps order without idempotence."""


class FinishedBatch(NamedTuple):
    """A batch with its outcome: its offset, or an error."""

    batch: Batch
    base_offset: int = -1
    append_time: int = -1
    error: MillstreamError | None = None
    record_errors: dict[int, str] | None = None


@dataclass(slots=True)
class SendPlan:
    """What to do now: batches to send to each broker, topics to look up, a producer id to request."""

    requests: list[tuple[int, list[Batch]]] = field(default_factory=list)
    leaderless_topics: set[str] = field(default_factory=set)
    needs_producer_id: bool = False
    finished: list[FinishedBatch] = field(default_factory=list)


class Sender:
    """Chooses batches and handles outcomes. ``split_delivery`` splits what receives a batch's outcome."""

    def __init__(
        self,
        accumulator: Accumulator,
        sequences: Sequences | None,
        limits: SendLimits,
        split_delivery: Callable[[Any, int], tuple[Any, Any]],
        chance: Callable[[], float],
    ) -> None:
        self._accumulator = accumulator
        self._sequences = sequences
        self._limits = limits
        self._split_delivery = split_delivery
        self._chance = chance
        self.retries = 0
        self.splits = 0
        self._cluster: Cluster | None = None
        self._by_leader: dict[int | None, dict[PartitionQueue, None]] = {}
        """Active queues by the broker that leads them, the least recently served first."""

    # -- choosing

    def plan(self, now_ms: int, cluster: Cluster, has_room: Callable[[int], bool]) -> SendPlan:
        """At most one request for each broker with room for one; call again until there is none.

        Sets the time at which the sender must look again: a thread that adds a batch which is due earlier has
        to wake it.
        """
        accumulator = self._accumulator
        accumulator.wakes_at_ms = AWAKE_MS
        accumulator.settle_replaced()
        plan = SendPlan(finished=self._expire(now_ms))
        if self._sequences is not None:
            self._sequences.settle()
            plan.needs_producer_id = self._sequences.needs_id and bool(accumulator.active)
        self._group(cluster)
        plan.leaderless_topics = {queue.topic for queue in self._by_leader.get(None, ()) if queue.waiting}
        wake_at_ms = self._next_expiry_ms()
        busy = set()
        for node_id, queues in self._by_leader.items():
            if node_id is None or not queues:
                continue
            if not has_room(node_id):
                busy.add(node_id)
                continue
            chosen, ready_at_ms = self._choose(queues, now_ms)
            if ready_at_ms <= now_ms and (batches := self._take(chosen, queues)):
                plan.requests.append((node_id, batches))
            else:
                # If it is ready, a thread is adding a record, which takes no time.
                wake_at_ms = min(wake_at_ms, max(ready_at_ms, now_ms + 1))
        accumulator.busy_leaders = frozenset(busy)
        accumulator.wakes_at_ms = wake_at_ms
        return plan

    def _group(self, cluster: Cluster) -> None:
        """Sort queues by their leaders: those that became active, or all of them if the metadata changed."""
        accumulator = self._accumulator
        queues: Iterable[PartitionQueue] = accumulator.activated
        if cluster is not self._cluster:
            # The least recently served first, as before.
            known = [queue for group in self._by_leader.values() for queue in group]
            queues = [queue for queue in dict.fromkeys([*known, *queues]) if queue in accumulator.active]
            self._by_leader = {}
            self._cluster = cluster
        for queue in queues:
            leader = cluster.leader(queue.topic, queue.partition)
            queue.leader = None if leader is None else leader.node_id
            self._by_leader.setdefault(queue.leader, {})[queue] = None
        accumulator.activated = []

    def _choose(self, queues: dict[PartitionQueue, None], now_ms: int) -> tuple[list[PartitionQueue], int]:
        """The queues of one broker whose first batches make a request, and when one of them is ready.

        If one batch is ready, the others are sent with it though they could still grow: another request costs
        more than a smaller batch. A full request is ready, unless its batches are small.
        """
        accumulator = self._accumulator
        chosen: list[PartitionQueue] = []
        gone: list[PartitionQueue] = []
        wake_at_ms = NEVER_MS
        size = 0
        for queue in queues:
            if not queue.waiting:
                gone.append(queue)
                continue
            first = queue.waiting[0]
            if self._is_held(first, now_ms):
                if first.retry_at_ms > now_ms:
                    wake_at_ms = min(wake_at_ms, first.retry_at_ms)
                continue
            size += first.size
            if chosen and size > self._limits.max_request_size:
                if len(chosen) < MANY_BATCHES:
                    wake_at_ms = now_ms
                break
            chosen.append(queue)
            wake_at_ms = min(wake_at_ms, accumulator.ready_at_ms(first))
        for queue in gone:
            del queues[queue]
        return chosen, wake_at_ms

    def _is_held(self, batch: Batch, now_ms: int) -> bool:
        """Whether a batch must wait for something other than more records."""
        if batch.is_retry and batch.retry_at_ms > now_ms:
            return True
        if self._sequences is not None:
            return not self._sequences.may_send(batch)
        return self._limits.one_at_a_time and batch.queue.on_wire > 0

    def _take(self, chosen: list[PartitionQueue], queues: dict[PartitionQueue, None]) -> list[Batch]:
        """The first batch of each chosen queue, which then is the last to be served again.

        A batch that a thread is adding a record to is left for the next request.
        """
        batches: list[Batch] = []
        for queue in chosen:
            batch = self._accumulator.take_first(queue)
            if batch is None:
                continue
            del queues[queue]
            if queue.waiting:
                queues[queue] = None
            batches.append(batch)
            if self._sequences is not None:
                self._sequences.sending(batch)
            batch.on_wire = True
            queue.on_wire += 1
        return batches

    def made(self, node_id: int, batches: int, took_ms: float) -> None:
        """Making a request with ``batches`` took so long. If others wait, they would take as long each."""
        queues = batches + len(self._by_leader.get(node_id, ()))
        self._accumulator.grow_batches(node_id, queues, took_ms * queues / batches)

    # -- time

    def _expire(self, now_ms: int) -> list[FinishedBatch]:
        """Fail batches that have no outcome after delivery.timeout.ms, whether they were sent or not."""
        expired: list[FinishedBatch] = []
        for batch in self._accumulator.incomplete:
            if batch.created_ms + self._limits.delivery_timeout_ms > now_ms:
                break
            expired.append(FinishedBatch(batch, error=self._expiry_error(batch)))
        for finished in expired:
            batch = finished.batch
            self._accumulator.remove_waiting(batch)
            if self._sequences is not None:
                self._sequences.given_up(batch)
            self._accumulator.finish(batch)
        return expired

    def _expiry_error(self, batch: Batch) -> MillstreamTimeoutError:
        count = batch.records
        reason = f" (last error: {batch.last_error})" if batch.last_error is not None else ""
        return MillstreamTimeoutError(
            f"{count} record{'s' if count != 1 else ''} for {batch.queue} could not be delivered within "
            f"delivery_timeout_ms ({self._limits.delivery_timeout_ms}){reason}: "
            "check that the brokers can be reached, or allow more time"
        )

    def _next_expiry_ms(self) -> int:
        oldest = next(iter(self._accumulator.incomplete), None)
        return NEVER_MS if oldest is None else oldest.created_ms + self._limits.delivery_timeout_ms

    # -- outcomes

    def accepted(self, batch: Batch, base_offset: int, append_time: int) -> list[FinishedBatch]:
        """The broker has written the batch."""
        self._arrived(batch)
        if self._sequences is not None:
            self._sequences.accepted(batch)
        if batch.done:
            return []
        self._accumulator.finish(batch)
        return [FinishedBatch(batch, base_offset, append_time)]

    def refused(
        self,
        batch: Batch,
        error: MillstreamError,
        now_ms: int,
        record_errors: dict[int, str] | None = None,
    ) -> list[FinishedBatch]:
        """The broker has not written the batch, or it is not known whether it has."""
        self._arrived(batch)
        if batch.done:
            return []
        batch.last_error = error
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(batch)
            return []
        if isinstance(error, BrokerError) and self._may_retry(batch, error, now_ms):
            self._retry(batch, now_ms)
            return []
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # The broker has the batch, but no longer knows its offset.
            if self._sequences is not None:
                self._sequences.accepted(batch)
            self._accumulator.finish(batch)
            return [FinishedBatch(batch)]
        return [self._fail(batch, error, record_errors)]

    def abort_all(self, error: MillstreamError) -> list[FinishedBatch]:
        """Fail everything that has no outcome yet."""
        finished = []
        self._accumulator.settle_replaced()
        for batch in list(self._accumulator.incomplete):
            self._accumulator.remove_waiting(batch)
            if self._sequences is not None:
                self._sequences.given_up(batch)
            self._accumulator.finish(batch)
            finished.append(FinishedBatch(batch, error=error))
        return finished

    def _arrived(self, batch: Batch) -> None:
        if batch.on_wire:
            batch.on_wire = False
            batch.queue.on_wire -= 1
            if batch.done:
                batch.release()

    def _may_retry(self, batch: Batch, error: BrokerError, now_ms: int) -> bool:
        if batch.attempts >= self._limits.retries:
            return False
        if now_ms >= batch.created_ms + self._limits.delivery_timeout_ms:
            return False
        if self._sequences is not None:
            return self._sequences.may_retry(batch, error)
        return error.retriable

    def _retry(self, batch: Batch, now_ms: int) -> None:
        batch.attempts += 1
        batch.retry_at_ms = now_ms + self._limits.backoff.delay_ms(batch.attempts, self._chance())
        self.retries += 1
        self._accumulator.put_back(batch)

    def _split(self, batch: Batch) -> None:
        """Send the batch as two halves, as it exceeds the topic's max.message.bytes."""
        self.splits += 1
        parts = batch.split(self._split_delivery(batch.delivery, batch.count // 2))
        if self._sequences is not None:
            self._sequences.replaced(batch, parts)
        self._accumulator.replace_sent(batch, parts)

    def _fail(
        self, batch: Batch, error: MillstreamError, record_errors: dict[int, str] | None
    ) -> FinishedBatch:
        if self._sequences is not None and batch.has_sequence:
            # After the last attempt, an earlier one may have been written, so its numbers are not free.
            if batch.attempts < self._limits.retries and not _is_fate_unknown(error):
                self._sequences.refused(batch)
            else:
                self._sequences.given_up(batch)
        self._accumulator.finish(batch)
        return FinishedBatch(batch, error=error, record_errors=record_errors)


def _is_fate_unknown(error: MillstreamError) -> bool:
    """Whether the broker may have written what it did not acknowledge."""
    return not isinstance(error, BrokerError) or error.retriable
