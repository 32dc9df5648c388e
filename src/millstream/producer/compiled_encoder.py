"""The compiled encoder of this process: loaded in the background, or by whoever needs it at once."""

from __future__ import annotations

from typing import Final

from millstream.background_compile import BackgroundLoad
from millstream.producer.core.columns import encoder
from millstream.wire.records.encode import load

background: Final = BackgroundLoad(encoder, load, "encoder")
