"""Compiled code that is kept, or cannot be: whatever lies in the cache, loops are compiled or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = (
    "from millstream.wire.records import field_loops as d, jit; from numba import types; "
    "print(jit.compile_loop(d._MEASURE, d.__file__, 'decode', (types.int32[::1],), {'cache': True}))"
)


def compiled(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_kept_code_that_is_damaged_is_compiled_anew(tmp_path: Path) -> None:
    """A full disk, or a machine that stopped in the middle of writing, leaves such files."""
    assert compiled(NUMBA_CACHE_DIR=str(tmp_path)).returncode == 0
    kept = [file for kind in ("*.nbc", "*.nbi") for file in tmp_path.rglob(kind)]
    assert kept
    for file in kept:
        file.write_bytes(file.read_bytes()[:50])
    done = compiled(NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "measure" in done.stdout


def test_where_nothing_may_be_compiled_the_loops_are_refused() -> None:
    """As loops in Python they would be slower than the plain code, and some of them would not run at all."""
    done = compiled(NUMBA_DISABLE_JIT="1")
    assert "RuntimeError: NUMBA_DISABLE_JIT is set" in done.stderr
