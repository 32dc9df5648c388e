"""Checks every record of a produced batch, so that no batch is stored on which consumers fail.

The compiled loop checks a record in some 10 ns. Until it is loaded, and where it refuses a batch, the plain
decoder checks it: that takes microseconds per record, but says what is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from millstream.broker.log.segments.raw_records import MAX_DECOMPRESSED_BYTES, plain_records
from millstream.errors import CorruptBatch, InvalidRecordError, MessageTooLargeError
from millstream.wire.memory import RecycledMemory
from millstream.wire.records.batch_header import BATCH_OVERHEAD, CODEC_MASK, NO_TIMESTAMP, BatchHeader
from millstream.wire.records.batches import RecordData, decode_batch
from millstream.wire.records.codecs import DecompressedTooLarge, decompress_into
from millstream.wire.records.decode import CheckRecords, load_check
from millstream.wire.records.jit import Loops
from millstream.wire.records.primitives import INT64_MAX, Buffer

record_loop: Final[Loops[CheckRecords]] = Loops(volume_bytes=4 << 20)
"""The compiled loop of this process, once it is loaded: after a quarter of a second in plain Python."""


_MAX_DECODED_RECORDS: Final = 100_000
_memory: Final = RecycledMemory()
_USUAL_RATIO: Final = 8


class RecordFacts(NamedTuple):
    """What the records of a good batch have in common."""

    earliest: int
    latest: int
    """The largest timestamp; -1 if no record has one."""
    without_key: int
    """How many records have no key."""


def check_records(batch: memoryview, header: BatchHeader) -> RecordFacts:
    """Check the records of one batch. Raises Kafka's error if any reader could stumble over them."""
    try:
        compiled = record_loop.ready(len(batch))
        if compiled is None and header.record_count > _MAX_DECODED_RECORDS:
            with suppress(ImportError, RuntimeError):  # where numba cannot compile, the batch is too large
                compiled = record_loop.kernels = load_check()  # plain Python would take longer
        facts = _check_compiled(compiled, batch, header) if compiled is not None else None
        return facts or _facts(decoded(batch, header))
    except DecompressedTooLarge as error:
        raise MessageTooLargeError(f"{error}: send smaller batches") from None
    except CorruptBatch as error:
        raise InvalidRecordError(str(error)) from None


def _check_compiled(check: CheckRecords, batch: memoryview, header: BatchHeader) -> RecordFacts | None:
    """Return None where the loop refuses the batch."""
    import numpy as np

    start = BATCH_OVERHEAD
    plain: Buffer = batch
    if header.attributes & CODEC_MASK:
        start, plain = 0, _decompressed(batch, header)
    data = np.frombuffer(plain, np.uint8)
    found = check(data, start, len(data), header.record_count, header.base_timestamp)
    return RecordFacts._make(found[1:]) if found[0] else None


def _decompressed(batch: memoryview, header: BatchHeader) -> Buffer:
    """Decompress into memory that is used again: that of a new result would take longer than all the rest."""
    room = _memory.take(min(_USUAL_RATIO * len(batch), MAX_DECOMPRESSED_BYTES + 1))
    try:
        return room[: decompress_into(header.codec, batch[BATCH_OVERHEAD:], room)]
    except DecompressedTooLarge:
        return plain_records(batch, header)


def decoded(batch: memoryview, header: BatchHeader) -> list[RecordData]:
    """Decode the records, with offsets that count from 0. Raises CorruptBatch.

    Raises MessageTooLargeError for more than a bound, as each takes microseconds and much memory: a small
    compressed batch can claim millions. Producers then split the batch.
    """
    if header.record_count > _MAX_DECODED_RECORDS:
        words = f"{header.record_count} records, {_MAX_DECODED_RECORDS} are decoded at most"
        raise MessageTooLargeError(f"{words}: send smaller batches")
    limit = MAX_DECOMPRESSED_BYTES
    records = decode_batch(batch, max_decompressed_bytes=limit, verify_crc=False, for_all_clients=True)
    for index, record in enumerate(records):
        if record.offset != header.base_offset + index:
            delta = record.offset - header.base_offset
            raise CorruptBatch(f"record {index} has offset {delta} in its batch, not {index}")
    return records


def _facts(records: list[RecordData]) -> RecordFacts:
    times = [record.timestamp for record in records]
    without_key = sum(record.key is None for record in records)
    return RecordFacts(min(INT64_MAX, *times), max(NO_TIMESTAMP, *times), without_key)
