"""The timestamps of a batch's records, stored as changes: many records share a millisecond.

Pure: no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.wire.records.encode import Longs


class Times:
    """``stamps[i]`` (milliseconds) is the timestamp of the records from ``rows[i]`` up to the next change."""

    __slots__ = ("rows", "stamps")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.stamps: list[int] = []

    def change(self, row: int, stamp: int) -> None:
        """From the record ``row`` on, the timestamp is ``stamp``."""
        self.rows.append(row)
        self.stamps.append(stamp)

    def at(self, row: int) -> int:
        return self.stamps[bisect_right(self.rows, row) - 1]

    @property
    def span(self) -> tuple[int, int]:
        """The first record's timestamp, and the latest of all."""
        return self.stamps[0], max(self.stamps)

    def expand(self, count: int) -> list[int]:
        """The timestamp of each of ``count`` records."""
        sizes = (end - start for start, end in pairwise((*self.rows, count)))
        return list(chain.from_iterable(map(repeat, self.stamps, sizes)))

    def part(self, start: int, end: int | None = None) -> Times:
        """The timestamps of the records from ``start`` to ``end``, with rows counted from 0."""
        part = Times()
        if self.rows:
            part.change(0, self.at(start))
        for row, stamp in zip(self.rows, self.stamps, strict=True):
            if start < row and (end is None or row < end):
                part.change(row - start, stamp)
        return part


def expand_together(every: Sequence[Times], counts: Sequence[int]) -> Longs:
    """The timestamps of the records of several batches with ``counts`` records, for the compiled encoder."""
    import numpy as np

    stamps = np.array(list(chain.from_iterable([times.stamps for times in every])), np.int64)
    sizes = np.array(counts, np.int64)
    ends = sizes.cumsum()
    if len(stamps) == ends[-1]:  # each record has one
        return stamps
    if len(stamps) == len(every):  # each batch has one
        return stamps.repeat(sizes)
    changes = [len(times.rows) for times in every]
    rows = np.array(list(chain.from_iterable([times.rows for times in every])), np.int64)
    rows += (ends - sizes).repeat(changes)
    return stamps.repeat(np.diff(rows, append=ends[-1]))
