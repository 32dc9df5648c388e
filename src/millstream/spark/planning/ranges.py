"""A range of one partition's offsets: the unit of all work on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from ``start`` up to, not including, ``end``.

    Offsets that compaction or a transaction's markers left empty may lie inside: a range promises where to
    read, not how many records are there.
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
        """How many offsets it spans: at least as many as there are records."""
        return self.end - self.start

    def split(self, most: int) -> Iterator[OffsetRange]:
        """Pieces of about equal size, each of at most ``most`` offsets, in order."""
        pieces = max(1, -(-self.offsets // most))
        edges = [self.start + self.offsets * piece // pieces for piece in range(pieces + 1)]
        for start, end in pairwise(edges):
            yield OffsetRange(self.topic, self.partition, start, end)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def listed(ranges: Iterable[OffsetRange]) -> str:
    """Ranges for a message: ``orders-0 [0, 10), orders-1 [5, 7)``."""
    return ", ".join(map(str, ranges))
