"""The compression codecs of record batches: each is one declaration in ``Codec``, below its functions.

Producer settings, topic settings and the command line read their names and levels from there.
``decompress`` never holds more than ``max_bytes`` of output and a small constant, whatever its input claims.
pyarrow does snappy, lz4 and zstd; it is imported on first use because that takes a quarter of a second.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from millstream.errors import CorruptBatch
from millstream.settings import Integer, setting

if TYPE_CHECKING:
    from millstream.wire.records.primitives import Buffer


class DecompressedTooLarge(CorruptBatch):
    """Compressed records take more memory than the reader allows."""


def _too_large(codec: str, max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec} data decompresses to more than {max_bytes} bytes")


def _damaged(codec: str, error: object) -> CorruptBatch:
    return CorruptBatch(f"damaged {codec} data: {error}")


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

_GZIP_DEFAULT = -1
_GZIP_FORMAT = 31  # a gzip header around a 32 KiB window, in zlib's numbering
_GZIP_MAX_MEMBERS = 64  # clients write one; each further one copies the rest of the input


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(_GZIP_DEFAULT if level is None else level, zlib.DEFLATED, _GZIP_FORMAT)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    out = BytesIO()
    rest: Buffer = data
    for _ in range(_GZIP_MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP_FORMAT)
        try:
            out.write(member.decompress(rest, max_bytes + 1 - out.tell()))
        except zlib.error as error:
            raise _damaged("gzip", error) from None
        if out.tell() > max_bytes:
            raise _too_large("gzip", max_bytes)
        if not member.eof:
            raise _damaged("gzip", "it is cut short")
        rest = member.unused_data
        if not rest:
            return out.getvalue()
    raise _damaged("gzip", f"more than {_GZIP_MAX_MEMBERS} members")


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
        raise _damaged("snappy", "it is cut short")
    while position < len(view):
        if position + 4 > len(view):
            raise _damaged("snappy", "it is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise _damaged("snappy", f"a block of {length} bytes, {len(view) - position} are left")
        out.write(_unsnappy_block(view[position : position + length], max_bytes - out.tell()))
        position += length
    return out.getvalue()


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _snappy_size(block)
    if size > max_bytes:
        raise _too_large("snappy", max_bytes)
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise _damaged("snappy", f"{len(block)} bytes cannot hold {size}")
    try:
        return bytes(_arrow_codec("snappy", None).decompress(block, size, asbytes=True))
    except OSError as error:
        raise _damaged("snappy", error) from None


def _snappy_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _damaged("snappy", "it has no length")


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


# -- zstd

_ZSTD_DEFAULT = 3


def _zstd(data: Buffer, level: int | None) -> bytes:
    codec = _arrow_codec("zstd", _ZSTD_DEFAULT if level is None else level)
    return bytes(codec.compress(data, asbytes=True))


# -- streams of frames: lz4 and zstd

_FIRST_READ_BYTES = 64 * 1024
_FIRST_READ_RATIO = 8


def _read_stream(codec: str, data: Buffer, max_bytes: int) -> bytes:
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


def _read_into(codec: str, data: Buffer, room: memoryview) -> int:
    if not len(data):
        raise _damaged(codec, "it is empty")
    try:
        with _open_stream(codec, data) as stream:
            return int(stream.readinto(room))
    except OSError as error:
        raise _damaged(codec, error) from None


def _open_stream(codec: str, data: Buffer) -> Any:
    arrow = _pyarrow()
    return arrow.CompressedInputStream(arrow.BufferReader(arrow.py_buffer(data)), codec)


# -- the declarations


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a codec, fastest to smallest; the default may lie outside, as -1 for gzip does."""

    fastest: int
    smallest: int
    default: int
    fast_default: bool = False
    """The default stands for a fast mode without a level, as Kafka's 9 does for lz4."""

    def __call__(self, value: object) -> int:
        """Read a level from a setting; raises ValueError, saying what it must be."""
        level = Integer(min(self.fastest, self.default), self.smallest)(value)
        if level < self.fastest and level != self.default:
            raise ValueError(f"must be {self.fastest} to {self.smallest}, or {self.default} for the default")
        return level


class Codec(IntEnum):
    """How the records of a batch are compressed. The number is the low three bits of its attributes.

    A codec is: its number, the function that compresses, the one that decompresses (None where pyarrow reads
    the format as a stream) and its levels, if it has any. Its name in settings is ``label``.
    """

    NONE = 0, _store, _unstore
    GZIP = 1, _gzip, _gunzip, Levels(1, 9, default=_GZIP_DEFAULT)
    SNAPPY = 2, _snappy, _unsnappy
    LZ4 = 3, _lz4, None, Levels(1, 17, default=9, fast_default=True)
    ZSTD = 4, _zstd, None, Levels(-131_072, 22, default=_ZSTD_DEFAULT)

    def __new__(cls, number: int, *_: object) -> Self:
        codec = int.__new__(cls, number)
        codec._value_ = number
        return codec

    def __init__(
        self,
        _: int,
        compressor: Callable[[Buffer, int | None], bytes],
        decompressor: Callable[[Buffer, int], bytes] | None,
        levels: Levels | None = None,
    ) -> None:
        self.label = self.name.lower()
        self.compressor = compressor
        self.decompressor = decompressor
        self.levels = levels


CODECS: Final = tuple(codec.label for codec in Codec)
"""The names of the codecs in settings."""


def level_setting(codec: Codec) -> Any:
    """Declare the setting of a codec's level."""
    levels = codec.levels
    assert levels is not None, f"{codec.label} has no levels"
    default = f"; {levels.default} is its own default" if levels.default < levels.fastest else ""
    return setting(levels.default, f"{levels.fastest} (fast) to {levels.smallest} (small){default}.")


@dataclass(frozen=True, kw_only=True)
class CompressionLevels:
    """The settings of the codecs' levels, which producers and topics share."""

    compression_gzip_level: Annotated[int, Codec.GZIP.levels] = level_setting(Codec.GZIP)
    compression_lz4_level: Annotated[int, Codec.LZ4.levels] = level_setting(Codec.LZ4)
    compression_zstd_level: Annotated[int, Codec.ZSTD.levels] = level_setting(Codec.ZSTD)

    def level_of(self, codec: Codec) -> int | None:
        """Return the level for ``codec``; None where it has no levels, or a default without a level."""
        if codec.levels is None:
            return None
        level: int = getattr(self, f"compression_{codec.label}_level")
        return None if codec.levels.fast_default and level == codec.levels.default else level


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress into the framing that Kafka's clients expect. Without a level: Kafka's defaults."""
    return codec.compressor(data, level)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Decompress all of ``data``. Raises CorruptBatch when it is damaged or gives more than ``max_bytes``."""
    if codec.decompressor is None:
        return _read_stream(codec.label, data, max_bytes)
    return codec.decompressor(data, max_bytes)


def decompress_into(codec: Codec, data: Buffer, room: memoryview) -> int:
    """Decompress all of ``data`` into ``room`` and return the size. Raises CorruptBatch.

    ``room`` must be larger than the result: data that fills it may have a rest that was not read.
    """
    if codec.decompressor is None:
        size = _read_into(codec.label, data, room)
    else:
        plain = codec.decompressor(data, len(room))
        size = len(plain)
        room[:size] = plain
    if size >= len(room):
        raise _too_large(codec.label, len(room) - 1)
    return size
