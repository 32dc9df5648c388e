"""One batch of records for one partition: filled by many sends, encoded once, sent until the broker has it.

The records are kept as columns, so that adding one is a few list appends. They become bytes when the batch is
sent for the first time; the producer's identity and sequence, which may change later, lie in the header in
front of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.model import Header
from millstream.producer.records import encode_records
from millstream.wire.batches import (
    BATCH_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    add_sequence,
    assemble_batch,
)
from millstream.wire.codecs import Codec, compress

if TYPE_CHECKING:
    from millstream.producer.accumulator import PartitionQueue

RECORD_OVERHEAD = 12
"""What a small record takes besides its key, value and headers: lengths, deltas and attributes."""
HEADER_OVERHEAD = 4
"""What a record header takes besides its name and value."""


class Batch:
    """Records on their way to one partition. ``delivery`` is whatever waits for the outcome."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "count",
        "created_ms",
        "delivery",
        "done",
        "encoded",
        "headers",
        "keys",
        "last_error",
        "on_wire",
        "order",
        "payload",
        "producer_epoch",
        "producer_id",
        "queue",
        "reserved",
        "retry_at_ms",
        "size",
        "span",
        "timestamps",
        "values",
    )

    def __init__(self, queue: PartitionQueue, created_ms: int, reserved: int, delivery: Any) -> None:
        self.queue = queue
        self.created_ms = created_ms
        self.reserved = reserved
        self.delivery = delivery
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Sequence[Header]] = {}
        self.size = 0
        self.count = 0
        self.span: tuple[int, int] | None = None
        self.payload: bytes | None = None
        self.encoded: bytes | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.order = -1
        self.attempts = 0
        self.retry_at_ms = 0
        self.last_error: Exception | None = None
        self.on_wire = False
        self.done = False

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
        """No record comes any more."""
        self.count = len(self.values)

    def set_identity(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the batch its place in the producer's sequence; a header with another one is dropped."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if self.encoded is not None:
            self.payload, self.encoded = self.encoded[BATCH_OVERHEAD:], None

    def encode(self, codec: Codec, level: int | None) -> bytes:
        """The batch as it is sent; the same bytes each time, unless its identity has changed."""
        if self.encoded is None:
            self.encoded = self._assemble(codec, level)
            self.payload = None
        return self.encoded

    def _assemble(self, codec: Codec, level: int | None) -> bytes:
        if self.payload is None:
            plain = encode_records(self.keys, self.values, self.timestamps, self.headers)
            self.payload = plain if codec is Codec.NONE else compress(codec, plain, level)
            self.span = (self.timestamps[0], max(self.timestamps))
        assert self.span is not None, "a batch that was encoded has records"
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
        """Two batches with half of the records each, which stand where this one stood in the sequence."""
        assert self.count > 1, "one record cannot be split"
        middle = self.count // 2
        first = self._part(0, middle, halves[0])
        second = self._part(middle, self.count, halves[1])
        if self.has_sequence:
            first.set_identity(self.producer_id, self.producer_epoch, self.base_sequence)
            second.set_identity(
                self.producer_id, self.producer_epoch, add_sequence(self.base_sequence, first.count)
            )
            first.order = second.order = self.order
        return first, second

    def _part(self, start: int, end: int, delivery: Any) -> Batch:
        share = self.reserved // 2 if start == 0 else self.reserved - self.reserved // 2
        part = Batch(self.queue, self.created_ms, share, delivery)
        part.keys = self.keys[start:end]
        part.values = self.values[start:end]
        part.timestamps = self.timestamps[start:end]
        part.headers = {
            index - start: headers for index, headers in self.headers.items() if start <= index < end
        }
        part.size = self.size * (end - start) // self.count
        part.seal()
        return part
