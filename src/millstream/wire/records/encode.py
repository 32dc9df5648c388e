"""The compiled encoder: columns of keys and values into records, without the interpreter lock.

It writes exactly what ``batches.encode_batch``, the reference, writes. A column is its bytes, and the start
and the size of each field; the size of null is -1. Headers come encoded: a field of that column is the count
and all that follows it, and null means none.

As in ``decode``, the loops are text until ``load`` compiles them. Importing this module is cheap; ``load``
takes a tenth of a second, or a few seconds the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from millstream.wire.records.jit import compile_loop, expand_macros

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Longs = NDArray[np.int64]

MAX_RECORD_OVERHEAD: Final = 32
"""The most bytes of a record besides key, value and headers: seven varints and the attributes."""

# -- the text of the loops

# Adds the number of bytes of a number's zigzag varint to ``length``.
_COUNT: Final = """\
raw = np.uint64((VALUE << 1) ^ (VALUE >> 63))
length += 1
while raw > np.uint64(127):
    raw >>= np.uint64(7)
    length += 1
"""
# Writes the varint itself at ``at``.
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
    source = np.uint64(STARTS[row])
    size = np.uint64(SIZE)
    for i in range(size):
        out[at + i] = DATA[source + i]
    at += size
"""
_MACROS: Final = {"COUNT(VALUE)": _COUNT, "PUT(VALUE)": _PUT, "COPY(DATA, STARTS, SIZE)": _COPY}

# Measures the record ``row``: the number of its bytes after its own length.
_MEASURE: Final = """\
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
"""
# Writes it at ``at``.
_WRITE: Final = """\
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
count += 1
"""

# Writes the records of ``rows``, starting at ``first``, to ``position``, until one does not fit before
# ``limit``. ``count`` records were written before; timestamps are relative to ``base``. Returns the index of
# the next row, the next position, and the latest timestamp. Indexes are unsigned: where they could be
# negative, and so count from the end, the compiler cannot copy many bytes at once.
_WRITE_RECORDS: Final = f"""\
def write_records(
    rows, first, key_data, key_starts, key_sizes, value_data, value_starts, value_sizes,
    header_data, header_starts, header_sizes, timestamps, out, position, limit, count, base, latest,
):
    at = np.uint64(position)
    end = len(rows)
    for place in range(first, end):
        row = rows[place]
{indent(_MEASURE, " " * 8)}
        if np.int64(at) + length + 5 > limit:
            return place, np.int64(at), latest
{indent(_WRITE, " " * 8)}
        if timestamp > latest:
            latest = timestamp
    return end, np.int64(at), latest
"""

# Writes several batches one after another: the records of each up to the row in ``ends``, after a gap for its
# header. ``out`` has room for all; ``out_ends`` becomes the end of each batch.
_WRITE_BATCHES: Final = f"""\
def write_batches(
    ends, key_data, key_starts, key_sizes, value_data, value_starts, value_sizes,
    header_data, header_starts, header_sizes, timestamps, out, gap, out_ends,
):
    at = np.uint64(0)
    begin = np.int64(0)
    for batch in range(len(ends)):
        at += np.uint64(gap)
        base = timestamps[begin]
        count = np.int64(0)
        for row in range(begin, ends[batch]):
{indent(_MEASURE, " " * 12)}
{indent(_WRITE, " " * 12)}
        begin = ends[batch]
        out_ends[batch] = np.int64(at)
    return np.int64(at)
"""

# Sets the partition of each key, as ``producer.partitioner`` computes it. Rows that have a partition or no
# key are left alone; returns the number of rows without both.
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

# Sorts rows by partition, stable: ``ends`` has one element more than there are partitions, and becomes the
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
    """Return the source of a loop with its macros expanded."""
    return expand_macros(source, _MACROS)


# -- compiling


@dataclass(frozen=True, slots=True)
class EncoderKernels:
    """The compiled loops."""

    write_records: Callable[..., tuple[int, int, int]]
    write_batches: Callable[..., int]
    hash_keys: Callable[[Bytes, Longs, Longs, int, Longs], int]
    group_rows: Callable[[Longs, Longs, Longs], int]


@cache
def load() -> EncoderKernels:
    """Compile the loops, or find them compiled; call it on one thread at a time."""
    return compile_kernels({"cache": True})


def compile_kernels(options: dict[str, Any]) -> EncoderKernels:
    """Compile the loops with these options of numba's."""
    from numba import types

    data = types.Array(types.uint8, 1, "C", readonly=True)
    longs = types.Array(types.int64, 1, "C", readonly=True)
    number, out, results = types.int64, types.uint8[::1], types.int64[::1]
    column = (data, longs, longs)
    loops = (
        (_WRITE_RECORDS, (longs, number, *column, *column, *column, longs, out, *[number] * 5)),
        (_WRITE_BATCHES, (longs, *column, *column, *column, longs, out, number, results)),
        (_HASH_KEYS, (*column, number, results)),
        (_GROUP_ROWS, (longs, results, results)),
    )
    return EncoderKernels(
        *(
            compile_loop(expand(text), __file__, __name__, signature, {**options, "nogil": True})
            for text, signature in loops
        )
    )
