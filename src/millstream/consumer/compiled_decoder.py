"""Loads the compiled decoder on a thread in the background."""

from __future__ import annotations

from typing import Final

from millstream.background_compile import BackgroundLoad
from millstream.consumer.decoding.decoder import decoder
from millstream.wire.records.decode import load

background: Final = BackgroundLoad(decoder, load, "decoder")
