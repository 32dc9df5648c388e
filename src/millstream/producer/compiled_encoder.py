"""Loads the compiled encoder in the background."""

from __future__ import annotations

from typing import Final

from millstream.client.background_compile import BackgroundLoad
from millstream.producer.core.encoder import encoder
from millstream.wire.records.encode import load

background: Final = BackgroundLoad(encoder, load, "encoder")
