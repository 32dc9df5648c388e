"""The fast encoder: columns of keys and values into records, by compiled loops that hold no interpreter lock.

It writes exactly what ``batches.encode_batch`` writes; that one stays the reference. A column is its bytes,
and where each field starts and how long it is; null has the size -1. Headers come encoded: a field of that
column is the count and all that follows it, and null stands for none.

As in ``decode``, the loops are text until ``load`` compiles them, and varints are written out where they are
used. Importing this module is cheap; ``load`` takes a tenth of a second, or a few the very first time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google_crc32c import value as crc32c_value

from millstream.wire.records.batches import BATCH_OVERHEAD, CRC_START, LOG_OVERHEAD, MAGIC
from millstream.wire.records.jit import compile_loop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Longs = NDArray[np.int64]

MAX_RECORD_OVERHEAD: Final = 32
"""What a record takes at most besides key, value and headers: seven varints and the attributes."""

# -- the text of the loops

# How many bytes the zigzag varint of a number takes, added to ``length``.
_COUNT: Final = """\
raw = np.uint64((VALUE << 1) ^ (VALUE >> 63))
length += 1
while raw > np.uint64(127):
    raw >>= np.uint64(7)
    length += 1
"""
# The varint itself, at ``at``.
_PUT: Final = """\
raw = np.uint64((VALUE << 1) ^ (VALUE >> 63))
while raw > np.uint64(127):
    out[at] = np.uint8(raw & np.uint64(127)) | np.uint8(128)
    raw >>= np.uint64(7)
    at += np.uint64(1)
out[at] = np.uint8(raw)
at += np.uint64(1)
"""
_COPY: Final = """\
if SIZE > 0:
    begin = np.uint64(STARTS[row])
    size = np.uint64(SIZE)
    for i in range(size):
        out[at + i] = DATA[begin + i]
    at += size
"""
_MACRO: Final = r"(?m)^( *)(COUNT|PUT)\((\w+)\)$"
_COPY_MACRO: Final = r"(?m)^( *)COPY\((\w+), (\w+), (\w+)\)$"

# Writes the records of ``rows`` from ``first`` on at ``position``, until one does not fit before ``limit``.
# ``count`` records are there already; time is counted from ``base``. Returns the next row's place, the next
# position, and the latest time. Indexes are unsigned: where they could be negative, and so count from the
# end, the compiler cannot copy many bytes at once.
_WRITE_RECORDS: Final = """\
def write_records(
    rows, first, key_data, key_starts, key_sizes, value_data, value_starts, value_sizes,
    header_data, header_starts, header_sizes, timestamps, out, position, limit, count, base, latest,
):
    at = np.uint64(position)
    end = len(rows)
    for place in range(first, end):
        row = rows[place]
        key_size = key_sizes[row]
        value_size = value_sizes[row]
        header_size = header_sizes[row]
        timestamp = timestamps[row]
        delta = timestamp - base
        length = np.int64(1)
        COUNT(delta)
        COUNT(count)
        COUNT(key_size)
        COUNT(value_size)
        if key_size > 0:
            length += key_size
        if value_size > 0:
            length += value_size
        length += header_size if header_size > 0 else 1
        if np.int64(at) + length + 5 > limit:
            return place, np.int64(at), latest
        PUT(length)
        out[at] = np.uint8(0)
        at += np.uint64(1)
        PUT(delta)
        PUT(count)
        PUT(key_size)
        COPY(key_data, key_starts, key_size)
        PUT(value_size)
        COPY(value_data, value_starts, value_size)
        if header_size > 0:
            COPY(header_data, header_starts, header_size)
        else:
            out[at] = np.uint8(0)
            at += np.uint64(1)
        if timestamp > latest:
            latest = timestamp
        count += 1
    return end, np.int64(at), latest
"""

# The partition of each key, as ``producer.partitioner`` computes it. Rows that have one stay as they are, and
# so do rows without a key: returns how many these are.
_HASH_KEYS: Final = """\
def hash_keys(data, starts, sizes, partitions, chosen):
    mix = np.uint32(0x5BD1E995)
    unchosen = 0
    for row in range(len(starts)):
        if chosen[row] >= 0:
            continue
        if sizes[row] < 0:
            unchosen += 1
            continue
        size = np.uint64(sizes[row])
        at = np.uint64(starts[row])
        mixed = np.uint32(0x9747B28C) ^ np.uint32(size)
        for _ in range(size >> np.uint64(2)):
            word = (
                np.uint32(data[at])
                | (np.uint32(data[at + np.uint64(1)]) << np.uint32(8))
                | (np.uint32(data[at + np.uint64(2)]) << np.uint32(16))
                | (np.uint32(data[at + np.uint64(3)]) << np.uint32(24))
            )
            at += np.uint64(4)
            word = np.uint32(word * mix)
            word = np.uint32((word ^ (word >> np.uint32(24))) * mix)
            mixed = np.uint32(np.uint32(mixed * mix) ^ word)
        left = size & np.uint64(3)
        if left > np.uint64(2):
            mixed ^= np.uint32(data[at + np.uint64(2)]) << np.uint32(16)
        if left > np.uint64(1):
            mixed ^= np.uint32(data[at + np.uint64(1)]) << np.uint32(8)
        if left > np.uint64(0):
            mixed = np.uint32((mixed ^ np.uint32(data[at])) * mix)
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * mix)
        mixed ^= mixed >> np.uint32(15)
        chosen[row] = np.int64(mixed & np.uint32(0x7FFFFFFF)) % partitions
    return unchosen
"""

# Rows by partition, in their order: ``ends`` has one place more than there are partitions, and becomes the
# end of each partition's rows in ``order``; the last are the rows without a partition (-1).
_GROUP_ROWS: Final = """\
def group_rows(chosen, ends, order):
    partitions = len(ends) - 1
    for row in range(len(chosen)):
        ends[chosen[row] if chosen[row] >= 0 else partitions] += 1
    total = 0
    for partition in range(len(ends)):
        size = ends[partition]
        ends[partition] = total
        total += size
    for row in range(len(chosen)):
        partition = chosen[row] if chosen[row] >= 0 else partitions
        order[ends[partition]] = row
        ends[partition] += 1
    return total
"""


def expand(source: str) -> str:
    """Source text with its varints and copies written out."""
    source = re.sub(_COPY_MACRO, _expand_copy, source)
    return re.sub(_MACRO, _expand_varint, source)


def _expand_copy(found: re.Match[str]) -> str:
    indent, data, starts, size = found.groups()
    return _indented(_COPY.replace("DATA", data).replace("STARTS", starts).replace("SIZE", size), indent)


def _expand_varint(found: re.Match[str]) -> str:
    indent, kind, name = found.groups()
    return _indented((_COUNT if kind == "COUNT" else _PUT).replace("VALUE", name), indent)


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line for line in text.splitlines())


# -- compiling


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled loops."""

    write_records: Callable[..., tuple[int, int, int]]
    hash_keys: Callable[[Bytes, Longs, Longs, int, Longs], int]
    group_rows: Callable[[Longs, Longs, Longs], int]


@cache
def load() -> Kernels:
    """Compile the loops, or find them compiled; call it on one thread at a time."""
    return compile_kernels({"cache": True})


def compile_kernels(options: dict[str, Any]) -> Kernels:
    """Compile the loops with these options of numba's."""
    from numba import types

    data = types.Array(types.uint8, 1, "C", readonly=True)
    longs = types.Array(types.int64, 1, "C", readonly=True)
    number, out, results = types.int64, types.uint8[::1], types.int64[::1]
    column = (data, longs, longs)
    parts = (
        (
            _WRITE_RECORDS,
            (longs, number, *column, *column, *column, longs, out, *[number] * 5),
        ),
        (_HASH_KEYS, (*column, number, results)),
        (_GROUP_ROWS, (longs, results, results)),
    )
    return Kernels(*(_compile(text, signature, {**options, "nogil": True}) for text, signature in parts))


def _compile(template: str, signature: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return compile_loop(expand(template), __file__, __name__, signature, options)


# -- the header

_UNCOVERED: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")


def write_header(
    batch: Bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header of a batch that a producer sends into its first bytes, in front of its records."""
    producer = (producer_id, producer_epoch, base_sequence)
    times = (base_timestamp, max_timestamp)
    view = batch.data
    _COVERED.pack_into(view, CRC_START, attributes, record_count - 1, *times, *producer, record_count)
    checksum = int(crc32c_value(batch[CRC_START:]))
    _UNCOVERED.pack_into(view, 0, 0, len(batch) - LOG_OVERHEAD, -1, MAGIC, checksum)


assert _UNCOVERED.size + _COVERED.size == BATCH_OVERHEAD
