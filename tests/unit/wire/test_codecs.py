"""Codecs: round trips, foreign framings, damage, and decompression bombs that stay bounded."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.log.config import LogConfig
from millstream.config import ProducerConfig
from millstream.errors import CorruptBatch
from millstream.wire.records.codecs import Codec, compress, decompress
from tests.waiting import soon_enough

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMIT = 1 << 20
MIXED = b"".join(b"%d:" % number * (number % 7) for number in range(60_000))[:300_000]


@settings(max_examples=60, deadline=None)
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000), repeat=st.integers(1, 200))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    for form in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, form), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_producers_and_topics_have_the_settings_of_a_codec(codec: Codec) -> None:
    chosen: dict[str, object] = {"bootstrap_servers": "localhost:9092", "compression_type": codec.label}
    assert ProducerConfig.from_settings(chosen).compression_type == codec.label
    assert LogConfig.from_properties({"compression.type": codec.label}).codec is codec
    level = f"compression.{codec.label}.level"
    if codec.levels is None:
        assert level.replace(".", "_") not in ProducerConfig.names()
        return
    smallest = codec.levels.smallest
    producer = ProducerConfig.from_settings({**chosen, level: smallest})
    topic = LogConfig.from_properties({level: str(smallest)})
    assert producer.level_of(codec) == topic.level_of(codec) == smallest


@pytest.mark.parametrize("codec", COMPRESSED)
def test_levels_change_size_not_content(codec: Codec) -> None:
    for level in (1, 9):
        assert decompress(codec, compress(codec, MIXED, level), LIMIT) == MIXED
    assert len(compress(codec, MIXED)) < len(MIXED)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_input_form_is_accepted(codec: Codec) -> None:
    packed = compress(codec, MIXED)
    for form in (packed, bytearray(packed), memoryview(b"x" + packed)[1:]):
        assert decompress(codec, form, LIMIT) == MIXED


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, MIXED)
    assert decompress(codec, packed, len(MIXED)) == MIXED
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, packed, len(MIXED) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_refused(codec: Codec) -> None:
    packed = compress(codec, MIXED[:3000])
    # A xerial stream has no end mark: cut behind its header it is whole. The batch's CRC covers it.
    whole = {16} if codec is Codec.SNAPPY else set()
    for length in range(len(packed)):
        if length in whole:
            continue
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length], LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_flipped_bits_never_escape_as_other_errors(codec: Codec) -> None:
    data = MIXED[:400]
    packed = compress(codec, data)
    for position in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[position] ^= 1 << bit
            with suppress(CorruptBatch):
                assert len(decompress(codec, damaged, LIMIT)) <= LIMIT


@settings(max_examples=200, deadline=None)
@given(codec=st.sampled_from(COMPRESSED), data=st.binary(max_size=200))
def test_garbage_is_refused_or_small(codec: Codec, data: bytes) -> None:
    with suppress(CorruptBatch):
        assert len(decompress(codec, data, LIMIT)) <= LIMIT


def test_raw_snappy_as_some_clients_send_it() -> None:
    raw = pyarrow.Codec("snappy").compress(MIXED, asbytes=True)
    assert decompress(Codec.SNAPPY, raw, LIMIT) == MIXED


def test_snappy_lengths_are_checked_before_memory_is_taken() -> None:
    claim = b"\xff\xff\xff\xff\x0f"  # 4 GiB in 5 bytes
    with pytest.raises(CorruptBatch, match="cannot hold"):
        decompress(Codec.SNAPPY, claim + b"\0", 1 << 33)
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, -5) + b"abc"
    with pytest.raises(CorruptBatch, match="a block of -5 bytes"):
        decompress(Codec.SNAPPY, framed, LIMIT)


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    packed = compress(Codec.LZ4, MIXED)
    assert packed[4] & 0x20, "the flag of independent blocks"
    assert pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "lz4").read() == MIXED


def test_lz4_of_linked_blocks_is_read_too() -> None:
    linked = pyarrow.Codec("lz4").compress(MIXED, asbytes=True)
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked, LIMIT) == MIXED


def test_incompressible_lz4_blocks_are_stored() -> None:
    noise = zlib.compress(MIXED, 9)[:100_000]
    packed = compress(Codec.LZ4, noise)
    assert len(packed) < len(noise) + 50
    assert decompress(Codec.LZ4, packed, LIMIT) == noise


def test_concatenated_frames_are_one_stream() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), LIMIT) == b"onetwo"


def test_gzip_is_gzip() -> None:
    assert gzip.decompress(compress(Codec.GZIP, MIXED)) == MIXED
    assert decompress(Codec.GZIP, gzip.compress(MIXED), LIMIT) == MIXED


def test_a_chain_of_empty_gzip_members_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="members"):
        decompress(Codec.GZIP, gzip.compress(b"") * 1000, LIMIT)


_BOMB = """
import resource, sys
from millstream.errors import CorruptBatch
from millstream.wire.records.codecs import Codec, compress, decompress, _pyarrow
_pyarrow()
codec = Codec[sys.argv[1]]
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, 1 << 20)
except CorruptBatch:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_takes_no_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(256 << 20))
    command = [sys.executable, "-c", _BOMB, codec.name]
    grown_kib = int(subprocess.run(command, input=bomb, capture_output=True, check=True, timeout=60).stdout)
    assert grown_kib < 8 << 10, f"{len(bomb)} bytes grew the process by {grown_kib} KiB"


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damaged_data_leaves_no_memory_behind(codec: Codec) -> None:
    data = b"\x00" * 20 + compress(codec, b"hello world " * 40)

    def refuse(times: int) -> None:
        for _ in range(times):
            with pytest.raises(CorruptBatch):
                decompress(codec, data, LIMIT)

    def growth_kib() -> int:
        before = resident_kib()
        refuse(5000)
        return resident_kib() - before

    refuse(500)
    soon_enough(growth_kib, 5000, "KiB")  # one page for each would be four times that
