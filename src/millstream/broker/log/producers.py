"""The sequences of idempotent producers (KIP-98), so that a batch that is sent twice is stored once.

For each producer id: its epoch, and its last five batches. The rules are Kafka's:

- a batch whose epoch and sequences equal one of the five is a duplicate, answered with its first offsets;
- an older epoch is refused; a newer one must begin with sequence 0;
- otherwise the sequence must follow the last one; 0 follows 2**31 - 1;
- an unknown producer may begin with any sequence: retention may have deleted its earlier batches.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from millstream.errors import InvalidProducerEpochError, InvalidRecordError, OutOfOrderSequenceNumberError
from millstream.wire.records.batch_header import BatchHeader, add_sequence

REMEMBERED_BATCHES = 5
"""The most batches that a producer may have in flight."""

_PRODUCER = struct.Struct(">qhqB")
_BATCH = struct.Struct(">iiqqq")


class ProducedBatch(NamedTuple):
    """One batch of a producer: its sequences and its offsets."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """The timestamp in the producer's answer: the time of the append with LogAppendTime, else -1."""


class KnownProducer(NamedTuple):
    """A producer as administrators see it."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_append_ms: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_append_ms: int
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, headers: Sequence[BatchHeader]) -> list[ProducedBatch]:
        """Check the sequences of batches; return the earlier ones if all are duplicates, none if all are new.

        Raises Kafka's error for a sequence or epoch that is out of order.
        """
        duplicates: list[ProducedBatch] = []
        latest: dict[int, tuple[int, int] | None] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0 or header.is_control:
                continue
            epoch, base, last = header.producer_epoch, header.base_sequence, header.last_sequence
            known = latest[producer_id] if producer_id in latest else self.last_of(producer_id)
            if known is not None and not follows(epoch, base, known):
                found = self.duplicate(producer_id, epoch, base, last)
                if found is not None:
                    duplicates.append(found)
                    continue
                refuse(producer_id, epoch, base, known)
            latest[producer_id] = (epoch, last)
        if duplicates and len(duplicates) < len(headers):
            raise InvalidRecordError("some of these batches were appended before, others were not")
        return duplicates

    def duplicate(self, producer_id: int, epoch: int, base: int, last: int) -> ProducedBatch | None:
        """Return the earlier batch with exactly these sequences, if it is one of the last five."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return None
        for batch in producer.batches:
            if batch.base_sequence == base and batch.last_sequence == last:
                return batch
        return None

    def last_of(self, producer_id: int) -> tuple[int, int] | None:
        """Return a producer's epoch and last sequence; None for an unknown producer."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer.epoch, producer.batches[-1].last_sequence)

    def note(self, producer_id: int, epoch: int, batch: ProducedBatch, now_ms: int) -> None:
        """Remember a batch that is in the log."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._producers[producer_id] = _Producer(epoch, now_ms)
        producer.batches.append(batch)
        producer.last_append_ms = now_ms

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been idle for ``expiration_ms``; return how many."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.last_append_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def last_offsets(self) -> dict[int, int]:
        """Return the last offset of each producer; compaction keeps that batch, perhaps without records."""
        return {each: producer.batches[-1].last_offset for each, producer in self._producers.items()}

    def known(self) -> list[KnownProducer]:
        """Return every producer with its last sequence."""
        return [
            KnownProducer(each, producer.epoch, producer.batches[-1].last_sequence, producer.last_append_ms)
            for each, producer in self._producers.items()
        ]

    def to_bytes(self) -> bytes:
        parts = []
        for producer_id, producer in self._producers.items():
            parts.append(
                _PRODUCER.pack(producer_id, producer.epoch, producer.last_append_ms, len(producer.batches))
            )
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> ProducerStates:
        """Read what ``to_bytes`` wrote; the caller has verified the bytes."""
        states, position = cls(), 0
        while position < len(data):
            producer_id, epoch, last_append_ms, count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            producer = states._producers[producer_id] = _Producer(epoch, last_append_ms)
            for _ in range(count):
                producer.batches.append(ProducedBatch._make(_BATCH.unpack_from(data, position)))
                position += _BATCH.size
        return states


def follows(epoch: int, base_sequence: int, last: tuple[int, int]) -> bool:
    """Return whether a batch may follow ``last``, its producer's last epoch and sequence."""
    last_epoch, last_sequence = last
    if epoch == last_epoch:
        return base_sequence == add_sequence(last_sequence, 1)
    return epoch > last_epoch and base_sequence == 0


def refuse(producer_id: int, epoch: int, base_sequence: int, last: tuple[int, int]) -> NoReturn:
    """Raise Kafka's error for a batch that neither follows nor repeats an earlier one."""
    last_epoch, last_sequence = last
    if epoch < last_epoch:
        raise InvalidProducerEpochError(f"producer {producer_id} has epoch {epoch}, {last_epoch} was seen")
    if epoch > last_epoch:
        raise OutOfOrderSequenceNumberError(
            f"producer {producer_id} begins epoch {epoch} with sequence {base_sequence} instead of 0"
        )
    raise OutOfOrderSequenceNumberError(
        f"producer {producer_id} sent sequence {base_sequence} after {last_sequence}"
    )
