"""The size of lz4 data is what it decompresses to; whatever is odd is left to the decompressor."""

from __future__ import annotations

import random
from collections.abc import Callable

import lz4.frame  # type: ignore[import-untyped]
import numpy as np
import pytest

from millstream.errors import CorruptBatch
from millstream.wire.codecs import Codec, compress, decompress, decompress_exactly
from millstream.wire.lz4_loop import compile_lz4_loop

MOST = 1 << 24
Sizes = Callable[..., list[int]]


@pytest.fixture(scope="module")
def sizes() -> Sizes:
    loop = compile_lz4_loop({"boundscheck": True})

    def of(*frames: bytes, most: int = MOST) -> list[int]:
        ends = np.cumsum([len(frame) for frame in frames])
        starts = ends - [len(frame) for frame in frames]
        found = np.zeros(len(frames), np.int64)
        loop(np.frombuffer(b"".join(frames) or b"\0", np.uint8), starts, ends, most, found)
        result: list[int] = found.tolist()
        return result

    return of


def texts() -> list[bytes]:
    chance = random.Random(3)
    words = [chance.randbytes(5) for _ in range(30)]
    lengths = (1, 14, 15, 16, 18, 19, 20, 255, 270, 1000, 65_535, 65_536, 65_537, 300_000)
    made = [b"".join(chance.choices(words, k=length))[:length] for length in lengths]
    return [*made, *(chance.randbytes(length) for length in lengths), bytes(100_000), b"ab" * 50_000]


def test_the_size_is_that_of_the_data(sizes: Sizes) -> None:
    plain = texts()
    frames = [compress(Codec.LZ4, text) for text in plain]
    assert sizes(*frames) == [len(text) for text in plain]
    for frame, text in zip(frames, plain, strict=True):
        assert decompress_exactly(Codec.LZ4, frame, len(text)) == text


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_frames_of_other_writers(sizes: Sizes, linked: bool, checked: bool) -> None:
    plain = texts()
    frames = [
        lz4.frame.compress(text, block_linked=linked, content_checksum=checked, store_size=False)
        for text in plain
    ]
    assert sizes(*frames) == [len(text) for text in plain]
    for frame, text in zip(frames, plain, strict=True):
        assert decompress_exactly(Codec.LZ4, frame, len(text)) == text


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x04\x22\x4d\x18",
        lz4.frame.compress(b"x" * 100, store_size=True),
        lz4.frame.compress(b"x" * 100, block_checksum=True, store_size=False),
        compress(Codec.LZ4, b"x" * 100) * 2,
        compress(Codec.LZ4, b"x" * 100) + b"\0",
        compress(Codec.LZ4, b"x" * 100)[:-1],
        compress(Codec.ZSTD, b"x" * 100),
    ],
    ids=["empty", "a beginning", "says its size", "blocks checked", "two", "more", "less", "zstd"],
)
def test_what_is_not_one_plain_frame_is_left_alone(sizes: Sizes, frame: bytes) -> None:
    good = compress(Codec.LZ4, b"y" * 50)
    assert sizes(good, frame, good) == [50, -1, 50]


def test_more_than_is_allowed_is_left_alone(sizes: Sizes) -> None:
    frame = compress(Codec.LZ4, bytes(10_000))
    assert sizes(frame, most=10_000) == [10_000]
    assert sizes(frame, most=9_999) == [-1]


def test_damaged_frames_are_refused_by_both_or_decompressed_alike(sizes: Sizes) -> None:
    """Nothing is read outside (the loop is compiled with checks here), and a size is never a wrong one."""
    chance = random.Random(11)
    frames = [compress(Codec.LZ4, text) for text in texts() if len(text) < 2000]
    agreed = 0
    for _ in range(4000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(len(frame))] = chance.choice((0, 1, 15, 16, 127, 240, 255))
        (size,) = sizes(bytes(frame), most=1 << 20)
        if size < 0:
            continue
        try:
            expected = decompress(Codec.LZ4, bytes(frame), 1 << 20)
        except CorruptBatch:
            with pytest.raises(CorruptBatch):
                decompress_exactly(Codec.LZ4, bytes(frame), size)
            continue
        assert decompress_exactly(Codec.LZ4, bytes(frame), size) == expected
        agreed += 1
    assert agreed > 100
