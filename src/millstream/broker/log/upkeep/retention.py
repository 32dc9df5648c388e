"""Decides which segments retention deletes, without touching files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.broker.log.config import LogConfig


class Aged(Protocol):
    """What retention needs to know of a segment."""

    @property
    def size(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def latest_ms(self) -> int: ...


def expired(segments: Sequence[Aged], config: LogConfig, start_offset: int, now_ms: int) -> int:
    """Return how many of the oldest segments to delete, perhaps including the active one.

    Segments before ``start_offset`` are always deleted. With the delete policy so are those whose newest
    record is older than retention.ms, and those without which the log still has retention.bytes.
    """
    size = sum(segment.size for segment in segments)
    count = 0
    for segment in segments:
        if not (segment.next_offset <= start_offset or _is_expired(segment, config, size, now_ms)):
            break
        size -= segment.size
        count += 1
    return count


def _is_expired(segment: Aged, config: LogConfig, log_size: int, now_ms: int) -> bool:
    if not config.deletes or not segment.size:
        return False
    if config.retention_bytes >= 0 and log_size - segment.size >= config.retention_bytes:
        return True
    return config.retention_ms >= 0 and now_ms - segment.latest_ms > config.retention_ms
