"""Where a scan starts and ends: reads the arguments, and resolves them to a range of each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError, DataLostError
from millstream.model import TopicPartition
from millstream.spark.planning.ranges import OffsetRange

if TYPE_CHECKING:
    from millstream.consumer import Consumer

log = logging.getLogger("millstream.scan")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "committed"
REMEDY: Final = 'Start at what is left with start="earliest", or accept the loss with fail_on_data_loss=False'
_LARGEST: Final = 2**63 - 1

Place = str | int | datetime
"""A name, an offset, or a time with its zone."""
Bound = Place | Mapping[TopicPartition, Place]
"""The same place in every partition, or a place for each."""


@dataclass(frozen=True, slots=True)
class Time:
    """The first record whose timestamp is this or later; the end of the log where there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """``count`` offsets before the end of the log, or its start where there are fewer."""

    count: int


ReadPlace = str | int | Time | BeforeEnd


@dataclass(frozen=True, slots=True)
class ReadBound:
    """A checked bound: ``places`` by partition, or ``everywhere``."""

    name: str
    everywhere: ReadPlace | None
    places: Mapping[TopicPartition, ReadPlace]

    def of(self, partition: TopicPartition) -> ReadPlace:
        return self.places[partition] if self.everywhere is None else self.everywhere

    def all(self) -> list[ReadPlace]:
        return list(self.places.values()) if self.everywhere is None else [self.everywhere]


def read_bound(given: object, name: str) -> ReadBound:
    """Check ``start`` or ``end`` as it was given; raises ConfigError."""
    if not isinstance(given, Mapping):
        return ReadBound(name, _read_place(given, name), {})
    if not given:
        raise ConfigError(f"{name} names no partition: name every one, or leave {name} out", setting=name)
    places = {}
    for partition, place in given.items():
        if not isinstance(partition, TopicPartition):
            raise ConfigError(
                f"{name} names {partition!r}: its keys are partitions, as in "
                f'{{TopicPartition("orders", 0): 23}}',
                setting=name,
            )
        places[partition] = _read_place(place, name)
    return ReadBound(name, None, places)


def _read_place(given: object, name: str) -> ReadPlace:
    if isinstance(given, datetime):
        if given.tzinfo is None or given.utcoffset() is None:
            raise ConfigError(
                f"{name} is {given}, a time without a zone: add one, as in {name}=datetime(…, tzinfo=UTC), "
                f"or {name}=….astimezone() for local time",
                setting=name,
            )
        return Time(max(0, round(given.timestamp() * 1000)))
    if isinstance(given, int) and not isinstance(given, bool):
        if not 0 <= given <= _LARGEST:
            raise ConfigError(f"{name} is {given}: an offset is a number from 0 on", setting=name)
        return given
    if isinstance(given, BeforeEnd):
        return given
    if isinstance(given, str) and given in (EARLIEST, LATEST, COMMITTED):
        return given
    raise ConfigError(
        f"{name} is {given!r}: it must be earliest, latest, committed, an offset, a datetime, "
        "or one of them for each TopicPartition",
        setting=name,
    )


def check_order(start: ReadBound, end: ReadBound) -> None:
    """Raise ConfigError where ``start`` is after ``end``, whatever the topic holds."""
    partitions: Iterable[TopicPartition | None] = {*start.places, *end.places} or {None}
    for each in partitions:
        first = start.everywhere if start.everywhere is not None else start.places.get(each)  # type: ignore[arg-type]
        last = end.everywhere if end.everywhere is not None else end.places.get(each)  # type: ignore[arg-type]
        if _is_after(first, last):
            where = "" if each is None else f" in {each}"
            raise ConfigError(
                f"start={_shown(first)} is after end={_shown(last)}{where}: exchange them",
                setting="start",
            )


def _is_after(first: ReadPlace | None, last: ReadPlace | None) -> bool:
    if isinstance(first, Time) and isinstance(last, Time):
        return first.timestamp_ms > last.timestamp_ms
    if isinstance(first, int) and isinstance(last, int):
        return first > last
    if isinstance(first, BeforeEnd) and isinstance(last, BeforeEnd):
        return first.count < last.count
    return first == LATEST and last is not None and last != LATEST


def _shown(place: ReadPlace | None) -> str:
    if isinstance(place, Time):
        return datetime.fromtimestamp(place.timestamp_ms / 1000, UTC).isoformat()
    return f"-{place.count}" if isinstance(place, BeforeEnd) else str(place)


# -- with the cluster


def resolve(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    start: ReadBound,
    end: ReadBound,
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The range of each partition that has one, as of now.

    Raises ConfigError for offsets outside of a log, DataLostError for records that are gone.
    """
    for bound in (start, end):
        _check_named(bound, partitions)
    logs = _Logs(consumer, partitions)
    ends = {each: min(_offset(each, end, logs), logs.latest[each]) for each in partitions}
    starts = {each: _offset(each, start, logs) for each in partitions}
    if isinstance(start.everywhere, int) and partitions:
        longest = max(logs.latest.values())
        if start.everywhere > longest:
            raise ConfigError(
                f"start is {start.everywhere}, and the longest partition ends at {longest}: choose an "
                "earlier offset",
                setting="start",
            )
    ranges = []
    for each in partitions:
        first, last = starts[each], ends[each]
        if first < last:
            first = _without_lost(each, first, last, logs, fail_on_data_loss)
        if first < last:
            ranges.append(OffsetRange(each.topic, each.partition, first, last))
    return ranges


def _check_named(bound: ReadBound, partitions: Sequence[TopicPartition]) -> None:
    if bound.everywhere is not None:
        return
    missing = sorted(set(partitions) - bound.places.keys())
    unknown = sorted(bound.places.keys() - set(partitions))
    if unknown:
        raise ConfigError(
            f"{bound.name} names {', '.join(map(str, unknown))}, which is not read: leave it out",
            setting=bound.name,
        )
    if missing:
        raise ConfigError(
            f"{bound.name} does not name {', '.join(map(str, missing))}: name every partition, or choose "
            "some with partitions=[…]",
            setting=bound.name,
        )


class _Logs:
    """Where the logs start and end now, and what else bounds need."""

    def __init__(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._times: dict[int, dict[TopicPartition, int]] = {}
        self._committed: dict[TopicPartition, int] | None = None
        self.earliest = consumer.beginning_offsets(partitions) if partitions else {}
        self.latest = consumer.end_offsets(partitions) if partitions else {}

    def at(self, partition: TopicPartition, time: Time) -> int:
        """The first offset at a time. It may be past the end: a record may come while we ask."""
        wanted = time.timestamp_ms
        if wanted not in self._times:
            found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions, wanted))
            self._times[wanted] = {each: at.offset for each, at in found.items() if at is not None}
        return min(self._times[wanted].get(partition, _LARGEST), self.latest[partition])

    def committed(self, partition: TopicPartition) -> int | None:
        if self._committed is None:
            found = self._consumer.committed(self._partitions)
            self._committed = {each: at.offset for each, at in found.items() if at is not None}
        return self._committed.get(partition)


_INSTEAD: Final = {"start": "choose an earlier offset", "end": "leave end out to read up to there"}


def _offset(each: TopicPartition, bound: ReadBound, logs: _Logs) -> int:
    """Where a bound is in a partition. An offset, given or committed, may be past the end of the log."""
    last = logs.latest[each]
    match bound.of(each):
        case Time() as time:
            return logs.at(each, time)
        case BeforeEnd(count):
            return max(logs.earliest[each], last - count)
        case int(offset):
            if offset > last and bound.everywhere is None:
                raise ConfigError(
                    f"{bound.name} is {offset} in {each}, whose log ends at {last}: {_INSTEAD[bound.name]}",
                    setting=bound.name,
                )
            return offset
        case name if name == COMMITTED:
            # Without a committed offset, start at the beginning: nothing may be skipped.
            committed = logs.committed(each)
            return logs.earliest[each] if committed is None else committed
        case name:
            return logs.earliest[each] if name == EARLIEST else last


def _without_lost(each: TopicPartition, first: int, last: int, logs: _Logs, fail_on_data_loss: bool) -> int:
    """The start of what is left of [first, last): retention may have deleted its beginning."""
    left = logs.earliest[each]
    if left <= first:
        return first
    gone = OffsetRange(each.topic, each.partition, first, min(left, last))
    if fail_on_data_loss:
        raise DataLostError(
            f"{gone} cannot be read: the log starts at {left}. {REMEDY}",
            [(gone.topic, gone.partition, gone.start, gone.end)],
        )
    log.warning("%s is lost and skipped: the log starts at %d", gone, left)
    return left
