"""Compiled loops over decoded fields: into Arrow's buffers, into Python lists, and a scan for text."""

from __future__ import annotations

from typing import Any, Final

from millstream.wire.records.jit import compile_loop

_MEASURE: Final = """\
def measure(sizes):
    total = np.int64(0)
    nulls = np.int64(0)
    for row in range(len(sizes)):
        size = np.int64(sizes[row])
        if size > 0:
            total += size
        elif size < 0:
            nulls += 1
    return total, nulls
"""

# Copies fields into the buffers of an Arrow binary array, starting at ``first_row`` and ``first_byte``:
# ``ends`` are Arrow's offsets without the first, ``validity`` has all its bits set. Indexes are unsigned:
# where they could be negative, and so count from the end, the compiler cannot copy many bytes at once.
_GATHER: Final = """\
def gather(data, starts, sizes, ends, validity, out, first_row, first_byte):
    position = np.uint64(first_byte)
    for row in range(len(starts)):
        place = first_row + row
        if sizes[row] > 0:
            size = np.uint64(sizes[row])
            start = np.uint64(starts[row])
            for i in range(size):
                out[position + i] = data[start + i]
            position += size
        elif sizes[row] < 0:
            validity[place >> 3] &= np.uint8(255 ^ (1 << (place & 7)))
        ends[place] = position
    return np.int64(position)
"""

# Copies fields of one size; the output of nulls is left alone. Returns the first row that has another size,
# or the number of rows.
_GATHER_FIXED: Final = """\
def gather_fixed(data, starts, sizes, width, out):
    for row in range(len(starts)):
        size = np.int64(sizes[row])
        if size >= 0:
            if size != width:
                return row
            start = np.int64(starts[row])
            for i in range(width):
                out[row * width + i] = data[start + i]
    return len(starts)
"""

# Writes the fields as a list in the format of ``marshal``, the fastest way to make Python objects; ``kind``
# is marshal's type code of a field that is not null.
_PACK: Final = """\
def pack(data, starts, sizes, kind, out):
    rows = len(starts)
    out[0] = 91
    for i in range(4):
        out[1 + i] = (rows >> (8 * i)) & 255
    position = np.uint64(5)
    for row in range(rows):
        if sizes[row] < 0:
            out[position] = 78
            position += np.uint64(1)
            continue
        size = np.uint64(sizes[row])
        out[position] = kind
        out[position + np.uint64(1)] = size & np.uint64(255)
        out[position + np.uint64(2)] = (size >> np.uint64(8)) & np.uint64(255)
        out[position + np.uint64(3)] = (size >> np.uint64(16)) & np.uint64(255)
        out[position + np.uint64(4)] = size >> np.uint64(24)
        position += np.uint64(5)
        start = np.uint64(starts[row])
        for i in range(size):
            out[position + i] = data[start + i]
        position += size
    return np.int64(position)
"""

# Whether fields are text: 0, all are ASCII; 1, all are UTF-8 if their concatenation is; 2, no (one of them
# starts in the middle of a character).
_SCAN_TEXT: Final = """\
def scan_text(data, starts, sizes):
    bits = np.uint8(0)
    torn = False
    for row in range(len(starts)):
        if sizes[row] > 0:
            size = np.uint64(sizes[row])
            start = np.uint64(starts[row])
            torn |= (data[start] & np.uint8(0xC0)) == np.uint8(0x80)
            for i in range(size):
                bits |= data[start + i]
    if bits < 128:
        return 0
    return 2 if torn else 1
"""


def compile_field_loops(options: dict[str, Any]) -> list[Any]:
    """Compile the loops with these options of numba's: the last ones of ``DecoderKernels``, in its order."""
    from numba import types

    data = types.Array(types.uint8, 1, "C", readonly=True)
    ints, out, number = types.int32[::1], types.uint8[::1], types.int64
    # The short ones keep the interpreter's lock: releasing and taking it again would take longer.
    loops = (
        (_MEASURE, (ints,), False),
        (_GATHER, (data, ints, ints, ints, out, out, number, number), True),
        (_GATHER_FIXED, (data, ints, ints, number, out), False),
        (_PACK, (data, ints, ints, number, out), False),
        (_SCAN_TEXT, (data, ints, ints), False),
    )
    return [
        compile_loop(text, __file__, __name__, signature, {**options, "nogil": nogil})
        for text, signature, nogil in loops
    ]
