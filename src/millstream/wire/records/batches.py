"""Record batches, record by record: the plain encoder and decoder, and control records.

The compiled encoder and decoder are tested against these.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from millstream.errors import CorruptBatch
from millstream.model import Header, TimestampType
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble_batch,
    check_crc,
    read_header,
)
from millstream.wire.records.codecs import Codec, compress, decompress
from millstream.wire.records.primitives import (
    INT64_MAX,
    INT64_MIN,
    NULL_LENGTH,
    Buffer,
    encode_varint,
    read_varint,
    read_varlong,
)

# A record takes at least a length, attributes, two deltas, two lengths and a header count.
_MIN_RECORD_BYTES = 7
_MAX_ATTRIBUTES = 0x7F


class RecordData(NamedTuple):
    """One record, with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


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
    """Encode at least one record; offsets are absolute and ascending, not below ``base_offset``."""
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


def decode_batch(
    buffer: Buffer, *, max_decompressed_bytes: int, verify_crc: bool = True, for_all_clients: bool = False
) -> list[RecordData]:
    """Decode exactly one batch, strictly: every length is checked, and nothing may be left over.

    Raises CorruptBatch, also for a wrong CRC and for records that take more than ``max_decompressed_bytes``.
    ``verify_crc=False`` skips the check of the CRC. ``for_all_clients`` also refuses what other clients
    fail over: headers whose name is not UTF-8, and unused attributes above 127.
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
        record, delta, position = _decode_record(payload, position, header, append_time, for_all_clients)
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
    """Return the uncompressed records of the batch at ``position``; long enough for ``record_count``."""
    payload = memoryview(buffer)[position + BATCH_OVERHEAD : position + header.size]
    plain = decompress(header.codec, payload, max_decompressed_bytes)
    if header.record_count * _MIN_RECORD_BYTES > len(plain):
        raise CorruptBatch(f"{len(plain)} bytes cannot hold {header.record_count} records")
    return plain


def _decode_record(
    payload: bytes, start: int, header: BatchHeader, append_time: int | None, for_all_clients: bool
) -> tuple[RecordData, int, int]:
    length, position = read_varint(payload, start)
    end = position + length
    if length < 0 or end > len(payload):
        raise CorruptBatch(f"a record of {length} bytes at byte {start}, {len(payload) - position} are left")
    if for_all_clients and position < end and payload[position] > _MAX_ATTRIBUTES:
        raise CorruptBatch(f"the record at byte {start} has attributes {payload[position]}")
    timestamp_delta, position = read_varlong(payload, position + 1)  # + 1: attributes, all unused
    offset_delta, position = read_varint(payload, position)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    headers, position = _read_headers(payload, position, end, for_all_clients)
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


def _read_headers(
    payload: bytes, position: int, end: int, for_all_clients: bool
) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(payload, position)
    if count < 0 or count * 2 > end - position:  # a header takes at least two lengths
        raise CorruptBatch(f"{count} headers at byte {position}, {end - position} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, end)
        if name is None:
            raise CorruptBatch(f"a header without a name before byte {position}")
        value, position = _read_bytes(payload, position, end)
        try:
            headers.append((name.decode(errors="strict" if for_all_clients else "replace"), value))
        except UnicodeDecodeError:
            raise CorruptBatch(f"a header's name before byte {position} is not UTF-8") from None
    return tuple(headers), position


# -- control records: the markers that end a transaction

_CONTROL_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """The type of a control record. Types that newer brokers add are skipped by their number."""

    ABORT = 0
    COMMIT = 1


def read_control_type(key: bytes | None) -> int:
    """Return the type in a control record's key, known or not. Later versions may append fields."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptBatch(f"a control record's key takes {_CONTROL_KEY.size} bytes")
    version, control_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record version {version}")
    return int(control_type)
