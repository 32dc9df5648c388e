"""Columns: decoded records as one sequence for each field, instead of one object for each record.

This is where bytes become values. Only this module knows which decoder does it: records, Arrow batches and
tables are made from ``Columns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer.decoding.decoder import kernels
from millstream.consumer.decoding.fields import Fields, HeaderFields, Numbers, Same
from millstream.errors import CorruptBatch
from millstream.model import Header, TimestampType, TopicPartition
from millstream.wire.memory import RecycledMemory
from millstream.wire.records import decode
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_START,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    read_header,
)
from millstream.wire.records.batches import RecordData, decode_batch, decompress_records
from millstream.wire.records.codecs import decompress_into
from millstream.wire.records.crc32c import array_crc32c

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STRETCH_BYTES: Final = 1 << 20
"""How much is decoded in one go: enough to be fast, little enough to discard."""
_STRETCH_BATCHES: Final = 1024
_DECOMPRESSED_BYTES: Final = 4 << 20
"""The same for what comes out of compressed batches; one that does not fit is decompressed on its own."""
_RATIO: Final = 8
"""How much larger batches may get when they are decompressed. If none of them fits, more room is taken."""
_COVERED: Final = BATCH_OVERHEAD - CRC_START
_MIN_RECORD_BYTES: Final = 7
"""The shortest record: a higher record count is wrong."""
_memory: Final = RecycledMemory()
"""The memory of decompressed records, in use while columns refer to it."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one partition in the order of their offsets, which rise but may have gaps.

    The columns are equally long. All records share the timestamp's type and the leader epoch, which is None
    where the log does not know it. Keys and values are bytes or None, or what a deserializer made of them.
    Columns may be arrays, see ``fields``.
    """

    topic: str
    partition: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    headers: Sequence[tuple[Header, ...]]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def data_bytes(self) -> int:
        """About how much keys, values and headers take, while they are bytes."""
        if isinstance(self.keys, Fields) and isinstance(self.values, Fields) and len(self):
            end = self.headers.end if isinstance(self.headers, HeaderFields) else 0
            return max(end, self.values.span[1]) - self.keys.span[0]
        headers = (part for row in self.headers for header in row for part in header)
        return sum(len(each) for column in (self.keys, self.values, headers) for each in column if each)

    def rows(self, start: int, stop: int) -> Columns:
        """The rows from ``start`` to before ``stop``, which must be within the columns."""
        if start == 0 and stop == len(self):
            return self
        return Columns(
            self.topic,
            self.partition,
            self.timestamp_type,
            self.leader_epoch,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
        )

    def with_objects(self, keys: Sequence[Any], values: Sequence[Any]) -> Columns:
        """The same records with their keys and values deserialized; columns of equal length."""
        return Columns(
            self.topic,
            self.partition,
            self.timestamp_type,
            self.leader_epoch,
            self.offsets,
            self.timestamps,
            keys,
            values,
            self.headers,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records of some batches in a row, and where they end: in the data, and in the log."""

    columns: Columns
    end: int
    next_offset: int


# -- one batch


def decode_columns(
    batch: memoryview, header: BatchHeader, partition: TopicPartition, *, max_decompressed_bytes: int
) -> Columns:
    """Decode the records of one batch, without checking its CRC; raises CorruptBatch."""
    loops = kernels(len(batch))
    if loops is not None:
        columns = decode_compiled(loops, batch, header, partition, max_decompressed_bytes)
        if columns is not None:
            return columns
    records = decode_batch(batch, max_decompressed_bytes=max_decompressed_bytes, verify_crc=False)
    offsets, timestamps, keys, values, headers = _transpose(records)
    return Columns(
        *partition, header.timestamp_type, _epoch(header), offsets, timestamps, keys, values, headers
    )


def decode_compiled(
    loops: decode.DecoderKernels,
    batch: memoryview,
    header: BatchHeader,
    partition: TopicPartition,
    max_decompressed_bytes: int,
) -> Columns | None:
    """The same by the compiled decoder; None for a batch that the plain one does not accept either."""
    import numpy as np

    if header.size != len(batch):
        return None

    payload = decompress_records(batch, header, max_decompressed_bytes=max_decompressed_bytes)
    data = np.frombuffer(payload, np.uint8)
    table = np.zeros((1, decode.FIELDS), np.int64)
    table[0, decode.PAYLOAD_END] = len(data)
    table[0, decode.BASE_OFFSET] = header.base_offset
    table[0, decode.LAST_DELTA] = header.last_offset_delta
    table[0, decode.BASE_TIMESTAMP] = header.base_timestamp
    table[0, decode.MAX_TIMESTAMP] = header.max_timestamp
    table[0, decode.APPENDED] = header.attributes & LOG_APPEND_TIME_BIT
    table[0, decode.RECORDS] = header.record_count
    batches, columns = _read(loops, data, table, header.record_count, partition, header)
    return columns if batches else None


def _transpose(records: Sequence[RecordData]) -> tuple[Any, Any, Any, Any, Any]:
    if not records:  # compaction may leave a batch without any record, for its producer's sake
        return (), (), (), (), ()
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    return offsets, timestamps, keys, values, headers


def _epoch(header: BatchHeader) -> int | None:
    return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None


# -- batches in a row


def decode_stretch(
    loops: decode.DecoderKernels,
    view: memoryview,
    position: int,
    partition: TopicPartition,
    *,
    check_crcs: bool,
    skip_transactional: bool,
    max_payload_bytes: int,
) -> Stretch | None:
    """Decode batches from ``position`` on, up to one that is left to the caller; None if that is the first.

    Left to the caller are control and damaged batches, those that are cut, out of order or compressed in
    another way than the first, and transactional ones if ``skip_transactional``.
    """
    import numpy as np

    data = np.frombuffer(view, np.uint8)
    table = np.empty((_STRETCH_BATCHES, decode.FIELDS), np.int64)
    batches = loops.find_batches(data, position, _STRETCH_BYTES, max_payload_bytes, skip_transactional, table)
    if not batches:
        return None
    table = table[: _unharmed(loops, data, table[:batches]) if check_crcs else batches]
    if not len(table):
        return None
    header = read_header(view, position)
    plain, plain_table = data, table
    if header.attributes & CODEC_MASK:
        plain, plain_table = _decompressed(view, table, header, max_payload_bytes)
    rows = int(plain_table[:, decode.RECORDS].sum())
    batches, columns = _read(loops, plain, plain_table, rows, partition, header)
    if not batches:
        return None
    last = table[batches - 1]
    next_offset = int(last[decode.BASE_OFFSET]) + int(last[decode.LAST_DELTA]) + 1
    return Stretch(columns, int(last[decode.PAYLOAD_END]), next_offset)


def _decompressed(
    view: memoryview, table: NDArray[np.int64], header: BatchHeader, max_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The records of compressed batches in one piece, as far as they can be had, and their table."""
    import numpy as np

    starts, stops, records = (
        table[:, field].tolist() for field in (decode.START, decode.PAYLOAD_END, decode.RECORDS)
    )
    packed = [view[start:stop] for start, stop in zip(starts, stops, strict=True)]
    room = _memory.take(min(_DECOMPRESSED_BYTES, _RATIO * (stops[-1] - starts[0])))
    ends = _fill(room, packed, records, header, max_bytes)
    if not ends and len(room) < _DECOMPRESSED_BYTES:
        room = _memory.take(_DECOMPRESSED_BYTES)
        ends = _fill(room, packed, records, header, max_bytes)
    end = ends[-1] if ends else 0
    moved = table[: len(ends)].copy()
    moved[:, decode.PAYLOAD_END] = ends
    moved[:, decode.START] = [0, *ends[:-1]][: len(ends)]
    # A few records must not keep much more memory than they need.
    plain = room[:end] if 2 * end > len(room) else bytes(room[:end])
    return np.frombuffer(plain or b"\0", np.uint8), moved


def _fill(
    room: memoryview,
    packed: Sequence[memoryview],
    records: Sequence[int],
    header: BatchHeader,
    max_bytes: int,
) -> list[int]:
    """Decompress batches one behind the other, up to one that is damaged or has no room; where each ends."""
    ends: list[int] = []
    end = 0
    for data, count in zip(packed, records, strict=True):
        try:
            size = decompress_into(header.codec, data, room[end : end + max_bytes + 1])
        except CorruptBatch:
            break
        if count * _MIN_RECORD_BYTES > size:
            break
        end += size
        ends.append(end)
    return ends


def _unharmed(loops: decode.DecoderKernels, data: NDArray[np.uint8], table: NDArray[np.int64]) -> int:
    """How many of the batches, from the first on, have the CRC that they should have."""
    starts = table[:, decode.START] - _COVERED
    ends, crcs = table[:, decode.PAYLOAD_END].copy(), table[:, decode.CRC].copy()
    if loops.count_unharmed is not None:
        return loops.count_unharmed(data, starts, ends, crcs)
    checks = zip(starts.tolist(), ends.tolist(), crcs.tolist(), strict=True)
    for batch, (start, end, crc) in enumerate(checks):
        if array_crc32c(data[start:end]) != crc:
            return batch
    return len(table)


def _read(
    loops: decode.DecoderKernels,
    data: NDArray[np.uint8],
    table: NDArray[np.int64],
    rows: int,
    partition: TopicPartition,
    header: BatchHeader,
) -> tuple[int, Columns]:
    """Read the records of the batches in the table; returns how many batches were good, and their records."""
    import numpy as np

    offsets, timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
    key_starts, key_sizes, value_starts, value_sizes, places = np.empty((5, rows), np.int32)
    batches, rows, with_headers = loops.read_records(
        data,
        table,
        len(table),
        offsets,
        timestamps,
        key_starts,
        key_sizes,
        value_starts,
        value_sizes,
        places,
    )
    columns = Columns(
        *partition,
        header.timestamp_type,
        _epoch(header),
        Numbers(offsets[:rows]),
        Numbers(timestamps[:rows]),
        Fields(loops, data, key_starts[:rows], key_sizes[:rows]),
        Fields(loops, data, value_starts[:rows], value_sizes[:rows]),
        HeaderFields(data, places[:rows]) if with_headers else Same((), rows),
    )
    return batches, columns
