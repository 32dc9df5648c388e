"""Memory for large frames, reused as soon as no view of it is left.

New memory must be found, cleared and touched page by page: for a fetch of a mebibyte that takes as long as
receiving it. Views may be kept for any time, and need not be given back: a ``bytearray`` with views cannot
change its size, which shows whether it is in use.
"""

from __future__ import annotations

from typing import Final

_KEPT_BYTES: Final = 16 << 20
"""The most memory that is kept for reuse, whether it is in use or not."""
_KEPT_PIECES: Final = 16
_STEP: Final = 64 * 1024
"""Sizes are rounded up to a multiple of this, because consecutive frames have nearly the same size."""
_MAX_WASTE: Final = 2
"""Memory that is more than this many times larger than needed is not used: its view may be kept long."""


class RecycledMemory:
    """A pool of memory. Threads may share one: each checks only what it took out of the list, atomically."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, tuple(self._kept)))

    def take(self, size: int) -> memoryview:
        """Return ``size`` bytes with undefined content. They are reused when no view of them is left."""
        for _ in range(len(self._kept)):
            try:
                memory = self._kept.pop(0)  # the oldest first
            except IndexError:  # other threads have taken them all
                break
            fits = size <= len(memory) <= max(_STEP, _MAX_WASTE * size)
            view = memoryview(memory)[:size] if fits and _is_unseen(memory) else None
            self._kept.append(memory)
            if view is not None:
                return view
        memory = bytearray(-(-size // _STEP) * _STEP)
        view = memoryview(memory)[:size]
        self._keep(memory)
        return view

    def _keep(self, memory: bytearray) -> None:
        if len(memory) > _KEPT_BYTES:
            return
        self._kept.append(memory)
        while len(self._kept) > _KEPT_PIECES or self.kept_bytes > _KEPT_BYTES:
            self._kept.pop(0)


def _is_unseen(memory: bytearray) -> bool:
    """Return whether there is no view of this memory."""
    try:
        memory.pop()
    except BufferError:
        return False
    memory.append(0)
    return True
