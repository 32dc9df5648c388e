"""The header of a record batch (format version 2, KIP-98): reading, checking, patching and writing it.

A batch is a 61-byte header and its records, which may be compressed as a whole. The CRC covers everything
from the attributes to the end. The base offset and the leader epoch lie before that, so the broker can write
them without computing the CRC again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import CorruptBatch, UnsupportedMagic
from millstream.model import TimestampType
from millstream.wire.records.codecs import Codec
from millstream.wire.records.crc32c import array_crc32c, crc32c
from millstream.wire.records.primitives import INT32_MAX, Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOG_OVERHEAD = 12
"""The bytes of base offset and length, which the batch length does not count."""
BATCH_OVERHEAD = 61
"""The bytes of the header: a batch without records."""
MAGIC = 2
CRC_START = 21
"""The first byte that the CRC covers: the attributes."""
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

HEADER = struct.Struct(">qiibIhiqqqhii")
"""The fields of BatchHeader, in order."""
_UNCOVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
assert HEADER.size == BATCH_OVERHEAD and _UNCOVERED.size == CRC_START

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_MAGIC_AT = 16
_CRC_AT = 17
_LENGTH_AT = 8
_ATTRIBUTES_AT = CRC_START
_MAX_TIMESTAMP_AT = 35
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_CODECS = {int(codec): codec for codec in Codec}


class BatchHeader(NamedTuple):
    """The header of a batch, field by field as on the wire. (A tuple, as ``_make`` builds it in C.)"""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        codec = _CODECS.get(self.attributes & CODEC_MASK)
        if codec is None:
            raise CorruptBatch(f"unknown codec {self.attributes & CODEC_MASK}")
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        append_time = self.attributes & LOG_APPEND_TIME_BIT
        return TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time after which tombstones may be removed (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 without one."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)


def add_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number. Sequence numbers wrap from 2**31 - 1 to 0."""
    return (sequence + increment) & INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read and check the header at ``position``; the buffer need not hold the records."""
    header = unpack_header(buffer, position)
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"negative counts: last offset delta {header.last_offset_delta}, {header.record_count} records"
        )
    return header


def first_attributes(batches: Buffer | None) -> int:
    """Return the lower byte of the first batch's attributes, before anything is validated; 0 without one."""
    return batches[_ATTRIBUTES_AT + 1] if batches is not None and len(batches) > BATCH_OVERHEAD else 0


def unpack_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at ``position``, and check no more than that it is the header of a batch."""
    if position < 0 or len(buffer) - position < BATCH_OVERHEAD:
        if position >= 0 and len(buffer) - position > _MAGIC_AT and buffer[position + _MAGIC_AT] != MAGIC:
            raise UnsupportedMagic(f"record format {buffer[position + _MAGIC_AT]} instead of {MAGIC}")
        raise CorruptBatch(f"a batch header takes {BATCH_OVERHEAD} bytes, {len(buffer) - position} are left")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise UnsupportedMagic(f"record format {header.magic} instead of {MAGIC}")
    if header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    return header


def check_crc(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Check that the whole batch is present and its CRC is right; raises CorruptBatch."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size} bytes, {len(buffer) - position} are present")
    actual = crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise CorruptBatch(
            f"CRC of the batch at offset {header.base_offset} is {actual:#x}, not {header.crc:#x}"
        )


def iter_headers(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch, without checking CRCs.

    A batch cut by the end of the buffer raises CorruptBatch. With ``allow_partial`` it ends the iteration
    instead: a broker may cut the last batch of a fetch response.
    """
    position, end = 0, len(buffer)
    while position < end:
        if allow_partial and end - position < BATCH_OVERHEAD:
            return
        header = read_header(buffer, position)
        if position + header.size > end:
            if allow_partial:
                return
            raise CorruptBatch(f"a batch of {header.size} bytes, {end - position} are present")
        yield position, header
        position += header.size


def patch_batch(
    buffer: bytearray | memoryview, *, base_offset: int, partition_leader_epoch: int, position: int = 0
) -> None:
    """Write the offset and leader epoch of the batch at ``position``, as the log assigns them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LOG_OVERHEAD, partition_leader_epoch)


def set_max_timestamp(
    buffer: bytearray | memoryview, max_timestamp: int, *, append_time: bool, position: int = 0
) -> None:
    """Write the largest timestamp of the batch at ``position``, and compute its CRC again if that changes it.

    ``append_time`` makes it a batch of LogAppendTime: all its records have that timestamp.
    """
    (attributes,) = _INT16.unpack_from(buffer, position + _ATTRIBUTES_AT)
    (before,) = _TIMESTAMP.unpack_from(buffer, position + _MAX_TIMESTAMP_AT)
    wanted = attributes | LOG_APPEND_TIME_BIT if append_time else attributes
    if before == max_timestamp and attributes == wanted:
        return
    _INT16.pack_into(buffer, position + _ATTRIBUTES_AT, wanted)
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    (length,) = _INT32.unpack_from(buffer, position + _LENGTH_AT)
    covered = memoryview(buffer)[position + CRC_START : position + LOG_OVERHEAD + length]
    _UINT32.pack_into(buffer, position + _CRC_AT, crc32c(covered))


def assemble_batch(
    payload: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """Put a header with its CRC in front of encoded (and compressed) records."""
    length = BATCH_OVERHEAD - LOG_OVERHEAD + len(payload)
    times = (base_timestamp, max_timestamp)
    producer = (producer_id, producer_epoch, base_sequence)
    covered = _COVERED.pack(attributes, last_offset_delta, *times, *producer, record_count) + payload
    return _UNCOVERED.pack(base_offset, length, partition_leader_epoch, MAGIC, crc32c(covered)) + covered


def write_header(
    batch: NDArray[np.uint8],
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header of a producer's batch into its first bytes, in front of its records."""
    producer = (producer_id, producer_epoch, base_sequence)
    times = (base_timestamp, max_timestamp)
    view = batch.data
    _COVERED.pack_into(view, CRC_START, attributes, record_count - 1, *times, *producer, record_count)
    crc = array_crc32c(batch[CRC_START:])
    _UNCOVERED.pack_into(view, 0, 0, len(batch) - LOG_OVERHEAD, -1, MAGIC, crc)
