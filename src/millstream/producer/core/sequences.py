"""Idempotence: sequence numbers, so that a batch which is sent twice is written once (KIP-98, KIP-360).

The broker gives the producer an id. Each batch for a partition carries that id, an epoch, and the sequence
number of its first record. The broker accepts only the batch that follows the last one, and recognises
duplicates. So batches can be retried freely, as long as they keep their numbers and their order.

What can go wrong, and what is done:

- *A batch is refused because an earlier one is missing, which is being retried*: retry it after that one.
- *A batch is next in line and still refused*: the broker has lost the producer's state. The epoch is raised,
  which restarts the partition's numbers at 0. That renumbers batches that were sent, so it waits until none
  of them is in flight.
- *A batch is given up after it was sent*: the broker may or may not have it. No new batch gets a number until
  those behind it are settled: if they are accepted, it was written; otherwise the epoch is raised.

Pure: no clock, no threads, no sockets.
"""

from __future__ import annotations

from typing import Final

from millstream.errors import BrokerError, ErrorCode
from millstream.producer.core.batch import Batch, PartitionQueue
from millstream.wire.records.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, add_sequence

MAX_EPOCH: Final = 0x7FFF
_NONE_ACKED: Final = -1
_REMEMBERED: Final = 5
"""How many batches of a producer a broker remembers for each partition."""


class Sequences:
    """The producer's id and epoch, and each partition's sequence numbers (kept in its queue)."""

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self._restarting: set[PartitionQueue] = set()
        """Partitions whose numbers restart under a raised epoch."""
        self._unresolved: set[PartitionQueue] = set()

    @property
    def needs_id(self) -> bool:
        return self.producer_id == NO_PRODUCER_ID

    def assigned(self, producer_id: int, epoch: int) -> None:
        """The broker has given an id. Partitions use it from the next restart of their numbers."""
        self.producer_id = producer_id
        self.epoch = epoch

    # -- before sending

    def settle(self) -> None:
        """Raise the epoch if that is needed and possible now. Call before batches are chosen."""
        for queue in [queue for queue in self._unresolved if not queue.sent]:
            self._unresolved.discard(queue)
            queue.unresolved = None
            if queue.next_sequence != add_sequence(queue.last_acked, 1):
                self._restarting.add(queue)
        if not self._restarting or any(queue.on_wire for queue in self._restarting):
            return
        if not self.needs_id and any(queue.identity == self._identity for queue in self._restarting):
            self._raise_epoch()
        if self.needs_id:
            return  # all epochs are used: the numbers restart under a new id
        for queue in self._restarting:
            self._restart(queue)
        self._restarting.clear()

    def may_send(self, batch: Batch) -> bool:
        """Whether a batch may be sent now, as far as sequence numbers are concerned."""
        queue = batch.queue
        if self.needs_id or queue in self._restarting:
            return False
        if batch.has_sequence:
            # Retries are sent one by one, oldest first: those behind would be refused anyway.
            return queue.sent[0] is batch
        if not queue.sent:
            return queue.unresolved is None
        if queue.unresolved is not None or queue.identity != self._identity:
            return False
        # A broker accepts any number from a producer it does not know yet. If the first batch were lost, the
        # second would take its place, and the first could never be written: so it is sent alone.
        if queue.last_acked == _NONE_ACKED:
            return False
        # It recognises only the last few batches: no more may follow the oldest that may need a retry.
        return queue.assigned - queue.sent[0].order < _REMEMBERED

    def sending(self, batch: Batch) -> None:
        """Give sequence numbers to a batch that is sent for the first time."""
        if batch.has_sequence:
            return
        queue = batch.queue
        if queue.identity != self._identity:
            self._restart(queue)
        batch.set_identity(self.producer_id, self.epoch, queue.next_sequence)
        queue.next_sequence = add_sequence(queue.next_sequence, batch.count)
        batch.order = queue.assigned
        queue.assigned += 1
        queue.sent.append(batch)

    # -- outcomes

    def accepted(self, batch: Batch) -> None:
        """The broker has the batch, from this or an earlier attempt."""
        queue = batch.queue
        self._forget(batch)
        if queue.identity != (batch.producer_id, batch.producer_epoch):
            return
        if _is_later(batch.last_sequence, queue.last_acked):
            queue.last_acked = batch.last_sequence

    def may_retry(self, batch: Batch, error: BrokerError) -> bool:
        """Whether a refused batch can be sent again, perhaps after the partition's numbers restart."""
        queue = batch.queue
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._restarting.add(queue)
            return True
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._is_hopeless(batch):
                self._restarting.add(queue)
            return True
        return error.retriable

    def _is_hopeless(self, batch: Batch) -> bool:
        """Whether a batch will stay out of order: it is next in line, or later ones were written first."""
        queue = batch.queue
        if queue.unresolved is not None:
            return batch.base_sequence == queue.unresolved
        return not _is_later(batch.base_sequence, add_sequence(queue.last_acked, 1))

    def refused(self, batch: Batch) -> None:
        """The batch was not written and is not sent again: its numbers are a gap."""
        self._forget(batch)
        self._restarting.add(batch.queue)

    def given_up(self, batch: Batch) -> None:
        """The batch is not sent again, though the broker may have it."""
        if not batch.has_sequence:
            return
        queue = batch.queue
        self._forget(batch)
        after = add_sequence(batch.last_sequence, 1)
        if queue.unresolved is None or _is_later(after, queue.unresolved):
            queue.unresolved = after
        self._unresolved.add(queue)

    def replaced(self, batch: Batch, parts: tuple[Batch, Batch]) -> None:
        """A batch was split: its parts take its place."""
        sent = batch.queue.sent
        if batch in sent:
            position = sent.index(batch)
            sent[position : position + 1] = parts

    # -- inside

    @property
    def _identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def _raise_epoch(self) -> None:
        if self.epoch < MAX_EPOCH:
            self.epoch += 1
        else:
            self.producer_id, self.epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH

    def _restart(self, queue: PartitionQueue) -> None:
        """Number all sent batches without an outcome from 0 on, under the present id and epoch."""
        sequence = 0
        for batch in queue.sent:
            batch.set_identity(self.producer_id, self.epoch, sequence)
            sequence = add_sequence(sequence, batch.count)
        queue.identity = self._identity
        queue.next_sequence = sequence
        queue.last_acked = _NONE_ACKED
        queue.unresolved = None
        self._unresolved.discard(queue)

    @staticmethod
    def _forget(batch: Batch) -> None:
        if batch in batch.queue.sent:
            batch.queue.sent.remove(batch)


def _is_later(sequence: int, other: int) -> bool:
    """Whether ``sequence`` comes after ``other``, also across the wrap from 2**31 - 1 to 0."""
    return 0 < (sequence - other) & 0x7FFFFFFF < 1 << 30
