"""The four compression codecs of record batches, with bounded decompression.

``decompress`` never holds more than ``max_bytes`` of output and a small constant, whatever its input claims.
pyarrow does snappy, lz4 and zstd; it is imported on first use because that takes a quarter of a second.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from io import BytesIO
from typing import Any

from millstream.errors import CorruptBatch
from millstream.wire.records.primitives import Buffer


class Codec(IntEnum):
    """How the records of a batch are compressed; the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress into the framing that Kafka's clients expect. Without a level: Kafka's defaults."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Decompress all of ``data``. Raises CorruptBatch when it is damaged or gives more than ``max_bytes``."""
    return _DECOMPRESSORS[codec](data, max_bytes)


def decompress_into(codec: Codec, data: Buffer, room: memoryview) -> int:
    """Decompress all of ``data`` into memory that has to be larger; returns the size. Raises CorruptBatch.

    Also where the data just fills the room: whether there is more is not looked at.
    """
    if codec in (Codec.LZ4, Codec.ZSTD):
        size = _read_into(codec, data, room)
    else:
        plain = decompress(codec, data, len(room))
        size = len(plain)
        room[:size] = plain
    if size >= len(room):
        raise _too_large(codec, len(room) - 1)
    return size


def _too_large(codec: Codec, max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"{codec.name.lower()} data decompresses to more than {max_bytes} bytes")


def _damaged(codec: Codec, error: object) -> CorruptBatch:
    return CorruptBatch(f"damaged {codec.name.lower()} data: {error}")


@cache
def _pyarrow() -> Any:
    import pyarrow

    return pyarrow


@cache
def _arrow_codec(name: str, level: int | None) -> Any:
    return _pyarrow().Codec(name, compression_level=level)


# -- none


def _store(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _unstore(data: Buffer, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise CorruptBatch(f"{len(data)} bytes of records, more than {max_bytes}")
    return bytes(data)


# -- gzip

_GZIP_FORMAT = 31  # a gzip header around a 32 KiB window, in zlib's numbering
_GZIP_MAX_MEMBERS = 64  # clients write one; each further one copies the rest of the input
_ZLIB_DEFAULT_LEVEL = -1


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(
        _ZLIB_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_FORMAT
    )
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    out = BytesIO()
    rest: Buffer = data
    for _ in range(_GZIP_MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP_FORMAT)
        try:
            out.write(member.decompress(rest, max_bytes + 1 - out.tell()))
        except zlib.error as error:
            raise _damaged(Codec.GZIP, error) from None
        if out.tell() > max_bytes:
            raise _too_large(Codec.GZIP, max_bytes)
        if not member.eof:
            raise _damaged(Codec.GZIP, "it is cut short")
        rest = member.unused_data
        if not rest:
            return out.getvalue()
    raise _damaged(Codec.GZIP, f"more than {_GZIP_MAX_MEMBERS} members")


# -- snappy: xerial's framing of raw blocks, or one raw block

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
# A copy element yields at most 64 bytes from 2: a claim beyond that is a lie, refused before memory is taken.
_SNAPPY_MAX_RATIO = 32


def _snappy(data: Buffer, level: int | None) -> bytes:
    codec = _arrow_codec("snappy", None)
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = codec.compress(view[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    out = BytesIO()
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _damaged(Codec.SNAPPY, "it is cut short")
    while position < len(view):
        if position + 4 > len(view):
            raise _damaged(Codec.SNAPPY, "it is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise _damaged(Codec.SNAPPY, f"a block of {length} bytes, {len(view) - position} are left")
        out.write(_unsnappy_block(view[position : position + length], max_bytes - out.tell()))
        position += length
    return out.getvalue()


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _snappy_size(block)
    if size > max_bytes:
        raise _too_large(Codec.SNAPPY, max_bytes)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise _damaged(Codec.SNAPPY, f"{len(block)} bytes cannot hold {size}")
    try:
        return bytes(_arrow_codec("snappy", None).decompress(block, size, asbytes=True))
    except OSError as error:
        raise _damaged(Codec.SNAPPY, error) from None


def _snappy_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _damaged(Codec.SNAPPY, "it has no length")


# -- lz4: the frame format

# Kafka's Java client reads only frames of independent blocks, and pyarrow links the blocks of long inputs: so
# the frame is built here. The header says: version 1, independent blocks, 64 KiB each, and its own checksum.
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_END = bytes(4)
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_BLOCK_LENGTH = struct.Struct("<I")


def _lz4(data: Buffer, level: int | None) -> bytes:
    codec = _arrow_codec("lz4_raw", level)
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (_LZ4_BLOCK_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_BLOCK_LENGTH.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    return _read_stream(Codec.LZ4, data, max_bytes)


# -- zstd

_ZSTD_DEFAULT_LEVEL = 3


def _zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(
        _arrow_codec("zstd", _ZSTD_DEFAULT_LEVEL if level is None else level).compress(data, asbytes=True)
    )


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    return _read_stream(Codec.ZSTD, data, max_bytes)


# -- streams of frames, as lz4 and zstd have them

_FIRST_READ_BYTES = 64 * 1024
_FIRST_READ_RATIO = 8


def _read_stream(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    if not len(data):
        raise _damaged(codec, "it is empty")
    # Not stream.read(): where that fails, pyarrow never frees what it was going to return.
    room = memoryview(bytearray(min(max(_FIRST_READ_BYTES, _FIRST_READ_RATIO * len(data)), max_bytes + 1)))
    out = BytesIO()
    try:
        with _open_stream(codec, data) as stream:
            while count := stream.readinto(room):
                if count < len(room) and not out.tell():
                    return bytes(room[:count])  # all of it: a stream fills what it is given, or has ended
                out.write(room[:count])
                if out.tell() > max_bytes:
                    raise _too_large(codec, max_bytes)
    except OSError as error:
        raise _damaged(codec, error) from None
    return out.getvalue()


def _read_into(codec: Codec, data: Buffer, room: memoryview) -> int:
    if not len(data):
        raise _damaged(codec, "it is empty")
    try:
        with _open_stream(codec, data) as stream:
            return int(stream.readinto(room))
    except OSError as error:
        raise _damaged(codec, error) from None


def _open_stream(codec: Codec, data: Buffer) -> Any:
    arrow = _pyarrow()
    return arrow.CompressedInputStream(arrow.BufferReader(arrow.py_buffer(data)), codec.name.lower())


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: _store,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: _unstore,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
