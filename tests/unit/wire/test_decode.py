"""The compiled decoder: the same records as the plain one, or the same refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.records.decode import DecoderKernels, expand, load
from tests import fuzz_decode


@pytest.fixture(scope="module")
def kernels() -> DecoderKernels:
    return load()


def test_three_thousand_damaged_batches_are_decoded_alike_or_refused_by_both(kernels: DecoderKernels) -> None:
    accepted = sum(fuzz_decode.check(kernels, seed) for seed in range(3_000))
    assert 500 < accepted < 2_500, "the damage is neither too light nor too heavy to show anything"


@pytest.mark.parametrize("varint", [b"\x80" * 4 + b"\x10", b"\xff" * 4 + b"\x0f", b"\x80" * 5 + b"\x00"])
def test_varints_at_the_limits_of_32_bits(kernels: DecoderKernels, varint: bytes) -> None:
    good = encode_batch([RecordData(0, 0, None, b"v")])
    _both(kernels, good[:61] + varint + good[62:])
    _both(kernels, good[:64] + varint + good[65:])


@pytest.mark.parametrize("last", range(4))
def test_varlongs_at_the_limit_of_64_bits(kernels: DecoderKernels, last: int) -> None:
    good = encode_batch([RecordData(0, 0, None, b"v")])
    body = good[62:63] + b"\xfe" + b"\xff" * 8 + bytes([last]) + good[64:]
    _both(kernels, good[:61] + bytes([2 * len(body)]) + body)


def test_an_over_long_varint_is_fine(kernels: DecoderKernels) -> None:
    good = encode_batch([RecordData(0, 0, None, b"v")])
    body = good[62:63] + b"\x80\x80\x00" + good[64:]
    assert _both(kernels, good[:61] + bytes([2 * len(body)]) + body) is not None


def test_a_timestamp_that_overflows_is_refused(kernels: DecoderKernels) -> None:
    good = encode_batch([RecordData(0, 0, None, b"v"), RecordData(1, 1, None, b"w")])
    assert _both(kernels, good[:27] + (2**63 - 1).to_bytes(8, "big") + good[35:]) is None


def _both(kernels: DecoderKernels, body: bytes) -> list[RecordData] | None:
    batch = body[:8] + (len(body) - 12).to_bytes(4, "big") + body[12:]
    found = fuzz_decode.compiled(kernels, batch)
    assert found == fuzz_decode.plain(batch)
    return found


def test_every_varint_is_written_out() -> None:
    text = expand("def f(data, at, end):\n    VARINT(size, end)\n    return size\n")
    assert "VARINT" not in text and "size = np.int64" in text
    compile(text.replace("FAULT", "pass"), "f", "exec")


def test_it_works_where_no_compiled_code_can_be_kept(tmp_path: Path) -> None:
    """A cache directory below a file cannot be made, whoever runs this."""
    obstacle = tmp_path / "file"
    obstacle.touch()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(obstacle / "cache")}
    code = (
        "from millstream.wire.records import field_loops, jit; "
        "print(jit.compile_loop(field_loops._MEASURE, field_loops.__file__, 'decode', None, {'cache': True}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "measure" in done.stdout
