"""A batch filled from columns (``send_arrow``): its records are encoded as they are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.producer.core.batch import Batch, PartitionQueue
from millstream.producer.core.columns import RecordColumns
from millstream.producer.core.times import Times
from millstream.wire.records.batch_header import BATCH_OVERHEAD
from millstream.wire.records.batches import decode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.encode import EncoderKernels

if TYPE_CHECKING:
    from millstream.wire.records.encode import Bytes, Longs


class ColumnBatch(Batch):
    """Records on their way to one partition, encoded into an array with room for the header in front.

    It is filled under the producer's lock. To ``send`` it looks like a full batch.
    """

    __slots__ = ("buffer", "filled")

    def __init__(self, queue: PartitionQueue, created_ms: int, capacity: int, delivery: Any) -> None:
        import numpy as np

        super().__init__(queue, created_ms, capacity, delivery, Times())
        self.room = -1
        self.buffer: Bytes = np.empty(capacity, np.uint8)
        self.filled = BATCH_OVERHEAD

    @property
    def size(self) -> int:
        return self.filled - BATCH_OVERHEAD

    def fill(self, kernels: EncoderKernels, columns: RecordColumns, rows: Longs, first: int) -> int:
        """Add the records ``rows[first:]``, as many as fit; returns the index of the next one in ``rows``."""
        if self.span is None:
            base = int(columns.timestamps[rows[first]])
            self.span = (base, base)
        place, self.filled, latest = columns.write(
            kernels, rows, first, self.buffer, self.filled, self.count, self.span
        )
        self.count += place - first
        self.span = (self.span[0], latest)
        return place

    def seal(self) -> None:
        """Nothing to do: records are counted as they are added."""

    def give_back(self) -> int:
        """Nothing: the array has its size from the start."""
        return 0

    def _encode_records(self, codec: Codec, level: int | None) -> bytes | memoryview:
        return self._with_header(self.buffer[: self.filled], codec, level)

    def _part(self, start: int, end: int, delivery: Any) -> Batch:
        """Half of the records, decoded: only if the topic's max.message.bytes is below ``batch_size``."""
        plain = self._with_header(self.buffer[: self.filled], Codec.NONE, None)
        records = decode_batch(plain, max_decompressed_bytes=len(plain))[start:end]
        part = Batch(self.queue, self.created_ms, self.capacity, delivery, Times())
        for record in records:
            size = self.size * (end - start) // self.count // len(records)
            part.add(record.key, record.value, record.headers, record.timestamp, size)
        part.seal()
        return part

    def release(self) -> None:
        super().release()
        self.buffer = self.buffer[:0].copy()
