"""Which decoder is at work: the compiled one if it is there, and whether it is worth having.

Importing numba takes half a second, and compiling, once for each installation, a few. So a consumer begins
with the plain decoder. When there is volume, the compiled one is loaded in the background (``compiling``) and
takes over when it is ready. All consumers of a process share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.wire.records.decode import Kernels

_VOLUME_BYTES: Final = 256 * 1024
"""So much is decoded plainly before the compiled decoder is worth loading: some 10 ms of work."""


class Decoder:
    """The state that the consumers of a process share; each change is a single assignment."""

    def __init__(self) -> None:
        self.kernels: Kernels | None = None
        self.seen_bytes = 0
        """How much was decoded plainly."""
        self.load: Callable[[], None] | None = None
        """What to call when there is volume; it may be called more than once."""

    def begin(self) -> bool:
        """Records are about to be decoded: whether by compiled loops; if not, see whether they are worth it.

        Only here, and not as soon as there is volume: whoever waits for a first record would share the
        processor with the import of numba.
        """
        if self.kernels is None and self.seen_bytes > _VOLUME_BYTES and self.load is not None:
            self.load()
        return self.kernels is not None


decoder: Final = Decoder()


def kernels(volume: int = 0) -> Kernels | None:
    """The compiled loops, if they are there. ``volume``: the bytes that are about to be decoded."""
    if decoder.kernels is None:
        decoder.seen_bytes += volume
    return decoder.kernels
