"""A partition's queue, and the batches in it: filled by many sends, encoded once, sent until acknowledged.

A batch keeps its records as columns, so that adding one is a few list appends. They are encoded when it is
first sent. The producer's id and sequence, which may change later, are in the header in front of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.model import Header
from millstream.producer.core.columns import encode_lists, encoder
from millstream.producer.core.records import encode_records
from millstream.producer.core.times import Times
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    add_sequence,
    assemble_batch,
    write_header,
)
from millstream.wire.records.codecs import Codec, compress
from millstream.wire.records.encode import EncoderKernels

if TYPE_CHECKING:
    from millstream.wire.records.encode import Bytes

RECORD_OVERHEAD = 12
"""What a small record takes besides its key, value and headers: lengths, deltas and attributes."""
HEADER_OVERHEAD = 4
"""What a record header takes besides its name and value."""
_FEW: Final = 16
"""Up to this many records are encoded faster in plain Python."""
_FEW_BATCHES: Final = 4
"""Fewer batches are encoded one by one."""


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue:
    """The batches of one partition: those that wait to be sent, and those that were sent and have no outcome.

    ``open`` is the last waiting batch, as long as records may join it. While no thread is adding to it, it is
    in ``open_slot``, a list of one. A thread pops it (one atomic step), adds its record and puts it back: a
    lock at a third of the price, and the only one that ``Producer.send`` takes. The I/O thread pops it as
    well to close the batch, and tries again a millisecond later while a sender has it.

    ``usual_bytes`` is the size of the last closed batch: the next one reserves a little more at once.
    ``leader`` is the broker that the sender last sent to, or would.

    The fields from ``identity`` on belong to ``Sequences``.
    """

    topic: str
    partition: int
    waiting: deque[Batch] = field(default_factory=deque)
    open: Batch | None = None
    open_slot: list[Batch] = field(default_factory=list)
    usual_bytes: int = 0
    leader: int | None = None
    on_wire: int = 0
    sent: list[Batch] = field(default_factory=list)
    identity: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    next_sequence: int = 0
    assigned: int = 0
    last_acked: int = -1
    unresolved: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def open_with(self, batch: Batch) -> None:
        """Let further records join this batch."""
        assert self.open is None, "one batch is open at a time"
        self.open = batch
        self.open_slot.append(batch)

    def close_open(self) -> bool:
        """Let no more records join the open batch; False while a thread is adding one."""
        if self.open is None:
            return True
        try:
            self.open_slot.pop()
        except IndexError:
            return False
        self.open.seal()
        self.usual_bytes = self.open.size
        self.open = None
        return True

    def abandon_open(self) -> None:
        """The open batch has failed, and with it a record that a thread is adding to it."""
        if self.open is not None:
            self.open_slot.clear()
            self.open_slot = []  # a thread that holds the batch puts it back into the old list
            self.open.seal()
            self.open = None


@dataclass(slots=True, eq=False, repr=False)
class Batch:
    """Records on their way to one partition. ``delivery`` receives the outcome.

    ``keys`` is None while no record has a key, and ends with the last key. ``reserved`` are the bytes of
    ``buffer_memory`` that it holds: they grow with its records, up to ``capacity``. ``room`` is what is left
    of them. At ``until`` (seconds since 1970) the clock leaves the millisecond of the last record.
    """

    queue: PartitionQueue
    created_ms: int
    capacity: int
    delivery: Any
    times: Times
    reserved: int = 0
    room: int = 0
    keys: list[bytes | None] | None = None
    values: list[bytes | None] = field(default_factory=list)
    headers: dict[int, Sequence[Header]] = field(default_factory=dict)
    until: float = 0.0
    count: int = 0
    span: tuple[int, int] | None = None
    payload: bytes | memoryview | None = None
    encoded: bytes | memoryview | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    order: int = -1
    attempts: int = 0
    retry_at_ms: int = 0
    last_error: Exception | None = None
    on_wire: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self.reserved = self.room = self.reserved or self.capacity

    @property
    def size(self) -> int:
        """About how many bytes the records take."""
        return self.reserved - self.room

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: float,
        size: int,
    ) -> None:
        """Add a record of about ``size`` bytes.

        ``timestamp`` is an int of milliseconds if the caller gave it, else the clock's float of seconds.
        """
        values = self.values
        self.room -= size
        if headers:
            self.headers[len(values)] = headers
        if type(timestamp) is int:
            self.times.change(len(values), timestamp)
            self.until = 0.0
        elif timestamp >= self.until:
            self.tick(timestamp)
        values.append(value)
        if key is not None:
            self.add_key(key)

    def add_key(self, key: bytes) -> None:
        """The record that was added last has a key."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        missing = len(self.values) - len(keys) - 1
        if missing:
            keys += [None] * missing
        keys.append(key)

    def tick(self, seconds: float) -> None:
        """Start another millisecond: the next record has a later timestamp than the last."""
        # Times.change is inlined: with thousands of partitions, each record has a millisecond of its own.
        stamp = int(seconds * 1000)
        times = self.times
        times.rows.append(len(self.values))
        times.stamps.append(stamp)
        self.until = (stamp + 1) / 1000

    @property
    def records(self) -> int:
        """The number of records, also while more may join."""
        return self.count or len(self.values)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return add_sequence(self.base_sequence, self.count - 1)

    @property
    def is_retry(self) -> bool:
        return self.attempts > 0

    def seal(self) -> None:
        """No more records join."""
        self.count = len(self.values)
        if self.keys is not None:
            self.keys += [None] * (self.count - len(self.keys))

    def set_identity(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the batch its place in the producer's sequence; drops a header with another one."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self.encoded is not None:
            self.payload, self.encoded = self.encoded[BATCH_OVERHEAD:], None

    def encode(self, codec: Codec, level: int | None) -> bytes | memoryview:
        """The batch as it is sent; the same bytes each time, unless its identity has changed."""
        if self.encoded is None:
            self.encoded = (
                self._assembled(codec) if self.payload is not None else self._encode_records(codec, level)
            )
            self.payload = None
        return self.encoded

    def _encode_records(self, codec: Codec, level: int | None) -> bytes | memoryview:
        """Encode the records, with the compiled encoder if it is loaded."""
        kernels = encoder.ready(self.size)
        if kernels is not None and self.count > _FEW:
            return self._with_header(self._encoded_array(kernels), codec, level)
        timestamps = self.times.expand(self.count)
        plain = encode_records(self.keys, self.values, timestamps, self.headers)
        self.payload = plain if codec is Codec.NONE else compress(codec, plain, level)
        self.span = self.times.span
        return self._assembled(codec)

    def _encoded_array(self, kernels: EncoderKernels) -> Bytes:
        """The records as an array with room for the header in front."""
        self.span = self.times.span
        out, (end,) = encode_lists(kernels, [self])
        return out[:end]

    def _with_header(self, batch: Bytes, codec: Codec, level: int | None) -> bytes | memoryview:
        """Compress the records of an array, and write its header."""
        if codec is not Codec.NONE:
            self.payload = compress(codec, batch[BATCH_OVERHEAD:].data, level)
            return self._assembled(codec)
        assert self.span is not None, "a batch that was encoded has records"
        write_header(
            batch,
            attributes=0,
            base_timestamp=self.span[0],
            max_timestamp=self.span[1],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.count,
        )
        return batch.data

    def _assembled(self, codec: Codec) -> bytes:
        """Put a header in front of the payload."""
        assert self.span is not None and self.payload is not None, "a batch that was encoded has records"
        return assemble_batch(
            self.payload,
            base_offset=0,
            partition_leader_epoch=-1,
            attributes=int(codec),
            last_offset_delta=self.count - 1,
            base_timestamp=self.span[0],
            max_timestamp=self.span[1],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.count,
        )

    def split(self, halves: Sequence[Any]) -> tuple[Batch, Batch]:
        """Two batches with half of the records each, in this one's place in the sequence."""
        assert self.count > 1, "one record cannot be split"
        middle = self.count // 2
        first = self._part(0, middle, halves[0])
        second = self._part(middle, self.count, halves[1])
        first.take_reserved(self.reserved // 2)
        second.take_reserved(self.reserved - first.reserved)
        if self.has_sequence:
            first.set_identity(self.producer_id, self.producer_epoch, self.base_sequence)
            second.set_identity(
                self.producer_id, self.producer_epoch, add_sequence(self.base_sequence, first.count)
            )
            first.order = second.order = self.order
        return first, second

    def take_reserved(self, reserved: int) -> None:
        """Hold ``reserved`` bytes of memory; the batch keeps its size."""
        self.room += reserved - self.reserved
        self.reserved = reserved

    def give_back(self) -> int:
        """No more records join: hold only the memory that is used. Returns what is free now."""
        unused = self.room
        self.take_reserved(self.size)
        return unused

    def release(self) -> None:
        """Free the records once the batch has its outcome; its futures need only the delivery."""
        self.keys, self.values, self.headers = None, [], {}
        self.payload = self.encoded = None

    def _part(self, start: int, end: int, delivery: Any) -> Batch:
        part = Batch(self.queue, self.created_ms, self.capacity, delivery, self.times.part(start, end))
        part.keys = None if self.keys is None else self.keys[start:end]
        part.values = self.values[start:end]
        part.headers = {
            index - start: headers for index, headers in self.headers.items() if start <= index < end
        }
        part.room = self.capacity - self.size * (end - start) // self.count
        part.seal()
        return part


def encode_together(batches: Sequence[Batch], codec: Codec) -> None:
    """Encode many batches at once, where the compiled encoder is loaded: a small one alone costs as much.

    Batches that were encoded already, have columns, or may fail alone (headers, codecs) are left as they are.
    """
    kernels = encoder.kernels
    if kernels is None or codec is not Codec.NONE or len(batches) < _FEW_BATCHES:
        return
    fresh = [one for one in batches if type(one) is Batch and one.encoded is None and one.payload is None]
    fresh = [one for one in fresh if not one.headers]
    if not fresh:
        return
    out, ends = encode_lists(kernels, fresh)
    start = 0
    for batch, end in zip(fresh, ends, strict=True):
        batch.span = batch.times.span
        batch.encoded = batch._with_header(out[start:end], Codec.NONE, None)
        start = end
