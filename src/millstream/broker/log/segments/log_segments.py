"""The segments of a log in order, and the search in them by offset and by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from millstream.broker.log.segments.raw_records import first_since
from millstream.broker.log.segments.segment import Segment
from millstream.wire.slices import EMPTY_SLICE, FileSlice

_HINTS = 16


class LogSegments:
    """Segments that join exactly: each ends where the next begins. The last one grows."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        # Where readers will continue: the ends of the last reads. Offset -> segment, position.
        self._hints: dict[int, tuple[Segment, int]] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def up_to(self, count: int) -> list[Segment]:
        return self._segments[:count]

    def from_index(self, index: int) -> list[Segment]:
        return self._segments[index:]

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that has, or would have, an offset."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace adjacent segments by others; the old ones close their files."""
        start = self._segments.index(old[0])
        assert self._segments[start : start + len(old)] == old, "replaced segments are adjacent"
        self._segments[start : start + len(old)] = new
        self._bases = [segment.base_offset for segment in self._segments]
        self._hints.clear()
        for segment in old:
            segment.forget()

    def forget_hints(self) -> None:
        """Forget where readers will continue: after a cut, positions may belong to other offsets."""
        self._hints.clear()

    # -- by offset

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice:
        """Return whole batches from the one with ``offset`` on, of one segment, up to ``max_bytes``."""
        found = self._hints.get(offset)
        if found is None or found[1] >= found[0].size:
            found = self._find(offset)
            if found is None:
                return EMPTY_SLICE
        segment, start = found
        end = self._end(segment, start, start + max_bytes, at_least_one)
        return FileSlice(segment.file, start, end - start) if end > start else EMPTY_SLICE

    def _find(self, offset: int) -> tuple[Segment, int] | None:
        for segment in self._segments[self.index_of(offset) :]:
            found = segment.locate(offset)
            if found is not None:
                return segment, found[0]
        return None

    def _end(self, segment: Segment, start: int, limit: int, at_least_one: bool) -> int:
        if limit >= segment.size:
            self._expect(segment.next_offset, segment, segment.size)
            return segment.size
        end, header = segment.first_crossing(start, limit)
        if end == start and at_least_one:
            self._expect(header.next_offset, segment, start + header.size)
            return start + header.size
        self._expect(header.base_offset, segment, end)
        return end

    def _expect(self, offset: int, segment: Segment, position: int) -> None:
        """Remember that the batch which begins with ``offset`` is, or will be, at ``position``."""
        hints = self._hints
        hints.pop(offset, None)
        if len(hints) >= _HINTS:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)

    # -- by time

    def first_since(self, timestamp: int, start_offset: int) -> tuple[int, int] | None:
        """Return the first record from ``start_offset`` on that is not older than ``timestamp``."""
        for segment in self._segments[self.index_of(start_offset) :]:
            if segment.latest[0] >= timestamp:
                found = _first_since(segment, timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def latest(self, start_offset: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record with the largest timestamp."""
        best: tuple[int, int] | None = None
        for segment in self._segments[self.index_of(start_offset) :]:
            if best is not None and segment.latest[0] <= best[1]:
                continue
            found = _latest_in(segment, start_offset)
            if found is not None and (best is None or found[1] > best[1]):
                best = found
        return best


def _first_since(segment: Segment, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    for position, header in segment.batches_since(timestamp):
        if header.last_offset >= start_offset and header.record_count:
            found = first_since(segment.file.pread(header.size, position), header, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _latest_in(segment: Segment, start_offset: int) -> tuple[int, int] | None:
    """Return the newest record of a segment from ``start_offset`` on."""
    if start_offset <= segment.base_offset:
        return _first_since(segment, segment.latest[0], start_offset)
    # The first records, perhaps with the newest one, were deleted: search the headers.
    headers = [header for _, header in segment.batches_from(start_offset) if header.record_count]
    timestamps = sorted({header.max_timestamp for header in headers}, reverse=True)
    found = (_first_since(segment, timestamp, start_offset) for timestamp in timestamps)
    return next((each for each in found if each is not None), None)
