"""Validates a producer's batches before they are appended.

Records are decoded only for compacted topics, whose records need keys, and for topics with a codec of their
own.
"""

from __future__ import annotations

from millstream.broker.log.config import LogConfig
from millstream.broker.log.segments.raw_records import iter_raw_records, plain_records
from millstream.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
)
from millstream.model import TimestampType
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble_batch,
    check_crc,
    read_header,
)
from millstream.wire.records.codecs import Codec, compress
from millstream.wire.records.primitives import Buffer

_ORDINARY_BITS = CODEC_MASK | LOG_APPEND_TIME_BIT


_LEAST_RECORD_BYTES = 7
"""The size of a record without key, value and headers."""
_MAX_PLAIN_BYTES = 1 << 30
"""The most decompressed bytes that a compressed batch may claim."""


class RecordsWithoutKeyError(InvalidRecordError):
    """Records have no key, which a compacted topic needs. ``indexes`` are their positions in the batch."""

    of_each = "the record has no key, which a compacted topic needs"

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(f"record {indexes[0]} has no key, which a compacted topic needs")
        self.indexes = indexes


class RecordsOutOfTimeError(InvalidTimestampError):
    """Records are too old or too new for the topic. ``indexes`` are their positions in the batch."""

    of_each = "the record's timestamp is too far from the broker's clock, or not the producer's"

    def __init__(self, detail: str, indexes: list[int]) -> None:
        super().__init__(detail)
        self.indexes = indexes


def validate(
    batches: memoryview, config: LogConfig, now_ms: int, *, allow_transactional: bool = False
) -> list[BatchHeader]:
    """Check consecutive batches and return their headers.

    Raises CorruptBatch for bytes that are not batches, and Kafka's error for batches that the topic refuses.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(batches)
    while position < end:
        header = read_header(batches, position)
        check_crc(batches, header, position)
        _check_header(header, config, allow_transactional)
        batch = batches[position : position + header.size]
        if config.timestamp_type is TimestampType.CREATE_TIME:
            _check_timestamps(batch, header, config, now_ms)
        if config.compacts and not header.is_control:
            _check_keys(batch, header)
        headers.append(header)
        position += header.size
    if not headers:
        raise InvalidRecordError("there is no record batch to append")
    if end > config.segment_bytes:
        raise RecordListTooLargeError(f"{end} bytes of batches, segment.bytes is {config.segment_bytes}")
    return headers


def _check_header(header: BatchHeader, config: LogConfig, allow_transactional: bool) -> None:
    if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
        limit = config.max_message_bytes
        raise MessageTooLargeError(f"a batch of {header.size} bytes, max.message.bytes is {limit}")
    if header.record_count != header.last_offset_delta + 1:
        last = header.last_offset_delta
        raise InvalidRecordError(f"{header.record_count} records with offsets from 0 to {last}")
    plain_bytes = _MAX_PLAIN_BYTES if header.attributes & CODEC_MASK else header.size - BATCH_OVERHEAD
    if header.record_count * _LEAST_RECORD_BYTES > plain_bytes:
        raise InvalidRecordError(f"{header.record_count} records do not fit into {plain_bytes} bytes")
    if header.attributes & ~_ORDINARY_BITS:
        _check_attributes(header, allow_transactional)
    is_idempotent = header.producer_id >= 0 and not header.attributes & CONTROL_BIT
    if is_idempotent and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecordError(f"producer {header.producer_id} sent no epoch or no sequence")
    if header.attributes & CODEC_MASK:
        _ = header.codec  # raises for an unknown one


def _check_attributes(header: BatchHeader, allow_transactional: bool) -> None:
    if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) and not allow_transactional:
        kind = "control" if header.is_control else "transactional"
        raise InvalidRecordError(f"{kind} batches are not supported from producers")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecordError("a delete horizon is set, which only compaction may do")


def _check_timestamps(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        words = "a batch with the broker's timestamps, message.timestamp.type is CreateTime"
        raise RecordsOutOfTimeError(words, list(range(header.record_count)))
    first_ms = now_ms - config.message_timestamp_before_max_ms
    last_ms = now_ms + config.message_timestamp_after_max_ms
    latest = header.max_timestamp
    earliest = min(header.base_timestamp, latest)
    if latest != NO_TIMESTAMP and latest > last_ms:
        words = f"timestamp {latest} is {latest - now_ms} ms ahead of the broker's clock"
    elif earliest != NO_TIMESTAMP and earliest < first_ms:
        words = f"timestamp {earliest} is {now_ms - earliest} ms behind the broker's clock"
    else:
        return
    records = enumerate(iter_raw_records(plain_records(batch, header), header.record_count))
    times = [(index, header.base_timestamp + record.timestamp_delta) for index, record in records]
    raise RecordsOutOfTimeError(words, [index for index, time in times if not first_ms <= time <= last_ms])


def _check_keys(batch: memoryview, header: BatchHeader) -> None:
    records = enumerate(iter_raw_records(plain_records(batch, header), header.record_count))
    without_key = [index for index, record in records if record.key is None]
    if without_key:
        raise RecordsWithoutKeyError(without_key)


def recompress(batches: memoryview, headers: list[BatchHeader], codec: Codec, level: int | None) -> bytearray:
    """Return the batches with their records in another codec; those that have it already stay unchanged."""
    out = bytearray()
    position = 0
    for header in headers:
        batch = batches[position : position + header.size]
        out += batch if header.codec is codec else _recompress_one(batch, header, codec, level)
        position += header.size
    return out


def _recompress_one(batch: Buffer, header: BatchHeader, codec: Codec, level: int | None) -> bytes:
    return assemble_batch(
        compress(codec, plain_records(batch, header), level),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
