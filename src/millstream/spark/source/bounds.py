"""Resolves ``startingOffsets`` and its like to an offset for each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from millstream.errors import ConfigError
from millstream.model import TopicPartition
from millstream.spark.planning.losses import DataLoss, ends_at, losses_of_ranges, starts_at, without
from millstream.spark.planning.offsets import EARLIEST, LATEST, ClusterOffsets, Offsets
from millstream.spark.planning.ranges import OffsetRange, ranges_between
from millstream.spark.source.offset_client import OffsetClient
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.values import NamedOffset, OffsetBound, SpecificOffsets, SpecificTimestamps


def resolve(bound: OffsetBound, now: ClusterOffsets, client: OffsetClient) -> Offsets:
    """The offset of each partition; it may lie outside of the log."""
    match bound:
        case NamedOffset.EARLIEST:
            return now.earliest
        case NamedOffset.LATEST:
            return now.latest
        case NamedOffset.COMMITTED:
            # Without a committed offset, start at the beginning: nothing may be skipped.
            return {**now.earliest, **client.committed(now.partitions)}
        case SpecificOffsets(offsets, option):
            _check_named(offsets, now, option)
            ends = {EARLIEST: now.earliest, LATEST: now.latest}
            return {each: ends[n][each] if n in ends else n for each, n in offsets.items()}
        case SpecificTimestamps():
            return _at_times(bound, now, client)


def _at_times(bound: SpecificTimestamps, now: ClusterOffsets, client: OffsetClient) -> Offsets:
    times = bound.times
    if isinstance(times, int):
        times = dict.fromkeys(now.partitions, times)
    _check_named(times, now, bound.option)
    found = client.at_times(times)
    too_late = sorted(each for each, offset in found.items() if offset is None)
    if too_late and not bound.or_latest:
        raise ConfigError(
            f"{bound.option}: {', '.join(map(str, too_late))} has no record that recent: choose an "
            "earlier time, or set startingOffsetsByTimestampStrategy=latest"
        )
    return {each: now.latest[each] if offset is None else offset for each, offset in found.items()}


def _check_named(named: Iterable[TopicPartition], now: ClusterOffsets, option: str) -> None:
    """Every partition must be named, and no other: a guess would lose or repeat records."""
    given = set(named)
    missing, unknown = sorted(now.partitions - given), sorted(given - now.partitions)
    if missing:
        raise ConfigError(f"{option} does not name {', '.join(map(str, missing))}: name every partition")
    if unknown:
        raise ConfigError(f"{option} names {', '.join(map(str, unknown))}, which is not read here")


def is_moving(bound: OffsetBound) -> bool:
    """Whether ``bound`` may resolve to another offset later."""
    if isinstance(bound, SpecificOffsets):
        return LATEST in bound.offsets.values()
    return bound is NamedOffset.LATEST or (isinstance(bound, SpecificTimestamps) and bound.or_latest)


def is_fixed(options: SourceOptions) -> bool:
    """Whether a batch reads the same offsets whenever it is planned."""
    return all(
        isinstance(bound, SpecificOffsets) and not {EARLIEST, LATEST}.intersection(bound.offsets.values())
        for bound in (options.starting, options.ending)
    )


def narrowed(options: SourceOptions, partitions: Collection[TopicPartition]) -> SourceOptions:
    """The same options for ``partitions`` alone."""

    def of(bound: OffsetBound | None) -> OffsetBound | None:
        if isinstance(bound, SpecificOffsets):
            return replace(bound, offsets=_chosen(bound.offsets, partitions))
        return bound

    def at(times: Offsets | None) -> Offsets | None:
        return None if times is None else _chosen(times, partitions)

    return replace(
        options,
        starting_offsets=of(options.starting_offsets),
        ending_offsets=of(options.ending_offsets),
        starting_timestamps=at(options.starting_timestamps),
        ending_timestamps=at(options.ending_timestamps),
    )


def _chosen(numbers: Offsets, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {each: number for each, number in numbers.items() if each in partitions}


def starts(
    options: SourceOptions, now: ClusterOffsets, client: OffsetClient
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """Where a stream starts, within the log, and what is lost because its start is outside."""
    wanted = resolve(options.starting, now, client)
    now = _confirmed(wanted, now, client)
    losses = []
    for each, offset in sorted(wanted.items()):
        first, last = now.earliest[each], now.latest[each]
        if offset < first:
            losses.append(starts_at(each, offset, first, first))
        elif offset > last:
            losses.append(ends_at(each, last, offset, last))
    inside = {each: min(max(n, now.earliest[each]), now.latest[each]) for each, n in wanted.items()}
    return inside, losses


def batch_ranges(
    options: SourceOptions, now: ClusterOffsets, client: OffsetClient
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """What a batch reads, and which of its offsets are lost."""
    start = resolve(options.starting, now, client)
    now = _confirmed(start, now, client)
    end = resolve(options.ending, now, client)
    _check_order(options, start, end, now)
    ranges = ranges_between(start, end)
    losses = [*losses_of_ranges(ranges, now.earliest), *_after_the_end(start, end, now)]
    kept = []
    for part in without(ranges, losses):
        last = now.latest[part.topic_partition]
        if part.end > last:
            losses.append(ends_at(part.topic_partition, max(part.start, last), part.end, last))
        kept.append(OffsetRange(part.topic, part.partition, min(part.start, last), min(part.end, last)))
    return [part for part in kept if part.offsets], losses


def _confirmed(start: Offsets, now: ClusterOffsets, client: OffsetClient) -> ClusterOffsets:
    """Ask for the ends again if a log seems to end before its start.

    It may have grown, and a group may have read that, since; and a new leader may not know its end yet.
    """

    def is_doubtful(found: ClusterOffsets) -> bool:
        return any(found.latest[each] < offset for each, offset in start.items())

    def ask() -> ClusterOffsets:
        return replace(now, latest=client.latest(now.partitions))

    return client.retry(ask, is_doubtful) if is_doubtful(now) else now


def _after_the_end(start: Offsets, end: Offsets, now: ClusterOffsets) -> list[DataLoss]:
    """Starts after the end of the log: it was truncated, or the topic recreated, and all in it is unread."""
    return [
        ends_at(each, last, offset, last)
        for each, offset in sorted(start.items())
        if (last := now.latest[each]) < offset and end[each] < offset
    ]


def _check_order(options: SourceOptions, start: Offsets, end: Offsets, now: ClusterOffsets) -> None:
    """Refuse an end that was given and lies before the start that was given, as Spark's source does.

    A start after the end of the log is data loss, and a group may have read beyond the end.
    """
    starting, ending = options.starting, options.ending
    if isinstance(starting, NamedOffset) or isinstance(ending, NamedOffset):
        return
    for each, last in sorted(end.items()):
        if last < start[each] <= now.latest[each]:
            raise ConfigError(
                f"{_said(ending, each)} ends {each} at offset {last}, before the offset {start[each]} "
                f"of {_said(starting, each)}: choose a later end"
            )


def _said(bound: SpecificOffsets | SpecificTimestamps, partition: TopicPartition) -> str:
    """The option, with the time that was given for ``partition``."""
    return f"{bound.option} {bound.of(partition)}" if isinstance(bound, SpecificTimestamps) else bound.option
