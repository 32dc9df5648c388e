"""Snapshots: what a log knows at one offset, so that opening it needs no look at the batches before.

A snapshot is written when a segment is closed and at a clean stop, without waiting for the disk; a checksum
tells whether it got there whole. Without a sound one the same is found by reading the batches.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from millstream.broker.log.files import Files, OpenFile
from millstream.broker.log.producers import ProducerStates
from millstream.broker.log.segment import IndexChecksums, file_name
from millstream.wire.crc32c import crc32c

SNAPSHOT_SUFFIX = ".snapshot"
KEPT_SNAPSHOTS = 2
"""The newest may be beyond what a crash left of the log; then the one before it serves."""

_MAGIC = b"MLS1"
_PREFIX = struct.Struct(">4sI")  # magic, checksum of the rest
_FIXED = struct.Struct(">qqqqII")


class Snapshot(NamedTuple):
    """The state of a log whose last segment has ``segment_size`` bytes and ends before ``end_offset``."""

    end_offset: int
    segment_base: int
    segment_size: int
    segment_began_ms: int
    checksums: IndexChecksums
    producers: ProducerStates

    def to_bytes(self) -> bytes:
        body = _FIXED.pack(*self[:4], *self.checksums) + self.producers.to_bytes()
        return _PREFIX.pack(_MAGIC, crc32c(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot | None:
        """Read a snapshot; None when it is damaged."""
        if len(data) < _PREFIX.size + _FIXED.size:
            return None
        magic, checksum = _PREFIX.unpack_from(data)
        body = data[_PREFIX.size :]
        if magic != _MAGIC or crc32c(body) != checksum:
            return None
        end_offset, base, size, began_ms, offsets, times = _FIXED.unpack_from(body)
        producers = ProducerStates.from_bytes(body[_FIXED.size :])
        return cls(end_offset, base, size, began_ms, IndexChecksums(offsets, times), producers)


class SnapshotFiles:
    """The snapshots in a partition's directory, by their offsets."""

    def __init__(self, files: Files, directory: str, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return os.path.join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def read(self, offset: int) -> Snapshot | None:
        """A snapshot; None when it is damaged or gone."""
        try:
            snapshot = Snapshot.from_bytes(self._files.read(self.path(offset)))
        except OSError:
            return None
        return snapshot if snapshot is not None and snapshot.end_offset == offset else None

    def newest(self, up_to: int) -> Snapshot | None:
        """The newest sound snapshot that lies at or before an offset."""
        candidates = (self.read(offset) for offset in reversed(self.offsets) if offset <= up_to)
        return next((snapshot for snapshot in candidates if snapshot is not None), None)

    def write(self, snapshot: Snapshot) -> OpenFile:
        """Write a snapshot, not yet durably, and drop the oldest; returns the open file."""
        file = self._files.write(self.path(snapshot.end_offset), snapshot.to_bytes())
        self.offsets = sorted({*self.offsets, snapshot.end_offset})
        for offset in self.offsets[:-KEPT_SNAPSHOTS]:
            self._drop(offset)
        return file

    def drop_after(self, end_offset: int) -> bool:
        """Drop snapshots of what is no longer in the log; returns whether there were any."""
        gone = [offset for offset in self.offsets if offset > end_offset]
        for offset in gone:
            self._drop(offset)
        return bool(gone)

    def _drop(self, offset: int) -> None:
        self._files.unlink(self.path(offset))
        self.offsets.remove(offset)
