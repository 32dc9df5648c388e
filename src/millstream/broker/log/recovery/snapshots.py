"""Snapshots: the state of a log at one offset, so that opening it need not read the batches before.

A snapshot is written when a segment is closed and at a clean stop, without waiting for the disk; checksums
show whether it is complete. Without a valid one, the batches are read. The snapshot of a clean stop also has
the indexes of the last segment, which are read only when they are needed.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from millstream.broker.log.files import Files, OpenFile
from millstream.broker.log.producers import ProducerStates
from millstream.broker.log.segments.index import IndexBytes
from millstream.broker.log.segments.segment import file_name
from millstream.wire.records.crc32c import crc32c

SNAPSHOT_SUFFIX = ".snapshot"
KEPT_SNAPSHOTS = 2
"""The newest may be beyond what a crash left of the log; then the one before it is used."""

_MAGIC = b"MLS2"
_PREFIX = struct.Struct(">4sII")  # magic, length of the head, its checksum
_FIXED = struct.Struct(">qqqqIII")  # four numbers, the lengths of the two indexes, their checksum
_FIRST_READ_BYTES = 4096
_NO_INDEX = IndexBytes()


class LogSnapshot(NamedTuple):
    """The state of a log whose last segment has ``segment_size`` bytes and ends before ``end_offset``."""

    end_offset: int
    segment_base: int
    segment_size: int
    segment_began_ms: int
    producers: ProducerStates

    def to_bytes(self, index: IndexBytes) -> bytes:
        """Return the head, which is the snapshot itself, and the indexes of its last segment."""
        indexes = index.offsets + index.times
        lengths = (len(index.offsets), len(index.times), crc32c(indexes))
        head = _FIXED.pack(*self[:4], *lengths) + self.producers.to_bytes()
        return _PREFIX.pack(_MAGIC, len(head), crc32c(head)) + head + indexes


def _read_head(file: OpenFile) -> bytes | None:
    """Return the verified head of a snapshot; None if it is damaged."""
    data = file.pread(_FIRST_READ_BYTES, 0)
    if len(data) < _PREFIX.size + _FIXED.size:
        return None
    magic, length, checksum = _PREFIX.unpack_from(data)
    if magic != _MAGIC or not _FIXED.size <= length <= file.size():
        return None
    head = (
        data[_PREFIX.size :][:length]
        if len(data) >= _PREFIX.size + length
        else file.pread(length, _PREFIX.size)
    )
    return head if crc32c(head) == checksum else None


class SnapshotFiles:
    """The snapshots in a partition's directory, by their offsets."""

    def __init__(self, files: Files, directory: str, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return os.path.join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def read(self, offset: int) -> LogSnapshot | None:
        """Return a snapshot; None if it is damaged or missing."""
        try:
            head = _read_head(self._files.open(self.path(offset)))
        except OSError:
            return None
        if head is None:
            return None
        end_offset, base, size, began_ms, *_ = _FIXED.unpack_from(head)
        producers = ProducerStates.from_bytes(head[_FIXED.size :])
        return LogSnapshot(end_offset, base, size, began_ms, producers) if end_offset == offset else None

    def read_index(self, offset: int) -> IndexBytes | None:
        """Return the indexes in a snapshot; None if they are damaged or missing."""
        try:
            file = self._files.open(self.path(offset))
            head = _read_head(file)
            if head is None:
                return None
            *_, offsets_bytes, times_bytes, checksum = _FIXED.unpack_from(head)
            indexes = file.pread(offsets_bytes + times_bytes, _PREFIX.size + len(head))
        except OSError:
            return None
        index = IndexBytes(indexes[:offsets_bytes], indexes[offsets_bytes:])
        return index if crc32c(indexes) == checksum else None

    def newest(self, up_to: int) -> LogSnapshot | None:
        """Return the newest valid snapshot at or before an offset."""
        candidates = (self.read(offset) for offset in reversed(self.offsets) if offset <= up_to)
        return next((snapshot for snapshot in candidates if snapshot is not None), None)

    def write(self, snapshot: LogSnapshot, index: IndexBytes = _NO_INDEX) -> OpenFile:
        """Write a snapshot, not yet durably, and drop the oldest; return the open file."""
        file = self._files.write(self.path(snapshot.end_offset), snapshot.to_bytes(index))
        self.offsets = sorted({*self.offsets, snapshot.end_offset})
        for offset in self.offsets[:-KEPT_SNAPSHOTS]:
            self._drop(offset)
        return file

    def drop_after(self, end_offset: int) -> bool:
        """Drop snapshots after an offset; return whether there were any."""
        gone = [offset for offset in self.offsets if offset > end_offset]
        for offset in gone:
            self._drop(offset)
        return bool(gone)

    def _drop(self, offset: int) -> None:
        self._files.unlink(self.path(offset))
        self.offsets.remove(offset)
