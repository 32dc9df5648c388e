"""Which segments retention takes: a decision over values, without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.broker.log.config import LogConfig


class Aged(Protocol):
    """What retention looks at."""

    @property
    def size(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def latest_ms(self) -> int: ...


def expired(segments: Sequence[Aged], config: LogConfig, start_offset: int, now_ms: int) -> int:
    """How many of the oldest segments are to be deleted, the active one perhaps included.

    Whole segments go, oldest first: those before ``start_offset`` always, and with the delete policy those
    whose newest record is older than retention.ms, and those without which the log still has retention.bytes.
    """
    size = sum(segment.size for segment in segments)
    count = 0
    for segment in segments:
        if not (segment.next_offset <= start_offset or _outlived(segment, config, size, now_ms)):
            break
        size -= segment.size
        count += 1
    return count


def _outlived(segment: Aged, config: LogConfig, log_size: int, now_ms: int) -> bool:
    if not config.deletes or not segment.size:
        return False
    if config.retention_bytes >= 0 and log_size - segment.size >= config.retention_bytes:
        return True
    return config.retention_ms >= 0 and now_ms - segment.latest_ms > config.retention_ms
