"""The compiled decoder: record batches into columns of numbers, without the interpreter lock.

It accepts exactly what ``batches.decode_batch``, the reference, accepts. That one also explains what is wrong
with a batch that was refused here. Nothing is read or written outside the given arrays, whatever the bytes
are.

The loops are text until ``load`` compiles them; reading a varint is a macro (see ``jit``). Importing this
module is cheap. ``load`` imports numba, and compiles (seconds) or finds the result of an earlier compilation
(a tenth of a second): call it on a background thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from millstream.wire.records.checksum_loop import compile_checksum_loop
from millstream.wire.records.field_loops import compile_field_loops
from millstream.wire.records.jit import compile_loop, expand_macros
from millstream.wire.records.primitives import INT64_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.wire.records.checksum_loop import ChecksumLoop

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

# The fields of a batch in the table that ``find_batches`` fills and ``read_records`` reads.
(START, PAYLOAD_END, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, APPENDED, RECORDS, CRC) = range(
    9
)
FIELDS: Final = 9

# -- the text of the loops

# Reads the varint at ``at`` into a variable; any fault leaves by FAULT. An over-long encoding is accepted
# up to the most bytes of its type, as in the plain decoder.
_VARINT: Final = """\
if at >= END:
    FAULT
byte = np.uint64(data[np.uint64(at)])
at += 1
raw = byte
if byte > 127:
    raw = byte & np.uint64(127)
    shift = np.uint64(7)
    while byte > 127:
        if at >= END or shift > np.uint64(LAST_SHIFT):
            FAULT
        byte = np.uint64(data[np.uint64(at)])
        at += 1
        raw |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
    if TOO_LARGE:
        FAULT
NAME = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
"""
_ASCII: Final = """\
for place in range(at, at + SIZE):
    if data[np.uint64(place)] > 127:
        FAULT
"""
# A varint has 5 bytes at most and 32 bits; a varlong 10 and 64, so its last byte holds no more than one bit.
_MACROS: Final = {
    "VARINT(NAME, END)": _VARINT.replace("LAST_SHIFT", "28").replace(
        "TOO_LARGE", "raw > np.uint64(0xFFFFFFFF)"
    ),
    "VARLONG(NAME, END)": _VARINT.replace("LAST_SHIFT", "63").replace(
        "TOO_LARGE", "shift > np.uint64(63) and byte > np.uint64(1)"
    ),
    "ASCII(SIZE)": _ASCII,
}

# Reads the record at ``at`` and checks all its lengths. ATTRIBUTES and NAMED are statements that run at its
# attributes, of which no bit is used, and at the name of each header.
_RECORD: Final = """\
VARINT(length, payload_end)
end = at + length
if length < 1 or end > payload_end:
    FAULT
ATTRIBUTES
at += 1
VARLONG(timestamp_delta, end)
VARINT(offset_delta, end)
VARINT(key_size, end)
key_start = at
if key_size < -1 or key_size > end - at:
    FAULT
if key_size > 0:
    at += key_size
VARINT(value_size, end)
value_start = at
if value_size < -1 or value_size > end - at:
    FAULT
if value_size > 0:
    at += value_size
header_start = at
VARINT(header_count, end)
if header_count != 0:
    if header_count < 0 or header_count * 2 > end - at:
        FAULT
    for _ in range(header_count):
        VARINT(name_size, end)
        if name_size < 0 or name_size > end - at:
            FAULT
        NAMED
        at += name_size
        VARINT(size, end)
        if size < -1 or size > end - at:
            FAULT
        if size > 0:
            at += size
if at != end:
    FAULT
"""
_TIMESTAMP: Final = """\
NAME = base_timestamp + timestamp_delta
if ((base_timestamp ^ NAME) & (timestamp_delta ^ NAME)) < 0:
    FAULT
"""
_RECORD_MACROS: Final = {"RECORD(ATTRIBUTES, NAMED)": _RECORD, "TIMESTAMP(NAME)": _TIMESTAMP}

_READ_RECORDS: Final = """\
def read_records(
    data, table, batches, offsets, timestamps, key_starts, key_sizes, value_starts, value_sizes, headers
):
    row = 0
    with_headers = 0
    for batch in range(batches):
        at = table[batch, START]
        payload_end = table[batch, PAYLOAD_END]
        base_offset = table[batch, BASE_OFFSET]
        last_delta = table[batch, LAST_DELTA]
        base_timestamp = table[batch, BASE_TIMESTAMP]
        max_timestamp = table[batch, MAX_TIMESTAMP]
        appended = table[batch, APPENDED]
        first_row = row
        previous_delta = -1
        for _ in range(table[batch, RECORDS]):
            RECORD(pass, pass)
            if offset_delta <= previous_delta or offset_delta > last_delta:
                FAULT
            previous_delta = offset_delta
            timestamp = max_timestamp
            if appended == 0:
                TIMESTAMP(timestamp)
            if header_count != 0:
                with_headers += 1
            else:
                header_start = -1
            offsets[row] = base_offset + offset_delta
            timestamps[row] = timestamp
            key_starts[row] = key_start
            key_sizes[row] = key_size
            value_starts[row] = value_start
            value_sizes[row] = value_size
            headers[row] = header_start
            row += 1
        if at != payload_end:
            FAULT
    return batches, row, with_headers
"""

# Checks the records of a batch from a producer, whose offsets count from 0. Returns whether they are good,
# their least and largest timestamps, and how many have no key. A header's name that is not ASCII is left to
# the plain decoder. Attributes above 127 are refused: kafka-python reads them as a varint.
_CHECK_RECORDS: Final = """\
def check_records(data, start, payload_end, records, base_timestamp):
    at = start
    earliest = np.int64(MAX_OFFSET)
    latest = np.int64(-1)
    without_key = 0
    for index in range(records):
        RECORD(ASCII(1), ASCII(name_size))
        TIMESTAMP(timestamp)
        if offset_delta != index:
            FAULT
        if key_size < 0:
            without_key += 1
        earliest = min(earliest, timestamp)
        latest = max(latest, timestamp)
    if at != payload_end:
        FAULT
    return True, earliest, latest, without_key
"""

# Finds the run of simple batches: whole, in order, of one codec, leader epoch and timestamp type. Stops
# before the first that differs in any way, damaged ones included; and behind one from which compaction has
# removed records, as the position then has to jump over what is missing at its end.
_FIND_BATCHES: Final = """\
def find_batches(data, position, max_bytes, max_payload, skip_transactional, table):
    end = len(data)
    batches = 0
    begin = position
    next_offset = 0
    epoch = -1
    kind = 0
    while batches < len(table) and end - position >= OVERHEAD and position - begin < max_bytes:
        base_offset = np.int64(0)
        for i in range(8):
            base_offset = (base_offset << 8) | np.int64(data[position + i])
        length = INT32(position + 8)
        batch_epoch = INT32(position + 12)
        attributes = (np.int64(data[position + 21]) << 8) | np.int64(data[position + 22])
        last_delta = INT32(position + 23)
        records = INT32(position + 57)
        if data[position + 16] != 2 or length < OVERHEAD - 12 or length > end - position - 12:
            break
        payload = length - (OVERHEAD - 12)
        if last_delta < 0 or records < 0:
            break
        if attributes & 7 == 0 and (records * 7 > payload or payload > max_payload):
            break
        if base_offset < next_offset or base_offset > MAX_OFFSET - last_delta - 1:
            break
        if attributes & CONTROL or (skip_transactional and attributes & TRANSACTIONAL):
            break
        if batches and (batch_epoch != epoch or attributes & (APPEND_TIME | 7) != kind):
            break
        epoch = batch_epoch
        kind = attributes & (APPEND_TIME | 7)
        base_timestamp = np.int64(0)
        max_timestamp = np.int64(0)
        for i in range(8):
            base_timestamp = (base_timestamp << 8) | np.int64(data[position + 27 + i])
            max_timestamp = (max_timestamp << 8) | np.int64(data[position + 35 + i])
        table[batches, START] = position + OVERHEAD
        table[batches, PAYLOAD_END] = position + 12 + length
        table[batches, BASE_OFFSET] = base_offset
        table[batches, LAST_DELTA] = last_delta
        table[batches, BASE_TIMESTAMP] = base_timestamp
        table[batches, MAX_TIMESTAMP] = max_timestamp
        table[batches, APPENDED] = attributes & APPEND_TIME
        table[batches, RECORDS] = records
        table[batches, CRC] = INT32(position + 17) & 0xFFFFFFFF
        position += 12 + length
        next_offset = base_offset + last_delta + 1
        batches += 1
        if records != last_delta + 1:
            break
    return batches
"""

_CONSTANTS: Final = {
    **{name: globals()[name] for name in ("START", "PAYLOAD_END", "BASE_OFFSET", "LAST_DELTA")},
    **{name: globals()[name] for name in ("BASE_TIMESTAMP", "MAX_TIMESTAMP", "APPENDED", "RECORDS", "CRC")},
    "OVERHEAD": BATCH_OVERHEAD,
    "APPEND_TIME": LOG_APPEND_TIME_BIT,
    "CONTROL": CONTROL_BIT,
    "TRANSACTIONAL": TRANSACTIONAL_BIT,
    "MAX_OFFSET": INT64_MAX,
}


def expand(source: str, fault: str = "return batch, first_row, with_headers") -> str:
    """Return the source of a loop with everything expanded. ``fault``: the statement that refuses."""
    source = expand_macros(expand_macros(source, _RECORD_MACROS), _MACROS).replace("FAULT", fault)
    source = re.sub(r"INT32\(position \+ (\d+)\)", _expand_int32, source)
    return re.sub(rf"\b({'|'.join(_CONSTANTS)})\b", lambda found: str(_CONSTANTS[found[0]]), source)


def _expand_int32(found: re.Match[str]) -> str:
    first = int(found[1])
    parts = [f"(np.uint32(data[position + {first + i}]) << np.uint32({24 - 8 * i}))" for i in range(4)]
    return f"np.int64(np.int32({' | '.join(parts)}))"


# -- compiling


@dataclass(frozen=True, slots=True)
class DecoderKernels:
    """The compiled loops."""

    find_batches: Callable[[Bytes, int, int, int, bool, Longs], int]
    read_records: Callable[..., tuple[int, int, int]]
    measure: Callable[[Ints], tuple[int, int]]
    gather: Callable[[Bytes, Ints, Ints, Ints, Bytes, Bytes, int, int], int]
    gather_fixed: Callable[[Bytes, Ints, Ints, int, Bytes], int]
    pack: Callable[[Bytes, Ints, Ints, int, Bytes], int]
    scan_text: Callable[[Bytes, Ints, Ints], int]
    count_unharmed: ChecksumLoop | None
    """See ``checksum_loop``; None where google-crc32c must be called for each batch."""


@cache
def load() -> DecoderKernels:
    """Compile the loops, or find them compiled; call it on one thread at a time."""
    return compile_kernels({"cache": True})


def compile_kernels(options: dict[str, Any]) -> DecoderKernels:
    """Compile the loops with these options of numba's."""
    from numba import types

    data = types.Array(types.uint8, 1, "C", readonly=True)
    ints, longs, number, table = types.int32[::1], types.int64[::1], types.int64, types.int64[:, ::1]
    columns = (longs, longs, ints, ints, ints, ints, ints)
    loops = (
        (_FIND_BATCHES, (data, number, number, number, types.boolean, table), False),
        (_READ_RECORDS, (data, table, number, *columns), True),
    )
    compiled = [
        compile_loop(expand(text), __file__, __name__, signature, {**options, "nogil": nogil})
        for text, signature, nogil in loops
    ]
    compiled += compile_field_loops(options)
    compiled.append(compile_checksum_loop({**options, "nogil": True}))
    return DecoderKernels(*compiled)


CheckRecords = Callable[["Bytes", int, int, int, int], tuple[bool, int, int, int]]
"""The type of the loop that checks records."""


def load_check() -> CheckRecords:
    """Compile the loop that checks a producer's records, or find it compiled."""
    return compile_check({"cache": True})


def compile_check(options: dict[str, Any]) -> CheckRecords:
    """Compile it with these options of numba's."""
    from numba import types

    signature = (types.Array(types.uint8, 1, "C", readonly=True), *[types.int64] * 4)
    text = expand(_CHECK_RECORDS, "return False, earliest, latest, without_key")
    loop: CheckRecords = compile_loop(text, __file__, __name__, signature, options)
    return loop
