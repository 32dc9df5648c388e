"""A batch that is filled by the column: its records are encoded as they are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.producer.core.batch import Batch
from millstream.producer.core.columns import Columns
from millstream.producer.core.times import Times
from millstream.wire.records.batches import BATCH_OVERHEAD, decode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.encode import Kernels

if TYPE_CHECKING:
    from millstream.producer.core.accumulator import PartitionQueue
    from millstream.wire.records.encode import Bytes, Longs


class Block(Batch):
    """Records on their way to one partition, in an array with room for the header in front.

    It is filled under the producer's lock. To ``send`` it looks like a batch that is full.
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

    def fill(self, kernels: Kernels, columns: Columns, rows: Longs, first: int) -> int:
        """Add records from the place ``first`` in ``rows`` on, as many as fit; returns the place after."""
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
        """There is nothing to do: the records are counted as they come."""

    def _made(self, codec: Codec, level: int | None) -> bytes | memoryview:
        return self._finished(self.buffer[: self.filled], codec, level)

    def _part(self, start: int, end: int, delivery: Any) -> Batch:
        """Half of the records, decoded: only where a topic takes less than the producer sends."""
        plain = self._finished(self.buffer[: self.filled], Codec.NONE, None)
        records = decode_batch(plain, max_decompressed_bytes=len(plain))[start:end]
        part = Batch(self.queue, self.created_ms, self.capacity, delivery, Times())
        part.reserved = self.reserved // 2 if start == 0 else self.reserved - self.reserved // 2
        for record in records:
            size = self.size * (end - start) // self.count // len(records)
            part.add(record.key, record.value, record.headers, record.timestamp, size)
        part.seal()
        return part

    def release(self) -> None:
        super().release()
        self.buffer = self.buffer[:0].copy()
