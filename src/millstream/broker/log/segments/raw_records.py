"""Records inside a batch as byte ranges with their keys, for compaction and validation.

Compaction keeps or drops whole byte ranges, so that what a producer wrote stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.errors import CorruptBatch
from millstream.model import TimestampType
from millstream.wire.records.batch_header import BatchHeader
from millstream.wire.records.batches import decompress_records
from millstream.wire.records.primitives import Buffer, encode_varint, read_varint, read_varlong

MAX_DECOMPRESSED_BYTES = 64 << 20
"""The most decompressed bytes of a batch that the broker has to decode."""


class RawRecord(NamedTuple):
    """One record: its range in the decompressed bytes, its key, and whether it is a tombstone."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    body: int
    """The position after the timestamp."""


def plain_records(batch: Buffer, header: BatchHeader) -> bytes:
    """Return the decompressed records of one batch. Raises CorruptBatch."""
    return decompress_records(batch, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)


def iter_raw_records(plain: bytes, count: int) -> Iterator[RawRecord]:
    """Yield ``count`` records. Raises CorruptBatch if lengths contradict each other."""
    position = 0
    for _ in range(count):
        start = position
        length, position = read_varint(plain, position)
        end = position + length
        if length < 0 or end > len(plain):
            raise CorruptBatch(
                f"a record of {length} bytes at byte {start}, {len(plain) - position} are left"
            )
        timestamp_delta, body = read_varlong(plain, position + 1)
        offset_delta, position = read_varint(plain, body)
        key_length, position = read_varint(plain, position)
        key = None
        if key_length >= 0:
            key = plain[position : position + key_length]
            position += key_length
        value_length, position = read_varint(plain, position)
        if max(position, position + value_length) > end:
            raise CorruptBatch(f"the record at byte {start} runs past its end at byte {end}")
        yield RawRecord(start, end, timestamp_delta, offset_delta, key, value_length < 0, body)
        position = end
    if position != len(plain):
        raise CorruptBatch(f"{len(plain) - position} bytes follow the last of {count} records")


def first_since(
    batch: Buffer, header: BatchHeader, timestamp: int, start_offset: int
) -> tuple[int, int] | None:
    """Return the first record from ``start_offset`` on that is not older, as its offset and timestamp."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return max(header.base_offset, start_offset), header.max_timestamp
    for record in iter_raw_records(plain_records(batch, header), header.record_count):
        offset = header.base_offset + record.offset_delta
        found = header.base_timestamp + record.timestamp_delta
        if found >= timestamp and offset >= start_offset:
            return offset, found
    return None


def with_timestamp_delta(plain: bytes, record: RawRecord, timestamp_delta: int) -> bytes:
    """Return the bytes of a record whose batch gets another base timestamp."""
    body = b"\0" + encode_varint(timestamp_delta) + plain[record.body : record.end]
    return encode_varint(len(body)) + body
