"""Memory for large pieces of data, used again as soon as nobody looks at it any more.

Fresh memory has to be found, cleared and touched page by page: for a fetch of a mebibyte that takes as long
as receiving it. Whoever gets a piece may keep views of it for as long as they like; there is nothing to give
back. A ``bytearray`` knows whether there are views of it, as it cannot change its size then.
"""

from __future__ import annotations

from typing import Final

_KEPT_BYTES: Final = 16 << 20
"""So much is kept for later at most; pieces that are alive are not counted, as they are somebody's."""
_KEPT_PIECES: Final = 16
_STEP: Final = 64 * 1024
"""Sizes are rounded up to this, as pieces that follow one another are of nearly the same size."""
_MAX_WASTE: Final = 2
"""Memory that is so many times larger than a piece is not used for it: somebody may keep the piece."""


class RecycledMemory:
    """Threads may share one: each looks only at what it has taken out of the list, which takes one step."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, tuple(self._kept)))

    def take(self, size: int) -> memoryview:
        """So many bytes, whose content is undefined. They are used again when no view of them is left."""
        for _ in range(len(self._kept)):
            try:
                memory = self._kept.pop(0)  # the longest unused come first, and leave first
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
    """Whether there is no view of this memory."""
    try:
        memory.pop()
    except BufferError:
        return False
    memory.append(0)
    return True
