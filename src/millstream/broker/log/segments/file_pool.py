"""Limits how many files of segments are open: cached ones, and those that wait to be synced."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from typing import Protocol

from millstream.broker.log.files import Files, open_file_count

_OPEN_SEGMENTS = 256
_MOST_OPEN_SEGMENTS = 1 << 14
_UNLIMITED = 1 << 30
_CONNECTIONS = 1 << 12


def share_of_descriptors() -> int:
    """Return how many files of logs this process may have open: half of all that it may open.

    Where a quarter leaves enough for connections, three quarters.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(limit // 2, limit - max(limit // 4, _CONNECTIONS), 1) if limit > 0 else _UNLIMITED


def most_open_segments() -> int:
    """Return how many segments of a broker may be open though nothing needs them."""
    return min(share_of_descriptors(), _MOST_OPEN_SEGMENTS)


class Pooled(Protocol):
    """A segment whose file is open."""

    used: bool
    """Whether it was used since its last turn."""

    def release(self) -> None: ...


class FilePool:
    """Limits how many segments have their file open and their indexes loaded.

    A dropped file is closed when nothing else refers to it, such as a slice that is being sent, or the list
    of files to sync. Those count as well: if they take up the share of the logs, none is opened for writing.
    """

    def __init__(self, files: Files, capacity: int = _OPEN_SEGMENTS) -> None:
        self.files = files
        self.share = share_of_descriptors()
        """How many files of logs may be open in this process."""
        self.on_crowded: Callable[[], None] | None = None
        """Called when half of the share is in use, and another file is opened for writing: sync soon."""
        self._capacity = capacity
        self._open: dict[Pooled, None] = {}

    def admit(self, segment: Pooled) -> None:
        """Add a segment that was just opened; drop those that were not used since their last turn."""
        self._open[segment] = None
        while len(self._open) > self._capacity:
            self._drop_one()

    def make_room(self) -> None:
        """Have a descriptor for a file that will be written, and so stay open until it is synced.

        Raises OSError if too many wait to be synced.
        """
        if open_file_count() <= self.share // 2:
            return
        if self.on_crowded is not None:
            self.on_crowded()
        while self._open and open_file_count() >= self.share:
            self._drop_one()
        if open_file_count() >= self.share:
            reason = "too many files wait to be synced: raise the limit of open files (ulimit -n)"
            raise OSError(errno.EMFILE, reason)

    def _drop_one(self) -> None:
        """Drop the oldest that was not used since its last turn."""
        while True:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if not oldest.used:
                oldest.release()
                return
            oldest.used = False
            self._open[oldest] = None

    def forget(self, segment: Pooled) -> None:
        """Remove a segment."""
        self._open.pop(segment, None)
