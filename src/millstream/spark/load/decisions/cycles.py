"""How much one cycle loads, and how that is cut into pieces for tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from millstream.model import TopicPartition
from millstream.spark.planning.ranges import OffsetRange

_PER_CORE: Final = 5_000_000
"""Offsets in a cycle for each core, unless the user says otherwise: enough to make its fixed costs small."""
_BYTES_PER_CORE: Final = 1 << 30
"""The same for records that are large: a cycle that takes hours has nothing to show for it when it fails."""
_LEAST_PIECE: Final = 50_000
"""Below that a task costs more than its work."""
_MOST_PIECE: Final = _PER_CORE // 2
"""Above that one task that fails, or lags behind, costs too much of a cycle."""
_UNKNOWN_BYTES: Final = 1024
"""Of a record, before any was loaded."""
_UNKNOWN_PER_CORE: Final = 100_000
"""Offsets of the first cycle for each core when its time is bounded, before it is known how fast it goes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows a cycle to be; None where it does not matter."""

    max_records: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None

    def or_else(self, records: int | None, size: int | None) -> Bounds:
        """With these bounds where the user has said nothing of how large a cycle is."""
        if self.max_records is not None or self.max_bytes is not None:
            return self
        return replace(self, max_records=records, max_bytes=size)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What earlier cycles were like: how large a record is, and how many are loaded in a second."""

    bytes_per_record: float | None = None
    records_per_second: float | None = None

    def after(self, offsets: int, size: int, seconds: float) -> Throughput:
        """What is known after a cycle more. A tiny cycle says little about speed."""
        if not offsets:
            return self
        measured = offsets / max(seconds, 1e-6)
        if self.records_per_second is not None and offsets < _LEAST_PIECE:
            measured = max(measured, self.records_per_second)
        return Throughput(max(size / offsets, 1.0), measured)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is to be loaded of one partition: ``[start, end)``."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def offsets(self) -> int:
        return self.end - self.start


def budget(bounds: Bounds, pace: Throughput, cores: int) -> int:
    """How many offsets a cycle may cover, whatever their size."""
    limits = [_PER_CORE * cores if bounds.max_records is None else bounds.max_records]
    if bounds.max_seconds is not None:
        speed = pace.records_per_second
        limits.append(_UNKNOWN_PER_CORE * cores if speed is None else int(speed * bounds.max_seconds))
    return max(1, min(limits))


def ranges_of(backlogs: Iterable[Backlog], most: int) -> list[OffsetRange]:
    """What the next cycle loads of each partition, ``most`` offsets together; none is left out for ever.

    The partitions share evenly, and what one does not need goes to the others. More than ``most`` are taken
    only where there are more partitions than offsets.
    """
    waiting = sorted((one for one in backlogs if one.offsets > 0), key=lambda one: one.offsets)
    chosen: list[OffsetRange] = []
    left = most
    for place, backlog in enumerate(waiting):
        share = max(1, left // (len(waiting) - place))
        end = min(backlog.end, backlog.start + share)
        chosen.append(OffsetRange(*backlog.partition, backlog.start, end))
        left = max(0, left - (end - backlog.start))
    return sorted(chosen)


def within_bytes(
    ranges: Sequence[OffsetRange],
    bounds: Bounds,
    pace: Throughput,
    cores: int,
    sizes: Mapping[TopicPartition, float],
) -> list[OffsetRange]:
    """The ranges, cut short where they have more bytes than a cycle may: all by the same part, and none to
    nothing. ``sizes`` are the bytes of an offset, on average, of the partitions whose brokers tell.

    Without them a bound that the user has set goes by what earlier cycles have written.
    """
    most, otherwise = bounds.max_bytes, pace.bytes_per_record or _UNKNOWN_BYTES
    if most is None:
        if bounds.max_records is not None:
            return list(ranges)
        most, otherwise = _BYTES_PER_CORE * cores, 0.0
    total = sum(one.offsets * sizes.get(one.topic_partition, otherwise) for one in ranges)
    if total <= most:
        return list(ranges)
    part = most / total
    return [replace(one, end=one.start + max(1, int(one.offsets * part))) for one in ranges]


def pieces_of(ranges: Sequence[OffsetRange], cores: int) -> list[OffsetRange]:
    """The ranges, cut so that all cores are busy to the end however unlike the partitions are.

    In the order in which tasks should start: the largest first.
    """
    total = sum(one.offsets for one in ranges)
    most = max(_LEAST_PIECE, -(-total // (cores * _waves(total, cores))))
    pieces = [piece for one in ranges for piece in one.split(most)]
    return sorted(pieces, key=lambda piece: (-piece.offsets, piece))


def shares_of(pieces: Sequence[OffsetRange], cores: int) -> list[list[int]]:
    """Which pieces (their places in the list) go into one task together: no more tasks than keep all cores
    busy, about equally large. Partitions that are many and small then cost neither a task nor a file each.
    """
    tasks = min(len(pieces), cores * _waves(sum(one.offsets for one in pieces), cores))
    shares: list[list[int]] = [[] for _ in range(tasks)]
    lightest = [(0, share) for share in range(tasks)]
    for place in sorted(range(len(pieces)), key=lambda place: -pieces[place].offsets):
        offsets, share = heappop(lightest)
        shares[share].append(place)
        heappush(lightest, (offsets + pieces[place].offsets, share))
    return [sorted(share, key=lambda place: pieces[place]) for share in shares]


def _waves(offsets: int, cores: int) -> int:
    """How many tasks each core has to do, one after the other."""
    return max(1, -(-offsets // (_MOST_PIECE * cores)))


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in as few ranges as possible. Ranges that overlap, as after a rewind, become one."""
    found: list[OffsetRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.topic_partition == one.topic_partition and one.start <= last.end:
            found[-1] = OffsetRange(one.topic, one.partition, last.start, max(last.end, one.end))
        else:
            found.append(one)
    return found
