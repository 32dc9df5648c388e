"""Loads the compiled decoder in the background."""

from __future__ import annotations

from typing import Final

from millstream.client.compiling import BackgroundLoad
from millstream.consumer.kernels import decoder
from millstream.wire.decode import load

background: Final = BackgroundLoad(decoder, load, "decoder")
