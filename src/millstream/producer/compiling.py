"""Loads the compiled encoder in the background."""

from __future__ import annotations

from typing import Final

from millstream.client.compiling import BackgroundLoad
from millstream.producer.kernels import encoder
from millstream.wire.encode import load

background: Final = BackgroundLoad(encoder, load, "encoder")
