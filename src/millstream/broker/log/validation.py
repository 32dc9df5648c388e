"""Validates a producer's batches before they are appended: headers, CRCs, and each record."""

from __future__ import annotations

from millstream.broker.log.config import LogConfig
from millstream.broker.log.record_checks import RecordFacts, check_records, decoded
from millstream.broker.log.segments.raw_records import plain_records
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
    unpack_header,
)
from millstream.wire.records.batches import RecordData
from millstream.wire.records.codecs import Codec, compress
from millstream.wire.records.primitives import Buffer

_ORDINARY_BITS = CODEC_MASK | LOG_APPEND_TIME_BIT


_LEAST_RECORD_BYTES = 7
"""The size of a record without key, value and headers."""
_MAX_PLAIN_BYTES = 1 << 30
"""The most decompressed bytes that a compressed batch may claim."""


RecordErrors = dict[int, str]
"""What is wrong with records, by their positions in the batch."""


class RecordsWithoutKeyError(InvalidRecordError):
    """Records have no key, which a compacted topic needs."""

    def __init__(self, record_errors: RecordErrors) -> None:
        super().__init__(f"record {min(record_errors)} has no key, which a compacted topic needs")
        self.record_errors = record_errors


class RecordsOutOfTimeError(InvalidTimestampError):
    """Records are too old or too new for the topic."""

    def __init__(self, detail: str, record_errors: RecordErrors) -> None:
        super().__init__(detail)
        self.record_errors = record_errors


def validate(
    batches: memoryview,
    config: LogConfig,
    now_ms: int,
    *,
    allow_transactional: bool = False,
    own: bool = False,
) -> list[BatchHeader]:
    """Check consecutive batches and return their headers. Records of the broker's ``own`` are not looked at.

    Raises CorruptBatch for bytes that are not batches, and Kafka's error for batches that the topic refuses.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(batches)
    while position < end:
        header = unpack_header(batches, position)
        check_crc(batches, header, position)
        _check_header(header, config, allow_transactional)
        if own:
            headers.append(header)
            position += header.size
            continue
        batch = batches[position : position + header.size]
        facts = check_records(batch, header)
        _check_timestamp_type(header)
        by_producer = config.timestamp_type is TimestampType.CREATE_TIME
        has_keys = not facts.without_key or not config.compacts or header.is_control
        if not has_keys or (by_producer and not _is_in_time(facts, config, now_ms)):
            _raise_record_errors(decoded(batch, header), config, now_ms)
        # Wrong ones are corrected, as in Kafka: the time index relies on them.
        if by_producer and header.max_timestamp != facts.latest:
            header = header._replace(max_timestamp=facts.latest)
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
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
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


def _check_timestamp_type(header: BatchHeader) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        words = "the batch has the broker's timestamp type, LogAppendTime, which only the broker may set"
        raise RecordsOutOfTimeError(words, dict.fromkeys(range(header.record_count), words))


def _is_in_time(facts: RecordFacts, config: LogConfig, now_ms: int) -> bool:
    first_ms, last_ms = _bounds(config, now_ms)
    return first_ms <= facts.earliest and facts.latest <= last_ms


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    return now_ms - before_ms, now_ms + after_ms


def _raise_record_errors(records: list[RecordData], config: LogConfig, now_ms: int) -> None:
    """Raise an error that names the records. None if they are in time: some may have no timestamp."""
    first_ms, last_ms = _bounds(config, now_ms)
    keyless: RecordErrors = {}
    late: RecordErrors = {}
    for index, record in enumerate(records):
        if config.compacts and record.key is None:
            keyless[index] = "the record has no key, which a compacted topic needs"
        elif record.timestamp != NO_TIMESTAMP and not first_ms <= record.timestamp <= last_ms:
            late[index] = f"timestamp {record.timestamp} is not between {first_ms} and {last_ms}"
    if late and config.timestamp_type is TimestampType.CREATE_TIME:
        raise RecordsOutOfTimeError(late[min(late)], keyless | late)
    if keyless:
        raise RecordsWithoutKeyError(keyless)


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
