"""The status of a load: the sink's progress, the group's offsets and the ends of the logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.admin import Admin
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import Author, author_of, read_commit_metadata
from millstream.spark.load.decisions.losses import still_lost
from millstream.spark.load.decisions.starts import Refusal, Rules, Situation, Start, decide, progress_of
from millstream.spark.load.engine.planning import other_groups, situation_of
from millstream.spark.load.engine.topics import LoadedTopics
from millstream.spark.load.report import lost_values
from millstream.spark.sinks.base import LostRange, Sink
from millstream.spark.sinks.capabilities import names_of


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. ``loaded`` is the sink's progress, ``committed`` the group's offset, if any."""

    partition: TopicPartition
    loaded: int | None
    committed: int | None
    log_start: int
    log_end: int
    readable_end: int
    """The end of the log, or the last stable offset for a load that reads only committed transactions."""
    lag: int
    """Offsets that could be loaded and are not."""
    note: str
    """What the next run will do, if that is unusual."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "loaded": self.loaded,
            "committed": self.committed,
            "start": self.log_start,
            "end": self.log_end,
            "readable_end": self.readable_end,
            "lag": self.lag,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """The status of all partitions of a load."""

    group_id: str
    sink: str
    partitions: tuple[PartitionStatus, ...]
    lost: tuple[LostRange, ...]

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "group": self.group_id,
            "sink": self.sink,
            "lag": self.lag,
            "partitions": [one.as_dict() for one in self.partitions],
            "lost": [lost_values(one) for one in self.lost],
        }


def status(
    admin: Admin, sink: Sink, group_id: str, topics: Iterable[str] = (), *, pattern: str | None = None
) -> LoadStatus:
    """Read the status of a load, without changing anything. The load need not be running."""
    view = LoadedTopics(admin, list(topics), pattern=pattern)
    seen = view.look()
    standing = sink.standing(group_id, list(seen))
    committed = view.committed(group_id, seen)
    stable = _stable_ends(admin, committed, seen)
    rules = Rules(group_id, sink.name, known_as=names_of(sink))
    known = {one.topic for one in seen if standing[one].rows is not None}
    others = other_groups(sink, group_id, {one.topic for one in seen} - known)
    found: list[PartitionStatus] = []
    said: dict[tuple[str, str], int] = {}
    for one, there in seen.items():
        situation = situation_of(
            one,
            replace(there, stable_end=stable.get(one)),
            standing[one],
            committed.get(one),
            came_later=one.topic in known,
            others=others.get(one.topic, frozenset()),
        )
        found.append(_partition(situation, decide(situation, rules), rules, said))
    return LoadStatus(group_id, sink.name, tuple(found), tuple(still_lost(sink.lost(group_id))))


def _stable_ends(
    admin: Admin, committed: Mapping[TopicPartition, OffsetAndMetadata], seen: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The last stable offsets of partitions that are read only up to there.

    A load says so in the metadata of its commits; for a partition without one, other partitions decide.
    """
    written = {
        one: read_commit_metadata(committed[one].metadata) if one in committed else None for one in seen
    }
    others = any(each is not None and each.read_committed for each in written.values())
    partitions = [one for one, each in written.items() if (others if each is None else each.read_committed)]
    if not partitions:
        return {}
    found = admin.list_offsets(partitions, "latest", isolation_level="read_committed")
    return {one: at.offset for one, at in found.items() if at is not None}


def _partition(
    situation: Situation, decided: Start | Refusal, rules: Rules, said: dict[tuple[str, str], int]
) -> PartitionStatus:
    """``said`` holds the reasons of whole topics that were given, with the partition that had them first."""
    progress = progress_of(situation.standing)
    loaded = None if progress is None else progress.next_offset
    stable, end = situation.stable_end, situation.log_end
    readable = end if stable is None else min(stable, end)
    return PartitionStatus(
        partition=situation.partition,
        loaded=loaded,
        committed=None if situation.committed is None else situation.committed.offset,
        log_start=situation.log_start,
        log_end=end,
        readable_end=readable,
        lag=max(0, readable - max(loaded or 0, situation.log_start)),
        note=_note(situation, decided, rules, said) or _held_back(readable, end),
    )


def _note(
    situation: Situation, found: Start | Refusal, rules: Rules, said: dict[tuple[str, str], int]
) -> str:
    if isinstance(found, Refusal):
        topic, partition = situation.partition
        first = said.setdefault((topic, found.reason), partition) if found.of_topic else partition
        return found.reason if first == partition else f"as partition {first}"
    if found.note:
        return found.note
    if progress_of(situation.standing) is None:
        return "not loaded yet"
    if (
        found.repairs_group
        and author_of(situation.committed, rules.sink, *rules.known_as) is not Author.NO_ONE
    ):
        return "the group's offset will be repaired"
    return ""


def _held_back(readable: int, end: int) -> str:
    if readable == end:
        return ""
    return f"a transaction is open at {readable}: later records wait for its end"
