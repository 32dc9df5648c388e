"""The compiled CRC-32C agrees with google-crc32c, wherever the data lies and however long it is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from google_crc32c import value

from millstream.wire.records.checksum_loop import compile_checksum_loop

if TYPE_CHECKING:
    from millstream.wire.records.checksum_loop import ChecksumLoop


@pytest.fixture(scope="module")
def loop() -> ChecksumLoop:
    found = compile_checksum_loop({"cache": True, "nogil": True})
    if found is None:
        pytest.skip("this processor has no instruction for it")
    return found


def count(loop: ChecksumLoop, data: bytes, *batches: tuple[int, int, int]) -> int:
    starts, ends, crcs = np.array(batches, np.int64).T.copy()
    return loop(np.frombuffer(data, np.uint8), starts, ends, crcs)


SIZES = [*range(20), 511, 512, 513, 1535, 1536, 1537, 1543, 1544, 3071, 3072, 3080, 16_384, 100_001]


@pytest.mark.parametrize("size", SIZES)
def test_every_length_and_place(loop: ChecksumLoop, size: int) -> None:
    data = random.Random(size).randbytes(size + 16)
    for start in range(9):
        crc = value(data[start : start + size])
        assert count(loop, data, (start, start + size, crc)) == 1
        for bit in (0, 1, 31):
            assert count(loop, data, (start, start + size, crc ^ (1 << bit))) == 0


def test_each_bit_counts(loop: ChecksumLoop) -> None:
    data = random.Random(1).randbytes(1600)
    crc = value(data)
    for place in range(0, 1600, 7):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        assert count(loop, bytes(damaged), (0, 1600, crc)) == 0


def test_the_first_harmed_batch_ends_it(loop: ChecksumLoop) -> None:
    data = bytes(100)
    good, bad = (0, 50, value(bytes(50))), (0, 50, 1)
    assert count(loop, data, good, good, bad, good) == 2
    assert count(loop, data, bad) == 0


@pytest.mark.parametrize("place", [(-1, 5), (0, 101), (99, 2**62), (-(2**62), 100)])
def test_nothing_is_read_outside_the_data(loop: ChecksumLoop, place: tuple[int, int]) -> None:
    assert count(loop, bytes(100), (*place, 0)) == 0


def test_where_the_processor_is_chosen_by_hand_there_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It might be one that lacks the instruction, and the compiler would end the process."""
    from numba import config

    monkeypatch.setattr(config, "CPU_NAME", "generic", raising=False)
    assert compile_checksum_loop({}) is None
    monkeypatch.undo()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert compile_checksum_loop({}) is None
