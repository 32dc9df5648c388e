"""How many offsets a cycle loads, and how they are cut into pieces for tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from millstream.model import TopicPartition
from millstream.spark.planning.ranges import OffsetRange

_PER_CORE: Final = 5_000_000
"""Default offsets in a cycle for each core: enough to make a cycle's fixed costs small."""
_BYTES_PER_CORE: Final = 1 << 30
"""The same in bytes, for large records: a cycle that takes hours would lose all of its work when it fails."""
AGGREGATING_CORES: Final = 4
"""The cores that a cycle is planned for where rows aggregate its ranges: they must not depend on how many
cores there are."""
_LEAST_PIECE: Final = 50_000
"""A smaller task costs more to start than it does work."""
_LEAST_SHARE: Final = 10_000
"""Each task writes a file: with fewer offsets it is better to share a task than to use another core."""
_FEW_TASKS: Final = 4
"""As many tasks are made of any pieces: few records may still be large ones."""
_MOST_PIECE: Final = _PER_CORE // 2
"""A larger task that fails or lags behind costs too much of a cycle."""
_UNKNOWN_BYTES: Final = 1024
"""The assumed size of a record before any was loaded."""
_UNKNOWN_PER_CORE: Final = 100_000
"""Offsets of the first cycle for each core under ``max_seconds``, before any throughput was measured."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds of a cycle; None for no bound."""

    max_records: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None

    def or_else(self, records: int | None, size: int | None) -> Bounds:
        """These bounds; ``records`` and ``size`` are defaults where neither records nor bytes are bounded."""
        if self.max_records is not None or self.max_bytes is not None:
            return self
        return replace(self, max_records=records, max_bytes=size)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What earlier cycles measured: the size of a record, and records loaded per second."""

    bytes_per_record: float | None = None
    records_per_second: float | None = None

    def after(self, offsets: int, size: int, seconds: float) -> Throughput:
        """The throughput after another cycle. A tiny cycle says little about speed, so it cannot lower it."""
        if not offsets:
            return self
        measured = offsets / max(seconds, 1e-6)
        if self.records_per_second is not None and offsets < _LEAST_PIECE:
            measured = max(measured, self.records_per_second)
        return Throughput(max(size / offsets, 1.0), measured)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The offsets ``[start, end)`` of one partition that are still to be loaded."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def offsets(self) -> int:
        return self.end - self.start


def budget(bounds: Bounds, pace: Throughput, cores: int) -> int:
    """The most offsets that a cycle may cover, before their sizes are considered."""
    limits = [_PER_CORE * cores if bounds.max_records is None else bounds.max_records]
    if bounds.max_seconds is not None:
        speed = pace.records_per_second
        limits.append(_UNKNOWN_PER_CORE * cores if speed is None else int(speed * bounds.max_seconds))
    return max(1, min(limits))


def ranges_of(backlogs: Iterable[Backlog], most: int) -> list[OffsetRange]:
    """The range of each partition that the next cycle loads, ``most`` offsets together; no partition starves.

    Partitions share evenly, and what one does not need goes to the others. More than ``most`` are taken only
    if there are more partitions than that: each gets at least one offset.
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
    """The ranges, shortened if they exceed the cycle's bytes: all by the same factor, to at least one offset.

    ``sizes`` are average bytes per offset, for partitions whose brokers report them. For others a bound that
    the user has set goes by the record size of earlier cycles.
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
    """The ranges, cut so that all cores stay busy to the end even if partitions differ in size.

    Largest first: the order in which tasks should start.
    """
    total = sum(one.offsets for one in ranges)
    most = max(_LEAST_PIECE, -(-total // (cores * _waves(total, cores))))
    pieces = [piece for one in ranges for piece in one.split(most)]
    return sorted(pieces, key=lambda piece: (-piece.offsets, piece))


def shares_of(pieces: Sequence[OffsetRange], cores: int) -> list[list[int]]:
    """Which pieces (indexes into the list) each task loads: as many tasks as keep all cores busy, of about
    equal size, but not more than there is work for. Small partitions share tasks and files.
    """
    total = sum(one.offsets for one in pieces)
    worthwhile = max(_FEW_TASKS, -(-total // _LEAST_SHARE))
    tasks = min(len(pieces), cores * _waves(total, cores), worthwhile)
    shares: list[list[int]] = [[] for _ in range(tasks)]
    lightest = [(0, share) for share in range(tasks)]
    for place in sorted(range(len(pieces)), key=lambda place: -pieces[place].offsets):
        offsets, share = heappop(lightest)
        shares[share].append(place)
        heappush(lightest, (offsets + pieces[place].offsets, share))
    return [sorted(share, key=lambda place: pieces[place]) for share in shares]


def _waves(offsets: int, cores: int) -> int:
    """How many tasks each core runs, one after the other."""
    return max(1, -(-offsets // (_MOST_PIECE * cores)))


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in as few ranges as possible; overlapping ranges, as after a rewind, become one."""
    found: list[OffsetRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.topic_partition == one.topic_partition and one.start <= last.end:
            found[-1] = OffsetRange(one.topic, one.partition, last.start, max(last.end, one.end))
        else:
            found.append(one)
    return found
