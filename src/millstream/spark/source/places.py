"""From ``startingOffsets`` and their like to an offset for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millstream.errors import ConfigError, DataLostError
from millstream.model import TopicPartition
from millstream.spark.planning.limits import Loss, Seen, losses_of_ranges, ranges_between, without
from millstream.spark.planning.offsets import EARLIEST, LATEST, Offsets
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.source.cluster import Cluster
from millstream.spark.source.options import AtOffsets, AtTimes, Edge, Place, SourceOptions


def find(place: Place, seen: Seen, cluster: Cluster) -> Offsets:
    """The offset of each partition at this place; it may lie outside of the log."""
    match place:
        case Edge.EARLIEST:
            return seen.earliest
        case Edge.LATEST:
            return seen.latest
        case Edge.COMMITTED:
            # Where the group has not been yet, nothing may be skipped: the beginning.
            return {**seen.earliest, **cluster.committed(seen.partitions)}
        case AtOffsets(offsets, option):
            _check_named(offsets, seen, option)
            ends = {EARLIEST: seen.earliest, LATEST: seen.latest}
            return {each: ends[n][each] if n in ends else n for each, n in offsets.items()}
        case AtTimes():
            return _at_times(place, seen, cluster)


def _at_times(place: AtTimes, seen: Seen, cluster: Cluster) -> Offsets:
    times = place.times
    if isinstance(times, int):
        times = dict.fromkeys(seen.partitions, times)
    _check_named(times, seen, place.option)
    found = cluster.at_times(times)
    too_young = sorted(each for each, offset in found.items() if offset is None)
    if too_young and not place.or_latest:
        raise ConfigError(
            f"{place.option}: {', '.join(map(str, too_young))} has no record that is so young: choose an "
            "earlier time, or set startingOffsetsByTimestampStrategy=latest"
        )
    return {each: seen.latest[each] if offset is None else offset for each, offset in found.items()}


def _check_named(named: Iterable[TopicPartition], seen: Seen, option: str) -> None:
    """Each partition must be named, and no other: to guess for one would be to lose or to repeat records."""
    given = set(named)
    missing, unknown = sorted(seen.partitions - given), sorted(given - seen.partitions)
    if missing:
        raise ConfigError(f"{option} says nothing of {', '.join(map(str, missing))}: name every partition")
    if unknown:
        raise ConfigError(f"{option} names {', '.join(map(str, unknown))}, which is not read here")


def is_moving(place: Place) -> bool:
    """Whether the same place would be another offset when it is asked for later."""
    if isinstance(place, AtOffsets):
        return LATEST in place.offsets.values()
    return place is Edge.LATEST or (isinstance(place, AtTimes) and place.or_latest)


def starts(
    options: SourceOptions, seen: Seen, cluster: Cluster
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where to start, inside of the log; and what is lost because it is not there."""
    wanted = find(options.starting, seen, cluster)
    seen = _asked_again(wanted, seen, cluster)
    losses = []
    for each, offset in sorted(wanted.items()):
        if offset < seen.earliest[each]:
            gone = OffsetRange(each.topic, each.partition, offset, seen.earliest[each])
            losses.append(Loss(gone, f"the log starts at {seen.earliest[each]}"))
        elif offset > seen.latest[each]:
            gone = OffsetRange(each.topic, each.partition, seen.latest[each], offset)
            losses.append(Loss(gone, f"the log ends at {seen.latest[each]}"))
    inside = {each: min(max(n, seen.earliest[each]), seen.latest[each]) for each, n in wanted.items()}
    return inside, losses


def batch_ranges(
    options: SourceOptions, seen: Seen, cluster: Cluster
) -> tuple[list[OffsetRange], list[Loss]]:
    """What a batch reads, and what of it is not there any more, or not there yet."""
    start = find(options.starting, seen, cluster)
    seen = _asked_again(start, seen, cluster)
    end = find(options.ending, seen, cluster)
    if isinstance(options.starting, AtOffsets) and isinstance(options.ending, AtOffsets):
        _check_order(start, options.ending.offsets)
    ranges = ranges_between(start, end)
    losses = [*losses_of_ranges(ranges, seen.earliest), *_behind_the_end(start, end, seen)]
    kept = []
    for part in without(ranges, losses):
        last = seen.latest[part.topic_partition]
        if part.end > last:
            gone = OffsetRange(part.topic, part.partition, max(part.start, last), part.end)
            losses.append(Loss(gone, f"the log ends at {last}"))
        kept.append(OffsetRange(part.topic, part.partition, min(part.start, last), min(part.end, last)))
    return [part for part in kept if part.offsets], losses


def _asked_again(start: Offsets, seen: Seen, cluster: Cluster) -> Seen:
    """Look again where the log seems to end before a start.

    It may have grown since, and a group have read that; and a new leader may not know its end for a moment.
    """

    def is_doubtful(now: Seen) -> bool:
        return any(now.latest[each] < offset for each, offset in start.items())

    def look() -> Seen:
        return replace(seen, latest=cluster.latest(seen.partitions))

    return cluster.patiently(look, is_doubtful) if is_doubtful(seen) else seen


def _behind_the_end(start: Offsets, end: Offsets, seen: Seen) -> list[Loss]:
    """Starts that the log has not reached: it was cut, or the topic made anew, and all in it is unread."""
    return [
        Loss(OffsetRange(each.topic, each.partition, seen.latest[each], offset), f"the log ends at {last}")
        for each, offset in sorted(start.items())
        if (last := seen.latest[each]) < offset and end[each] < offset
    ]


def _check_order(start: Offsets, wanted: Offsets) -> None:
    for each, end in sorted(wanted.items()):
        if LATEST < end < start[each]:
            raise ConfigError(f"endingOffsets: {each} ends at {end}, before startingOffsets {start[each]}")


def lost(losses: Iterable[Loss]) -> DataLostError:
    """The error that names all losses."""
    found = list(losses)
    ranges = [(one.lost.topic, one.lost.partition, one.lost.start, one.lost.end) for one in found]
    return DataLostError(
        f"records were lost: {'; '.join(map(str, found))}. Start again from what is left (another checkpoint "
        "and startingOffsets), or go on without them with failOnDataLoss=false",
        ranges,
    )


def as_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets for a log line."""
    return ", ".join(f"{each}@{offset}" for each, offset in sorted(offsets.items()))
