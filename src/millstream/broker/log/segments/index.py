"""The sparse indexes of one segment: from offsets to positions, and from timestamps to offsets.

One entry covers about ``index.interval.bytes`` of log. In memory they are compact arrays; on disk they have
Kafka's format. They are hints that save reading: a missing or damaged file is rebuilt.

An offset entry is the *last* offset of a batch with the position where that batch begins. A time entry is the
largest timestamp so far with the last offset of the batch that has it, and both only grow.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY = struct.Struct(">qI")


class IndexBytes(NamedTuple):
    """Both indexes of a segment in Kafka's format."""

    offsets: bytes = b""
    times: bytes = b""


class SegmentIndex:
    """Both indexes of a segment. Offsets are relative to the segment's base."""

    __slots__ = ("offsets", "positions", "time_offsets", "times")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_offsets = array("I")

    def add(self, offset: int, position: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Add the batch at ``position`` that ends with ``offset``, and the largest timestamp up to it."""
        self.offsets.append(offset)
        self.positions.append(position)
        self.add_time(max_timestamp, max_timestamp_offset)

    def add_time(self, max_timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far, if it has grown."""
        times = self.times
        if not times or max_timestamp > times[-1]:
            times.append(max_timestamp)
            self.time_offsets.append(offset)

    def position_before(self, offset: int) -> int:
        """Return a position from which to search for the batch with ``offset``: never after it."""
        found = bisect_right(self.offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def boundary_before(self, position: int) -> int:
        """Return the start of a batch at or before ``position``."""
        found = bisect_right(self.positions, position) - 1
        return self.positions[found] if found >= 0 else 0

    def offset_before_time(self, timestamp: int) -> int:
        """Return an offset before which every record is older than ``timestamp``."""
        found = bisect_left(self.times, timestamp) - 1
        return self.time_offsets[found] if found >= 0 else 0

    def to_bytes(self) -> IndexBytes:
        """Return both indexes as they are stored."""
        entries = array("I", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
        entries[0::2] = self.offsets
        entries[1::2] = self.positions
        times = b"".join(map(TIME_ENTRY.pack, self.times, self.time_offsets))
        return IndexBytes(_big_endian(entries).tobytes(), times)

    @classmethod
    def from_bytes(cls, stored: IndexBytes, segment_bytes: int) -> SegmentIndex | None:
        """Read both indexes; None if they cannot belong to a segment of this size."""
        index = cls()
        offsets, times = stored
        if len(offsets) % OFFSET_ENTRY_BYTES or len(times) % TIME_ENTRY.size:
            return None
        entries = array("I", offsets)
        _big_endian(entries)
        index.offsets, index.positions = entries[0::2], entries[1::2]
        for timestamp, offset in TIME_ENTRY.iter_unpack(times):
            index.times.append(timestamp)
            index.time_offsets.append(offset)
        if index.positions and index.positions[-1] >= segment_bytes:
            return None
        if segment_bytes and not index.times:
            return None  # the last entry of a closed segment is its largest timestamp: it is never empty
        grow = (index.offsets, index.positions, index.times)
        return index if all(map(_grows, grow)) else None


def _big_endian(entries: array[int]) -> array[int]:
    if sys.byteorder == "little":
        entries.byteswap()
    return entries


def _grows(values: array[int]) -> bool:
    return all(before < after for before, after in pairwise(values))
