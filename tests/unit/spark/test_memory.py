"""Freed memory that is kept: the next task does not have the system make its pages anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from millstream.spark.reading.memory import keep_freed
if sys.argv[1] == "kept":
    assert keep_freed()
def use():
    for _ in range(20):
        held = [bytearray(b"x") * (20 << 20), bytearray(b"x") * (12 << 20)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library can be told")
def test_pages_are_made_once() -> None:
    assert faults("kept") * 20 < faults("as it is")
