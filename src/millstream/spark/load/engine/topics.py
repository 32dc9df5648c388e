"""Topic ids, log starts and ends from the brokers, read again where something seems to have vanished.

After a change of leaders an answer may be out of date for a moment.
"""

from __future__ import annotations

import base64
import logging
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.admin import Admin, LogDirDescription, TopicDescription
from millstream.errors import MillstreamError, UnknownTopicOrPartitionError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

log = logging.getLogger("millstream.spark.load")

_PATIENCE_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.25
_MEASURE_SECONDS: Final = 60.0
"""How long log sizes are reused: they are averages anyway."""
_REACH_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2.0
"""An unavailable broker must not delay a cycle for an average."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """A partition's topic id, and where its log starts and ends."""

    topic_id: str
    log_start: int
    log_end: int
    stable_end: int | None = None
    """The last stable offset, for a load that reads only committed transactions."""

    @property
    def readable_end(self) -> int:
        """The end of what can be loaded now."""
        return self.log_end if self.stable_end is None else min(self.stable_end, self.log_end)


class TopicQueries(Protocol):
    """The calls of an Admin that ``LoadedTopics`` makes."""

    def list_topics(self) -> list[str]: ...

    def describe_topics(self, topics: list[str]) -> dict[str, TopicDescription]: ...

    def list_offsets(
        self, partitions: list[TopicPartition], spec: str, *, isolation_level: str = ...
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...

    def group_offsets(
        self, group: str, partitions: list[TopicPartition] | None, *, timeout: float | None = ...
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def describe_log_dirs(self, *, timeout: float | None = ...) -> list[LogDirDescription]: ...


class LoadedTopics:
    """Reads the state of topics, and remembers it to notice what shrinks."""

    def __init__(
        self,
        brokers: Admin | TopicQueries,
        names: Sequence[str],
        *,
        pattern: str | None = None,
        read_committed: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Topics by their ``names``, or all whose whole name matches a ``pattern``."""
        self._brokers = brokers
        self._names = list(dict.fromkeys(names))
        self._pattern = None if pattern is None else re.compile(pattern)
        self._read_committed = read_committed
        self._clock = clock
        self._sleep = sleep
        self._ids: dict[str, str] = {}
        self._partitions: dict[str, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._sizes: dict[tuple[TopicPartition, str], float] = {}
        self._measured_at: float | None = None

    @property
    def pattern(self) -> str | None:
        return None if self._pattern is None else self._pattern.pattern

    def look(self) -> dict[TopicPartition, LogBounds]:
        """All partitions as they are now.

        If partitions are missing or a log's end went back it reads again, for up to five seconds: partitions
        of the same topic never get fewer, and ends rarely go back. A topic that was deleted is an error, but
        not if a pattern had found it.
        """
        deadline = self._clock() + _PATIENCE_SECONDS
        while True:
            try:
                seen = self._look_once()
            except UnknownTopicOrPartitionError:
                if not (self._ids or self._pattern) or self._clock() >= deadline:
                    raise
            else:
                if not self._has_shrunk(seen) or self._clock() >= deadline:
                    self._remember(seen)
                    return seen
            self._sleep(_LOOK_AGAIN_SECONDS)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """The current ids of these topics; empty if one does not exist."""
        try:
            described = self._brokers.describe_topics(list(names))
        except UnknownTopicOrPartitionError:
            return {}
        return _ids(described)

    def sizes(self, seen: Mapping[TopicPartition, LogBounds]) -> dict[TopicPartition, float]:
        """Average bytes per offset, from the size of each log. Partitions whose brokers do not report a size
        (it needs permission to describe the cluster) are left out.
        """
        now = self._clock()
        if self._measured_at is None or now - self._measured_at >= _MEASURE_SECONDS:
            self._measured_at = now
            self._sizes = {
                (one, seen[one].topic_id): size / (seen[one].log_end - seen[one].log_start)
                for one, size in self._measure(seen).items()
                if size > 0 and seen[one].log_end > seen[one].log_start
            }
        known = {one: self._sizes.get((one, there.topic_id)) for one, there in seen.items()}
        return {one: size for one, size in known.items() if size is not None}

    def _measure(self, wanted: Container[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            directories = self._brokers.describe_log_dirs(timeout=_ANSWER_SECONDS)
        except MillstreamError as error:
            log.info("cycles are bounded without record sizes, as brokers do not report them: %s", error)
            return {}
        found: dict[TopicPartition, int] = {}
        for each in (replica for directory in directories for replica in directory.replicas):
            where = TopicPartition(each.topic, each.partition)
            if where in wanted and not each.is_future:  # replicas that lag behind are smaller
                found[where] = max(found.get(where, 0), each.size_bytes)
        return found

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, of partitions that have one."""
        wanted = list(partitions)
        return self._brokers.group_offsets(group, wanted) if wanted else {}

    def reach(self, group: str) -> None:
        """Query the group's coordinator; raises if it does not answer within a few seconds."""
        where = [TopicPartition(name, 0) for name in self._expected]
        self._brokers.group_offsets(group, where or None, timeout=_REACH_SECONDS)

    @property
    def _expected(self) -> Iterable[str]:
        """Topics that should be there: those that were named, or found before."""
        return self._names if self._pattern is None else self._ids

    def _wanted(self) -> list[str]:
        if self._pattern is None:
            return self._names
        return [name for name in self._brokers.list_topics() if self._pattern.fullmatch(name)]

    def _look_once(self) -> dict[TopicPartition, LogBounds]:
        described = self._brokers.describe_topics(self._wanted())
        ids = _ids(described)
        partitions = [
            TopicPartition(name, each.partition)
            for name, topic in described.items()
            for each in topic.partitions
        ]
        if not partitions:
            return {}
        starts = self._brokers.list_offsets(partitions, "earliest")
        ends = self._brokers.list_offsets(partitions, "latest")
        stable = self._stable_ends(partitions)
        return {
            one: LogBounds(ids[one.topic], _offset(starts, one), _offset(ends, one), stable.get(one))
            for one in sorted(partitions)
        }

    def _stable_ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if not self._read_committed:
            return {}
        found = self._brokers.list_offsets(partitions, "latest", isolation_level="read_committed")
        return {one: _offset(found, one) for one in partitions}

    def _has_shrunk(self, seen: Mapping[TopicPartition, LogBounds]) -> bool:
        counts = _counts(seen)
        ids = {one.topic: each.topic_id for one, each in seen.items()}
        for topic in self._expected:
            if topic not in counts:
                return True
            if self._ids.get(topic, ids[topic]) == ids[topic] and counts[topic] < self._partitions.get(
                topic, 0
            ):
                return True
        return any(
            each.log_end < self._ends.get(one, 0)
            for one, each in seen.items()
            if self._ids.get(one.topic) == each.topic_id
        )

    def _remember(self, seen: Mapping[TopicPartition, LogBounds]) -> None:
        self._partitions = _counts(seen)
        self._ids = {one.topic: each.topic_id for one, each in seen.items()}
        self._ends = {one: each.log_end for one, each in seen.items()}


def _ids(described: Mapping[str, TopicDescription]) -> dict[str, str]:
    return {name: _hexadecimal(topic.topic_id) for name, topic in described.items()}


def _counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in partitions:
        counts[one.topic] = counts.get(one.topic, 0) + 1
    return counts


def _offset(found: Mapping[TopicPartition, OffsetAndTimestamp | None], one: TopicPartition) -> int:
    place = found[one]
    return 0 if place is None else place.offset


def _hexadecimal(topic_id: str) -> str:
    """A topic id as progress stores it, from Kafka's base64 form."""
    return base64.urlsafe_b64decode(topic_id + "==").hex() if topic_id else ""
