"""One file of a partition's log, with its indexes.

Files are opened and indexes loaded on first use. A pool that all logs of a broker share closes those that
were unused for the longest time. So thousands of segments cost nothing until they are read.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from millstream.broker.log.files import OpenFile, write_all
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.index import TIME_ENTRY, IndexBytes, SegmentIndex
from millstream.errors import CorruptBatch, KafkaStorageError
from millstream.wire.records.batch_header import BATCH_OVERHEAD, NO_TIMESTAMP, BatchHeader, read_header
from millstream.wire.records.primitives import Buffer

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
MAX_RELATIVE_OFFSET = (1 << 31) - 1
"""The most offsets of a segment: its indexes store offsets relative to the base in 31 bits."""

_HEADERS_CHUNK = 8 * 1024
_SCAN_CHUNK = 256 * 1024
_FIRST_CHUNK = 512
_WORTH_A_CHUNK = 16  # headers in a chunk


class Placed(NamedTuple):
    """What a segment needs to know of an appended batch."""

    size: int
    last_offset: int
    max_timestamp: int


def placed(header: BatchHeader) -> Placed:
    """Describe a batch. One that compaction has emptied has no timestamp."""
    return Placed(
        header.size, header.last_offset, header.max_timestamp if header.record_count else NO_TIMESTAMP
    )


def file_name(offset: int, suffix: str) -> str:
    """Return Kafka's name of a file for an offset: names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def walk(
    file: OpenFile, start: int, end: int, chunk_bytes: int = _HEADERS_CHUNK
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch between two boundaries; checksums are not verified.

    Small batches are read many at once; of large ones only the header is read. Raises CorruptBatch for an
    invalid header, and for a batch that runs past ``end``.
    """
    chunk, chunk_start = b"", start
    position, to_read = start, _FIRST_CHUNK
    while position < end:
        if position + BATCH_OVERHEAD > chunk_start + len(chunk):
            chunk, chunk_start = file.pread(min(to_read, end - position), position), position
        header = read_header(chunk, position - chunk_start)
        if position + header.size > end:
            raise CorruptBatch(f"{file.path}: the batch at byte {position} runs past byte {end}")
        yield position, header
        position += header.size
        to_read = chunk_bytes if header.size * _WORTH_A_CHUNK < chunk_bytes else BATCH_OVERHEAD


class Segment:
    """Batches from ``base_offset`` to ``next_offset``, in ``size`` bytes."""

    __slots__ = (
        "_file",
        "_file_elsewhere",
        "_index",
        "_index_source",
        "_indexed_to",
        "_latest",
        "_pool",
        "_unsaved",
        "base_offset",
        "directory",
        "first_append_ms",
        "next_offset",
        "size",
        "used",
    )

    def __init__(self, pool: FilePool, directory: str, base_offset: int, next_offset: int, size: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = size
        self.first_append_ms: int | None = None
        """When its first batch was appended (epoch milliseconds), if known: segment.ms counts from here."""
        self.used = False
        self._pool = pool
        self._file: OpenFile | None = None
        self._file_elsewhere: Callable[[], OpenFile | None] = lambda: None
        self._index: SegmentIndex | None = None
        self._indexed_to = 0
        self._unsaved = False  # whether the index in memory is newer than the stored one
        self._index_source: Callable[[], IndexBytes | None] | None = None
        self._latest: tuple[int, int] | None = None  # the largest timestamp, and the offset that has it

    @classmethod
    def create(cls, pool: FilePool, directory: str, base_offset: int) -> Segment:
        """Create an empty segment with a new file."""
        segment = cls(pool, directory, base_offset, base_offset, 0)
        segment.begin_file()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, offsets {self.base_offset} to {self.next_offset})"

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, suffix))

    # -- the file

    def begin_file(self) -> None:
        """Create the file, empty."""
        self._pool.make_room()
        file = self._pool.files.open(self.path(LOG_SUFFIX), create=True)
        file.truncate(0)  # leftovers of a crash were never part of the log
        self._attach(file)
        self.reset_index()

    @property
    def file(self) -> OpenFile:
        """The open file. It stays open while anything refers to it."""
        self.used = True
        if self._file is not None:
            return self._file
        return self._attach(self._file_elsewhere() or self._pool.files.open(self.path(LOG_SUFFIX)))

    def _attach(self, file: OpenFile) -> OpenFile:
        self._file = file
        self._file_elsewhere = weakref.ref(file)
        self.used = True
        self._pool.admit(self)
        return file

    def release(self) -> None:
        """Close the file, and drop the index if it is stored completely."""
        self._file = None
        if not self._unsaved:
            self._index = None

    def forget(self) -> None:
        """Close for good: the file will be removed or replaced. Slices of it stay readable."""
        self._pool.forget(self)
        self.release()
        self._file_elsewhere = lambda: None

    # -- growing and shrinking

    def append(self, data: Buffer, batches: list[Placed], index_interval_bytes: int) -> None:
        """Write batches at the end. After an OSError nothing has changed, but the file may be longer."""
        if self._file is None and self._file_elsewhere() is None:
            self._pool.make_room()
        if self._index is None:
            self.load_index()
        position = self.size
        write_all(self.file, data, position)
        for batch in batches:
            self.note(batch, position, index_interval_bytes)
            position += batch.size

    def note(self, batch: Placed, position: int, index_interval_bytes: int) -> None:
        """Account for a batch that is in the file at ``position``."""
        size, last_offset, max_timestamp = batch
        latest = self._latest
        if latest is None or max_timestamp > latest[0]:
            self._latest = latest = (max_timestamp, last_offset)
        if position - self._indexed_to > index_interval_bytes:
            base = self.base_offset
            assert self._index is not None, "the index is loaded before a segment grows"
            self._index.add(last_offset - base, position, latest[0], latest[1] - base)
            self._indexed_to = position
        self._unsaved = True
        self.next_offset = last_offset + 1
        self.size = position + size

    def cut(self, size: int, next_offset: int) -> None:
        """Truncate the file to a batch boundary, and the indexes with it."""
        self.file.truncate(size)
        if size != self.size:
            self.size, self.next_offset = size, next_offset
            self.rebuild_index()

    # -- the indexes

    @property
    def index(self) -> SegmentIndex:
        self.used = True
        return self._index or self.load_index()

    def reset_index(self) -> None:
        """Start with empty indexes, to be filled by ``note``."""
        self._index = SegmentIndex()
        self._indexed_to = 0
        self._latest = None
        self._unsaved = True
        self._index_source = None

    def load_index_from(self, source: Callable[[], IndexBytes | None]) -> None:
        """Load the indexes by ``source`` instead of from their files, when they are needed."""
        self._index_source = source

    def load_index(self) -> SegmentIndex:
        """Load the indexes from their files, or build them from the log if those are damaged."""
        index = self._read_index() if self.size else SegmentIndex()
        if index is None:
            index = self.rebuild_index()
            with suppress(OSError):  # a full disk must not prevent reading
                self._save_index_durably()
            return index
        self._index = index
        self._indexed_to = index.positions[-1] if index.positions else 0
        self._latest = self._latest or self._latest_of(index)
        return index

    def _read_index(self) -> SegmentIndex | None:
        stored = self._read_index_files() if self._index_source is None else self._index_source()
        return None if stored is None else SegmentIndex.from_bytes(stored, self.size)

    def _read_index_files(self) -> IndexBytes | None:
        files = self._pool.files
        try:
            return IndexBytes(files.read(self.path(INDEX_SUFFIX)), files.read(self.path(TIME_INDEX_SUFFIX)))
        except OSError:
            return None

    def _latest_of(self, index: SegmentIndex) -> tuple[int, int] | None:
        return (index.times[-1], self.base_offset + index.time_offsets[-1]) if index.times else None

    def rebuild_index(self, index_interval_bytes: int = 4096) -> SegmentIndex:
        """Build the indexes from the batches in the file."""
        size, next_offset = self.size, self.next_offset
        self.reset_index()
        try:
            for position, header in walk(self.file, 0, size, _SCAN_CHUNK):
                self.note(placed(header), position, index_interval_bytes)
        except CorruptBatch as error:
            self._index, self._unsaved = None, False
            raise KafkaStorageError(f"{self.path(LOG_SUFFIX)} is damaged: {error}") from error
        finally:
            self.size, self.next_offset = size, next_offset
        assert self._index is not None
        return self._index

    def index_bytes(self) -> IndexBytes:
        """Return both indexes as they are stored, with the largest timestamp at their end."""
        index = self.index
        if self._latest is not None:
            index.add_time(self._latest[0], self._latest[1] - self.base_offset)
        return index.to_bytes()

    def save_index(self) -> list[OpenFile]:
        """Write the index files, not yet durably; return them."""
        offsets, times = self.index_bytes()
        files = self._pool.files
        written = [
            files.write(self.path(INDEX_SUFFIX), offsets),
            files.write(self.path(TIME_INDEX_SUFFIX), times),
        ]
        self._unsaved = False
        self._index_source = None
        return written

    def _save_index_durably(self) -> None:
        for file in self.save_index():
            file.fdatasync()
        self._pool.files.sync_directory(self.directory)

    # -- reading

    @property
    def latest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the batch that has it."""
        if self._latest is None and self.size:
            self._latest = self._read_latest()
        return self._latest or (NO_TIMESTAMP, self.base_offset)

    @property
    def latest_ms(self) -> int:
        """The timestamp of the newest record, or the time of the last write if records have none."""
        timestamp = self.latest[0]
        return timestamp if timestamp >= 0 else self.file.modified_ms()

    def _read_latest(self) -> tuple[int, int] | None:
        """Read it from the end of the time index, if that is valid, without loading the rest."""
        if self._index is None and self._index_source is None:
            try:
                file = self._pool.files.open(self.path(TIME_INDEX_SUFFIX))
                last = file.pread(TIME_ENTRY.size, max(0, file.size() - TIME_ENTRY.size))
            except OSError:
                last = b""
            if len(last) == TIME_ENTRY.size:
                timestamp, offset = TIME_ENTRY.unpack(last)
                return int(timestamp), self.base_offset + int(offset)
        return self._latest_of(self.index) or self._latest

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch."""
        for _, header in self._walk(0):
            return header.max_timestamp
        return NO_TIMESTAMP

    def _walk(self, start: int, chunk_bytes: int = _HEADERS_CHUNK) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches from a boundary on. Damage here is the disk's fault: they were valid once."""
        try:
            yield from walk(self.file, start, self.size, chunk_bytes)
        except CorruptBatch as error:
            raise KafkaStorageError(f"{self.path(LOG_SUFFIX)} is damaged: {error}") from error

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the first batch that ends at or after ``offset``."""
        start = self.index.position_before(max(0, offset - self.base_offset))
        for position, header in self._walk(start):
            if header.last_offset >= offset:
                return position, header
        return None

    def first_crossing(self, start: int, limit: int) -> tuple[int, BatchHeader]:
        """Return the first batch from the boundary ``start`` on that ends after ``limit``."""
        position = max(start, self.index.boundary_before(limit))
        for at, header in self._walk(position):
            if at + header.size > limit:
                return at, header
        raise AssertionError(f"byte {limit} is not inside {self}")

    def batches_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches from the one with ``offset`` on."""
        found = self.locate(offset)
        return iter(()) if found is None else self._walk(found[0], _SCAN_CHUNK)

    def batches_since(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches that may have a record of this time or later, according to their headers."""
        before = self.index.offset_before_time(timestamp)
        start = self.index.position_before(before)
        for position, header in self._walk(start):
            if header.max_timestamp >= timestamp:
                yield position, header
