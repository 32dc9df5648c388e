"""The compiled loop that runs a program over records: every read is within its record, every write has room.

A record that is malformed gets an error code (a place in ``ERRORS``), and what it appended is taken back.
When a node has no room left, the loop takes the record back and returns, so that the caller can make room.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from millstream.avro.instructions import BYTE, DECIMAL, LIST, LONG, LONGS, OP, VARIABLE, WORD
from millstream.wire.records.jit import compile_loop, expand_macros

EMPTY_ITEMS: Final = 1 << 16
"""How many items without bytes (null, an empty record) all arrays of a record may have."""
DEEPEST_LOOP: Final = 64
DONE, GROW_VALUES, GROW_DATA = range(3)

_MACROS: Final = {
    "READ_LONG(NUMBER)": """\
NUMBER = np.int64(0)
shift = 0
fault = 1
while pos < end and shift < 64:
    byte = np.int64(source[pos])
    pos += 1
    NUMBER |= (byte & 127) << shift
    if byte < 128:
        fault = 0 if shift < 63 or byte < 2 else 12
        break
    shift += 7
if shift >= 64:
    fault = 12
if fault:
    error = fault
    break
NUMBER = ((NUMBER >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(NUMBER & 1)
""",
    "APPEND_BYTES(SOURCE, START, SIZE)": """\
filled = used[node]
if filled + SIZE > 2147483647:
    error = 11
    break
if filled + SIZE > data_room[node]:
    grow = 2
    state[2] = filled + SIZE
    break
into = data_at[node] + filled
bits = np.uint8(0)
for i in range(SIZE):
    letter = SOURCE[START + i]
    bits |= letter
    out8[into + i] = letter
used[node] = filled + SIZE
out32[main_at[node] + at + 1] = filled + SIZE
""",
}

_SOURCE: Final = """\
def decode(
    data, starts, ends, entries, constants, code, table, kinds, null_at, main_at, data_at, room, data_room,
    count, used, saved, errors, state, out8, out32, out64, floats, doubles,
):
    loops = np.zeros(DEEPEST_LOOP, np.int64)
    nodes = len(kinds)
    least = np.int64(-0x7FFFFFFFFFFFFFFF) - np.int64(1)
    row = state[0]
    while row < len(entries):
        pc = entries[row]
        if pc < 0:
            row += 1
            continue
        for i in range(nodes):
            saved[i] = count[i]
            saved[nodes + i] = used[i]
        source = data
        pos = starts[row]
        end = ends[row]
        back = pos
        back_end = end
        depth = -1
        empty_items = EMPTY_ITEMS
        error = 0
        grow = 0
        node = np.int64(-1)
        while True:
            op = code[pc, 0]
            node = code[pc, 1]
            first = code[pc, 2]
            second = code[pc, 3]
            pc += 1
            number = np.int64(0)
            if op < LONGS:
                if pos < end and source[pos] < 128:
                    number = np.int64(source[pos])
                    pos += 1
                    number = (number >> 1) ^ -(number & 1)
                else:
                    READ_LONG(number)
            at = np.int64(0)
            if node >= 0:
                at = count[node]
                if at >= room[node]:
                    grow = 1
                    break
                count[node] = at + 1
                if null_at[node] >= 0:
                    out8[null_at[node] + at] = 1
            if op == SIZED or op == FIXED:
                size = number if op == SIZED else first
                if size < 0 or size > end - pos:
                    error = 2
                    break
                APPEND_BYTES(source, pos, size)
                if bits >= 128 and second == 1:
                    i = pos
                    stop = pos + size
                    while i < stop:
                        lead = np.int64(source[i])
                        if lead < 128:
                            i += 1
                            continue
                        more = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
                        if lead < 0xC2 or lead > 0xF4 or i + more >= stop:
                            error = 5
                            break
                        follow = np.int64(source[i + 1])
                        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
                        high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
                        if follow < low or follow > high:
                            error = 5
                        for each in range(2, more + 1):
                            if (source[i + each] & 0xC0) != 0x80:
                                error = 5
                        i += more + 1
                    if error:
                        break
                pos += size
            elif op == INT64:
                if second and (number > 2147483647 or number < -2147483648):
                    error = 4
                    break
                if first and (number < 0 or number >= first):
                    error = 14
                    break
                out64[main_at[node] + at] = number
            elif op == INT32:
                if number > 2147483647 or number < -2147483648:
                    error = 4
                    break
                if first and (number < 0 or number >= first):
                    error = 14
                    break
                out32[main_at[node] + at] = np.int32(number)
            elif op == UNION:
                if number < 0 or number >= second:
                    error = 3
                    break
                pc = table[first + number]
            elif op == DOUBLE:
                if end - pos < 8:
                    error = 1
                    break
                number = np.int64(0)
                for i in range(8):
                    number |= np.int64(source[pos + i]) << (8 * i)
                out64[main_at[node] + at] = number
                pos += 8
            elif op == FLOAT or op == FLOAT_AS_DOUBLE:
                if end - pos < 4:
                    error = 1
                    break
                number = np.int64(0)
                for i in range(4):
                    number |= np.int64(source[pos + i]) << (8 * i)
                if op == FLOAT:
                    out32[main_at[node] + at] = np.int32(number)
                else:
                    out32[2 * (main_at[node] + at)] = np.int32(number)
                    doubles[main_at[node] + at] = np.float64(floats[2 * (main_at[node] + at)])
                pos += 4
            elif op == BOOLEAN:
                if pos >= end:
                    error = 1
                    break
                if source[pos] > 1:
                    error = 7
                    break
                out8[main_at[node] + at] = source[pos]
                pos += 1
            elif op == MILLIS:
                if number > 9223372036854775 or number < -9223372036854775:
                    error = 10
                    break
                out64[main_at[node] + at] = number * 1000
            elif op == ENUM:
                if number < 0 or number >= second:
                    error = 3
                    break
                begin = table[first + 2 * number]
                size = table[first + 2 * number + 1]
                APPEND_BYTES(constants, begin, size)
            elif op == NULL:
                if null_at[node] >= 0:
                    out8[null_at[node] + at] = 0
                kind = kinds[node]
                if kind == BYTE:
                    out8[main_at[node] + at] = 0
                elif kind == WORD:
                    out32[main_at[node] + at] = 0
                elif kind == LONG:
                    out64[main_at[node] + at] = 0
                elif kind == DECIMAL:
                    out64[main_at[node] + 2 * at] = 0
                    out64[main_at[node] + 2 * at + 1] = 0
                elif kind == VARIABLE:
                    out32[main_at[node] + at + 1] = used[node]
                elif kind == LIST:
                    out32[main_at[node] + at + 1] = count[second]
            elif op == NEXT:
                if loops[depth] == 0:
                    READ_LONG(number)
                    if number < 0:
                        number = -number
                        READ_LONG(size)
                        if number < 0 or size < 0:
                            error = 2
                            break
                    if number == 0:
                        depth -= 1
                        pc = first
                        continue
                    if second == 0:
                        if number > empty_items:
                            error = 8
                            break
                        empty_items -= number
                    elif number > (end - pos) // second:
                        error = 2
                        break
                    loops[depth] = number
                loops[depth] -= 1
            elif op == JUMP:
                pc = first
            elif op == LOOP:
                depth += 1
                loops[depth] = 0
            elif op == LIST_END:
                if count[second] > 2147483647:
                    error = 11
                    break
                out32[main_at[node] + at + 1] = count[second]
            elif op == SIZED_DECIMAL or op == FIXED_DECIMAL:
                size = number if op == SIZED_DECIMAL else second
                if size < 0 or size > end - pos:
                    error = 2
                    break
                sign = np.int64(0)
                if size > 0 and source[pos] >= 128:
                    sign = np.int64(-1)
                upper = sign
                lower = sign
                fits = True
                for i in range(size):
                    byte = np.int64(source[pos + i])
                    if size - i > 16:
                        fits = fits and byte == (sign & 255)
                    else:
                        upper = (upper << 8) | ((lower >> 56) & 255)
                        lower = (lower << 8) | byte
                if size > 16 and (upper < 0) != (sign < 0):
                    fits = False
                positive_upper = upper
                positive_lower = lower
                if upper < 0:
                    positive_lower = -lower
                    positive_upper = ~upper
                    if lower == 0:
                        positive_upper += 1
                if positive_upper < 0 or positive_upper > table[first]:
                    fits = False
                if positive_upper == table[first] and (positive_lower ^ least) >= (table[first + 1] ^ least):
                    fits = False
                if not fits:
                    error = 6
                    break
                out64[main_at[node] + 2 * at] = lower
                out64[main_at[node] + 2 * at + 1] = upper
                pos += size
            elif op == LONG_AS_FLOAT or op == LONG_AS_DOUBLE:
                if second and (number > 2147483647 or number < -2147483648):
                    error = 4
                    break
                if op == LONG_AS_FLOAT:
                    floats[main_at[node] + at] = np.float32(number)
                else:
                    doubles[main_at[node] + at] = np.float64(number)
            elif op == FIXED_UUID:
                if end - pos < 16:
                    error = 1
                    break
                filled = used[node]
                if filled + 36 > data_room[node]:
                    grow = 2
                    state[2] = filled + 36
                    break
                into = data_at[node] + filled
                for i in range(16):
                    if i == 4 or i == 6 or i == 8 or i == 10:
                        out8[into] = 45
                        into += 1
                    for digit in (np.int64(source[pos + i]) >> 4, np.int64(source[pos + i]) & 15):
                        out8[into] = digit + (48 if digit < 10 else 87)
                        into += 1
                used[node] = filled + 36
                out32[main_at[node] + at + 1] = filled + 36
                pos += 16
            elif op == SKIP or op == SKIP_SIZED:
                size = number if op == SKIP_SIZED else first
                if size < 0 or size > end - pos:
                    error = 2
                    break
                pos += size
            elif op == CONSTANT:
                back = pos
                back_end = end
                source = constants
                pos = first
                end = second
            elif op == RESUME:
                source = data
                pos = back
                end = back_end
            elif op == FAIL:
                node = first
                error = second
                break
            elif op == END:
                node = np.int64(-1)
                error = 13 if pos < end else 0
                break
        if error or grow:
            for i in range(nodes):
                count[i] = saved[i]
                used[i] = saved[nodes + i]
        if grow:
            state[0] = row
            state[1] = node
            return grow
        errors[row] = error + ((node + 1) << 8) if error else 0
        row += 1
    state[0] = row
    return 0
"""


@cache
def compiled() -> Any:
    """The loop as machine code: compiled in some seconds, or loaded from numba's cache."""
    from numba import types

    data = types.Array(types.uint8, 1, "C", readonly=True)
    longs = types.Array(types.int64, 1, "C", readonly=True)
    code = types.Array(types.int64, 2, "C", readonly=True)
    own, words = types.int64[::1], types.int32[::1]
    signature = types.int64(
        *(data, longs, longs, longs, data, code, longs, longs),
        *(own, own, own, own, own, own, own, own, own, own),
        *(types.uint8[::1], words, own, types.float32[::1], types.float64[::1]),
    )
    source = expand_macros(_SOURCE, _MACROS)
    names = {**OP, "LONGS": LONGS, "EMPTY_ITEMS": EMPTY_ITEMS, "DEEPEST_LOOP": DEEPEST_LOOP}
    kinds = {"BYTE": BYTE, "WORD": WORD, "LONG": LONG, "DECIMAL": DECIMAL, "VARIABLE": VARIABLE, "LIST": LIST}
    return compile_loop(
        source, __file__, __name__, signature, {"nogil": True, "cache": True}, **names, **kinds
    )
