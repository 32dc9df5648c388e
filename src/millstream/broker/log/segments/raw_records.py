"""Records as they lie in a batch, for the broker: where they are and what their keys are, no more.

Compaction keeps or drops records as whole byte ranges, so that whatever a producer wrote stays as it was.
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
"""What the records of one batch may take when the broker has to look into it."""


class RawRecord(NamedTuple):
    """One record: its place among the decompressed bytes, and what decides over it."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    body: int
    """Where the part begins that follows the timestamp."""


def plain_records(batch: Buffer, header: BatchHeader) -> bytes:
    """The decompressed records of one batch; raises CorruptBatch."""
    return decompress_records(batch, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)


def iter_raw_records(plain: bytes, count: int) -> Iterator[RawRecord]:
    """Each of ``count`` records; raises CorruptBatch where lengths contradict each other."""
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
    """The first record from ``start_offset`` on that is not older than ``timestamp``: its offset and time."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return max(header.base_offset, start_offset), header.max_timestamp
    for record in iter_raw_records(plain_records(batch, header), header.record_count):
        offset = header.base_offset + record.offset_delta
        found = header.base_timestamp + record.timestamp_delta
        if found >= timestamp and offset >= start_offset:
            return offset, found
    return None


def with_timestamp_delta(plain: bytes, record: RawRecord, timestamp_delta: int) -> bytes:
    """The bytes of a record whose batch gets another base timestamp."""
    body = b"\0" + encode_varint(timestamp_delta) + plain[record.body : record.end]
    return encode_varint(len(body)) + body
