"""A compiled scan over JSON values: finds those that pyarrow can parse as a block, and copies their text.

Values that hold exactly one object, judging by brackets and quotes, and whose fields begin like the types of
their columns, are copied one after the other, separated by newlines. All others are parsed one by one. So
pyarrow only gets lines that it rarely refuses: it is fast, but it takes several documents in a line for
several rows, skips empty lines, accepts NaN, fails on a lone null, and refuses a whole block for one bad
line.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.spark.load.pipeline.formats.json_rows import DEEPEST

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int32]
    Limits = NDArray[np.uint64]

# What a byte may be outside of a string.
_NOTHING, _PART, _SPACE, _QUOTE, _OPEN, _CLOSE = range(6)
# What a column takes, by how its JSON begins.
_ANY, _BOOLEAN, _INTEGER, _NUMBER, _STRING, _ARRAY, _OBJECT, _DECIMAL = range(8)


def _classes() -> Bytes:
    table = np.full(256, _NOTHING, np.uint8)
    for signs, found in (
        (b"truefalsn0123456789+-.eE:,", _PART),
        (b" \t\r\n", _SPACE),
        (b'"', _QUOTE),
        (b"{[", _OPEN),
        (b"}]", _CLOSE),
    ):
        for sign in signs:
            table[sign] = found
    return table


def _beginnings() -> NDArray[np.uint16]:
    """For each byte, a bit for each kind of column whose values may begin with it; null fits every kind."""
    table = np.zeros(256, np.uint16)
    kinds = {
        b"tf": (_BOOLEAN,),
        b"-0123456789": (_INTEGER, _NUMBER, _DECIMAL),
        b'"': (_STRING, _DECIMAL),
        b"[": (_ARRAY,),
        b"{": (_OBJECT,),
        b"n": (_BOOLEAN, _INTEGER, _NUMBER, _STRING, _ARRAY, _OBJECT, _DECIMAL),
    }
    for signs, found in kinds.items():
        for sign in signs:
            table[sign] = sum(1 << kind for kind in found)
    return table


CLASSES: Final = _classes()
BEGINNINGS: Final = _beginnings()


def _scan(  # noqa: C901, PLR0912, PLR0915 - one loop on purpose: calls would cost more than all the rest
    data: Bytes,
    offsets: Ints,
    classes: Bytes,
    beginnings: NDArray[np.uint16],
    names: Bytes,
    name_starts: Ints,
    kinds: Bytes,
    limits: Limits,
    deepest: int,
    plain: Bytes,
    out: Bytes,
    starts: Ints,
) -> int:
    """Copy the plain values to ``out``, and their starts to ``starts``; returns their number.

    ``plain`` is set to 1 for a plain value in ASCII, 2 for one with other bytes, 0 for the rest. Columns are
    given by name, kind and, for integers, the largest value.
    """
    columns = len(kinds)
    written = 0
    count = 0
    for row in range(len(offsets) - 1):
        at, end = offsets[row], offsets[row + 1]
        begin = written
        depth = 0
        done = False
        good = True
        bits = np.uint8(0)
        found = np.uint64(0)  # the columns that were there, a bit each
        column = -1  # that of the field at hand
        guess = 0  # fields mostly come in the order of the columns
        at_name = False
        at_value = False
        while at < end:
            byte = data[at]
            kind = classes[byte]
            if kind == _SPACE:  # also a newline, which the block reader would take for the end of a line
                out[written] = 32
                written += 1
                at += 1
                continue
            if at_value:
                at_value = False
                if column >= 0:
                    bit = np.uint64(1) << np.uint64(column & 63)
                    if not (beginnings[byte] >> kinds[column]) & 1 or (column < 64 and found & bit):
                        good = False
                        break
                    found |= bit
                    if kinds[column] == _INTEGER and byte != 110:
                        if byte == 45:
                            out[written] = byte
                            written += 1
                            at += 1
                        number = np.uint64(0)
                        digits = 0
                        while at < end and np.uint8(data[at] - 48) < 10:
                            number = number * np.uint64(10) + np.uint64(data[at] - 48)
                            out[written] = data[at]
                            written += 1
                            at += 1
                            digits += 1
                        if digits > 19 or number > limits[column]:
                            good = False
                            break
                        if at < end and (data[at] == 46 or data[at] | 32 == 101):  # . e E
                            good = False
                            break
                        continue
            if kind == _QUOTE:
                out[written] = byte
                written += 1
                at += 1
                opened = at
                closed = False
                escaped = False
                while at < end:
                    byte = data[at]
                    bits |= byte
                    out[written] = byte
                    written += 1
                    at += 1
                    if byte == 34:
                        closed = True
                        break
                    if byte < 32:
                        break
                    if byte == 92 and at < end:
                        escaped = True
                        bits |= data[at]
                        out[written] = data[at]
                        written += 1
                        at += 1
                if not closed or depth == 0 or (at_name and escaped):
                    good = False
                    break
                if at_name:
                    at_name = False
                    column = -1
                    length = at - 1 - opened
                    for step in range(columns):
                        candidate = guess + step
                        if candidate >= columns:
                            candidate -= columns
                        start = name_starts[candidate]
                        if name_starts[candidate + 1] - start != length:
                            continue
                        same = True
                        for place in range(length):
                            if names[start + place] != data[opened + place]:
                                same = False
                                break
                        if same:
                            column = candidate
                            guess = candidate + 1
                            break
                continue
            if kind == _OPEN:
                if done or depth == deepest or (depth == 0 and byte != 123):
                    good = False
                    break
                depth += 1
                at_name = depth == 1
            elif kind == _CLOSE:
                depth -= 1
                if depth < 0:
                    good = False
                    break
                done = depth == 0
            elif kind == _NOTHING or depth == 0:
                good = False
                break
            elif depth == 1:
                at_value = byte == 58
                at_name = byte == 44
            out[written] = byte
            written += 1
            at += 1
        if good and done:
            plain[row] = 1 + (bits >> 7)
            out[written] = 10
            written += 1
            starts[count] = begin
            count += 1
        else:
            plain[row] = 0
            written = begin
    starts[count] = written
    return count


@cache
def compiled() -> Any:
    """The loop as machine code: compiled in a second or two, or loaded from numba's cache."""
    import numba
    from numba import types

    def array(kind: Any) -> Any:
        return types.Array(kind, 1, "C", readonly=True)

    data, ints = array(types.uint8), array(types.int32)
    out = types.uint8[::1]
    signature = types.int64(
        *(data, ints, data, array(types.uint16), data, ints, data, array(types.uint64)),
        *(types.int64, out, out, types.int32[::1]),
    )
    njit: Any = numba.njit
    try:
        return njit(signature, nogil=True, cache=True)(_scan)
    except (RuntimeError, OSError):  # no writable cache directory: compile for this process only
        return njit(signature, nogil=True)(_scan)


class Scanner:
    """Scans blocks of values for a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        names = [field.name.encode() for field in schema]
        lengths = [0, *map(len, names)]
        self._columns = (
            _frozen(np.frombuffer(b"".join(names), np.uint8)),
            _frozen(np.cumsum(lengths, dtype=np.int32)),
            _frozen(np.array([_kind(field.type) for field in schema], np.uint8)),
            _frozen(np.array([_limit(field.type) for field in schema], np.uint64)),
        )

    def scan(self, values: pa.BinaryArray) -> Scanned:
        _, offsets_buffer, buffer = values.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
        data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
        plain = np.empty(len(values), np.uint8)
        text = np.empty(int(offsets[-1] - offsets[0]) + len(values), np.uint8)
        starts = np.empty(len(values) + 1, np.int32)
        count = compiled()(
            _frozen(data), offsets, CLASSES, BEGINNINGS, *self._columns, DEEPEST, plain, text, starts
        )
        return Scanned(text, starts, count, plain)


class Scanned:
    """The plain values of a block: their text, and their indexes in the block."""

    def __init__(self, text: Bytes, starts: Ints, count: int, plain: Bytes) -> None:
        self.text = text
        self.starts = starts
        self.count = count
        self.places = np.flatnonzero(plain)
        self.others = np.flatnonzero(plain == 0)
        self.beyond_ascii = np.flatnonzero(plain == 2)


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


for _table in (CLASSES, BEGINNINGS):
    _frozen(_table)


def _kind(kind: Any) -> int:
    import pyarrow as pa

    checks = {
        _BOOLEAN: pa.types.is_boolean,
        _INTEGER: pa.types.is_integer,
        _NUMBER: pa.types.is_floating,
        _ARRAY: pa.types.is_list,
        _OBJECT: pa.types.is_struct,
        _DECIMAL: pa.types.is_decimal,
    }
    return next((found for found, matches in checks.items() if matches(kind)), _STRING)


def _limit(kind: Any) -> int:
    import pyarrow as pa

    return (1 << (kind.bit_width - 1)) - 1 if pa.types.is_integer(kind) else 0
