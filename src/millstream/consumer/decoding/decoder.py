"""The compiled decoder that all consumers of a process share, once it is loaded.

A consumer begins with the plain decoder. After some volume the compiled one is loaded in the background (see
``compiled_decoder``) and takes over when it is ready.
"""

from __future__ import annotations

from typing import Final

from millstream.wire.records.decode import DecoderKernels
from millstream.wire.records.jit import Loops

_VOLUME_BYTES: Final = 256 * 1024
"""Loaded after some 10 ms of decoding in plain Python."""


class Decoder(Loops[DecoderKernels]):
    """The compiled loops, if they are loaded."""

    def __init__(self) -> None:
        super().__init__(_VOLUME_BYTES)

    def begin(self) -> bool:
        """A poll begins to decode: start loading if there was volume; returns whether it is loaded.

        Not called earlier: the import of numba would compete for the processor with the first poll.
        """
        return self.ready(1) is not None


decoder: Final = Decoder()


def kernels(volume: int = 0) -> DecoderKernels | None:
    """The compiled loops, if they are loaded. ``volume``: how many bytes are about to be decoded."""
    if decoder.kernels is None:
        decoder.seen_bytes += volume
    return decoder.kernels
