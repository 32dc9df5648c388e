"""Which encoder is at work: the compiled one if it is there. All producers of a process share it."""

from __future__ import annotations

from typing import Final

from millstream.wire.records.encode import Kernels
from millstream.wire.records.jit import Loops

encoder: Final[Loops[Kernels]] = Loops(volume_bytes=1 << 20)
"""Loaded after some 10 ms of encoding in plain Python."""
