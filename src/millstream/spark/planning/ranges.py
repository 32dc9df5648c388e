"""A range of one partition's offsets: the unit of all work on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from millstream.model import TopicPartition
from millstream.spark.planning.offsets import Offsets


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from ``start`` up to, not including, ``end``.

    Some offsets may hold no record, after compaction or for transaction markers.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, self

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """The number of offsets: at least the number of records."""
        return self.end - self.start

    def split(self, most: int) -> Iterator[OffsetRange]:
        """Pieces of about equal size with at most ``most`` offsets each, in order."""
        return self.cut(max(1, -(-self.offsets // most)))

    def cut(self, pieces: int) -> Iterator[OffsetRange]:
        """This number of pieces of about equal size, in order."""
        edges = [self.start + self.offsets * piece // pieces for piece in range(pieces + 1)]
        for start, end in pairwise(edges):
            yield OffsetRange(self.topic, self.partition, start, end)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def listed(ranges: Iterable[OffsetRange]) -> str:
    """Ranges for a message: ``orders-0 [0, 10), orders-1 [5, 7)``."""
    return ", ".join(map(str, ranges))


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges from ``start`` to ``end``. A partition that only ``end`` has begins there."""
    return [
        OffsetRange(each.topic, each.partition, start[each], offset)
        for each, offset in sorted(end.items())
        if each in start and offset > start[each]
    ]


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split large ranges: at most ``max_records`` offsets each, and at least ``min_partitions`` in all.

    Without either, one range is one task. With ``min_partitions``, the range with the largest pieces is cut
    into one more, until there are enough, or every piece has one offset.
    """
    parts = [part for part in ranges if part.offsets]
    if max_records is not None:
        parts = [piece for part in parts for piece in part.split(max_records)]
    if min_partitions is None or not parts or len(parts) >= min_partitions:
        return parts
    counts = [1] * len(parts)
    largest = [(-part.offsets, index) for index, part in enumerate(parts)]
    heapify(largest)
    for _ in range(min_partitions - len(parts)):
        size, index = largest[0]
        if size == -1:
            break
        counts[index] += 1
        heapreplace(largest, (-parts[index].offsets // counts[index], index))  # rounds its size up
    return [piece for part, count in zip(parts, counts, strict=True) for piece in part.cut(count)]
