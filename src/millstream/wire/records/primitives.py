"""Zigzag varints of the record format. Truncated and over-long encodings raise CorruptBatch."""

from __future__ import annotations

from millstream.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview
"""What decoders accept: any contiguous run of bytes."""

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a signed integer of at most 64 bits."""
    if 0 <= value < _SMALL_LIMIT:
        return _SMALL[value]
    return _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{value} does not fit in 64 bits")
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


# Lengths and deltas are mostly small: a table makes encoding them one lookup.
_SMALL_LIMIT = 4096
_SMALL = [_encode_varint(value) for value in range(_SMALL_LIMIT)]
NULL_LENGTH = _encode_varint(-1)
"""The length that stands for null."""


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag int32; returns the value and the position after it."""
    value, position = _read_zigzag(buffer, position, _MAX_VARINT_BYTES)
    if not INT32_MIN <= value <= INT32_MAX:
        raise CorruptBatch(f"varint before byte {position} does not fit in 32 bits")
    return value, position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag int64; returns the value and the position after it."""
    value, position = _read_zigzag(buffer, position, _MAX_VARLONG_BYTES)
    if not INT64_MIN <= value <= INT64_MAX:
        raise CorruptBatch(f"varlong before byte {position} does not fit in 64 bits")
    return value, position


def _read_zigzag(buffer: Buffer, position: int, max_bytes: int) -> tuple[int, int]:
    if position < 0:
        raise CorruptBatch("varint at a negative position")
    raw = shift = 0
    try:
        for _ in range(max_bytes):
            byte = buffer[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1), position
            shift += 7
    except IndexError:
        raise CorruptBatch(f"varint runs past the end at byte {position}") from None
    raise CorruptBatch(f"varint before byte {position} is longer than {max_bytes} bytes")
