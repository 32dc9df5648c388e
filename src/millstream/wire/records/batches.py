"""Record batches in format version 2 (KIP-98): the unit of produce, of the log, and of fetch.

A batch is a 61-byte header and its records, which may be compressed as a whole. The CRC covers everything
from the attributes to the end, so the broker may write the base offset and the leader epoch, which lie before
it, without touching the rest.

``decode_batch`` is the plain and strict decoder; faster ones are tested against it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from millstream.errors import CorruptBatch, UnsupportedMagic
from millstream.model import Header, TimestampType
from millstream.wire.records.codecs import Codec, compress, decompress
from millstream.wire.records.crc32c import crc32c
from millstream.wire.records.primitives import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    NULL_LENGTH,
    Buffer,
    encode_varint,
    read_varint,
    read_varlong,
)

LOG_OVERHEAD = 12
"""Base offset and length: what precedes the counted part of a batch."""
BATCH_OVERHEAD = 61
"""The header: what a batch without records takes."""
MAGIC = 2
CRC_START = 21
"""Where the part begins that the CRC covers: at the attributes."""
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
# A record takes at least a length, attributes, two deltas, two lengths and a header count.
_MIN_RECORD_BYTES = 7


class RecordData(NamedTuple):
    """One record, with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class BatchHeader(NamedTuple):
    """The header of a batch, field by field as on the wire. (A tuple, because it is built in one C call.)"""

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
        """Bytes of the whole batch."""
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
        """Whether ``base_timestamp`` is the time after which the batch's tombstones may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 without one. Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)


def add_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers count from 0 to 2**31 - 1, and then from 0 again."""
    return (sequence + increment) & INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read and check the header at ``position``; the records need not be there yet."""
    if position < 0 or len(buffer) - position < BATCH_OVERHEAD:
        if position >= 0 and len(buffer) - position > _MAGIC_AT and buffer[position + _MAGIC_AT] != MAGIC:
            raise UnsupportedMagic(f"record format {buffer[position + _MAGIC_AT]} instead of {MAGIC}")
        raise CorruptBatch(f"a batch header takes {BATCH_OVERHEAD} bytes, {len(buffer) - position} are left")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise UnsupportedMagic(f"record format {header.magic} instead of {MAGIC}")
    if header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"negative counts: last offset delta {header.last_offset_delta}, {header.record_count} records"
        )
    return header


def check_crc(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Check that the whole batch is there and unharmed; raises CorruptBatch."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size} bytes, {len(buffer) - position} are there")
    actual = crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise CorruptBatch(
            f"CRC of the batch at offset {header.base_offset} is {actual:#x}, not {header.crc:#x}"
        )


def iter_headers(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch as its position and header, CRC unchecked.

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
            raise CorruptBatch(f"a batch of {header.size} bytes, {end - position} are there")
        yield position, header
        position += header.size


def patch_batch(
    buffer: bytearray | memoryview,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    max_timestamp: int | None = None,
    position: int = 0,
) -> None:
    """Give the batch at ``position`` its place in the log.

    With ``max_timestamp`` the batch becomes one of LogAppendTime: all its records get that timestamp, and the
    CRC is computed anew.
    """
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LOG_OVERHEAD, partition_leader_epoch)
    if max_timestamp is None:
        return
    (attributes,) = _INT16.unpack_from(buffer, position + _ATTRIBUTES_AT)
    _INT16.pack_into(buffer, position + _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    (length,) = _INT32.unpack_from(buffer, position + _LENGTH_AT)
    covered = memoryview(buffer)[position + CRC_START : position + LOG_OVERHEAD + length]
    _UINT32.pack_into(buffer, position + _CRC_AT, crc32c(covered))


# -- encoding


def encode_batch(
    records: Sequence[RecordData],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = -1,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encode at least one record; offsets are absolute, in ascending order, from ``base_offset`` on."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    payload = b"".join([_encode_record(record, base_offset, base_timestamp) for record in records])
    return assemble_batch(
        payload if codec is Codec.NONE else compress(codec, payload, compression_level),
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=codec
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0),
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max([record.timestamp for record in records]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


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


def _encode_record(record: RecordData, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    body = b"".join(
        (
            b"\0",
            encode_varint(timestamp - base_timestamp),
            encode_varint(offset - base_offset),
            NULL_LENGTH if key is None else encode_varint(len(key)),
            key or b"",
            NULL_LENGTH if value is None else encode_varint(len(value)),
            value or b"",
            _encode_headers(headers) if headers else b"\0",
        )
    )
    return encode_varint(len(body)) + body


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (NULL_LENGTH,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


# -- decoding


def decode_batch(buffer: Buffer, *, max_decompressed_bytes: int, verify_crc: bool = True) -> list[RecordData]:
    """Decode exactly one batch, strictly: every length is checked, and nothing may be left over.

    Raises CorruptBatch, also for a wrong CRC and for records that take more than ``max_decompressed_bytes``.
    Who has checked the CRC already, or does not want it checked, says so with ``verify_crc``.
    """
    header = read_header(buffer)
    if verify_crc:
        check_crc(buffer, header)
    if header.size != len(buffer):
        raise CorruptBatch(f"{len(buffer) - header.size} bytes follow a batch of {header.size}")
    payload = decompress_records(buffer, header, max_decompressed_bytes=max_decompressed_bytes)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    records: list[RecordData] = []
    position, last_delta = 0, -1
    for _ in range(header.record_count):
        record, delta, position = _decode_record(payload, position, header, append_time)
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptBatch(
                f"offset delta {delta} after {last_delta}, in a batch to {header.last_offset_delta}"
            )
        last_delta = delta
        records.append(record)
    if position != len(payload):
        raise CorruptBatch(
            f"{len(payload) - position} bytes follow the last of {header.record_count} records"
        )
    return records


def decompress_records(
    buffer: Buffer, header: BatchHeader, *, max_decompressed_bytes: int, position: int = 0
) -> bytes:
    """The records of the batch at ``position`` as plain bytes, long enough for the count that it claims."""
    payload = memoryview(buffer)[position + BATCH_OVERHEAD : position + header.size]
    plain = decompress(header.codec, payload, max_decompressed_bytes)
    if header.record_count * _MIN_RECORD_BYTES > len(plain):
        raise CorruptBatch(f"{len(plain)} bytes cannot hold {header.record_count} records")
    return plain


def _decode_record(
    payload: bytes, start: int, header: BatchHeader, append_time: int | None
) -> tuple[RecordData, int, int]:
    length, position = read_varint(payload, start)
    end = position + length
    if length < 0 or end > len(payload):
        raise CorruptBatch(f"a record of {length} bytes at byte {start}, {len(payload) - position} are left")
    timestamp_delta, position = read_varlong(payload, position + 1)  # + 1: attributes, all unused
    offset_delta, position = read_varint(payload, position)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    headers, position = _read_headers(payload, position, end)
    if position != end:
        raise CorruptBatch(f"the record at byte {start} ends at byte {position}, not at {end}")
    timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise CorruptBatch(f"timestamp {timestamp} at byte {start} does not fit in 64 bits")
    return RecordData(header.base_offset + offset_delta, timestamp, key, value, headers), offset_delta, end


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise CorruptBatch(f"a field of {length} bytes at byte {position}, {end - position} are left")
    return payload[position : position + length], position + length


def _read_headers(payload: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(payload, position)
    if count < 0 or count * 2 > end - position:  # a header takes at least two lengths
        raise CorruptBatch(f"{count} headers at byte {position}, {end - position} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, end)
        if name is None:
            raise CorruptBatch(f"a header without a name before byte {position}")
        value, position = _read_bytes(payload, position, end)
        # Names are text by convention only: one that is not must not make the partition unreadable.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position


# -- control records: the markers that end a transaction

_CONTROL_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """What a control record says; the kinds that other brokers may add are skipped by their number."""

    ABORT = 0
    COMMIT = 1


def read_control_type(key: bytes | None) -> int:
    """The type in a control record's key, known or not. Later versions may append fields."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptBatch(f"a control record's key takes {_CONTROL_KEY.size} bytes")
    version, control_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record version {version}")
    return int(control_type)
