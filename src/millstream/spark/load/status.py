"""How a load stands, seen from outside: the sink's progress, the group's offsets, the ends of the logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from millstream.admin import Admin
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions import Refusal, Rules, Situation, decide, progress_of
from millstream.spark.load.marks import Author, author_of
from millstream.spark.load.report import lost_values
from millstream.spark.load.topics import Topics
from millstream.spark.sinks.base import LostRange, Sink


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. ``loaded`` is where the sink stands, ``committed`` where the group does, if they do."""

    partition: TopicPartition
    loaded: int | None
    committed: int | None
    log_start: int
    log_end: int
    lag: int
    note: str
    """What the next run will do, if that is out of the ordinary."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "loaded": self.loaded,
            "committed": self.committed,
            "start": self.log_start,
            "end": self.log_end,
            "lag": self.lag,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """A load as it stands."""

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


def status(admin: Admin, sink: Sink, group_id: str, topics: Iterable[str]) -> LoadStatus:
    """Look at a load without touching it. Nobody need be running it."""
    view = Topics(admin, list(topics))
    seen = view.look()
    standing = sink.standing(group_id, list(seen))
    committed = view.committed(group_id, seen)
    rules = Rules(group_id, sink.name)
    found = []
    for one, there in seen.items():
        situation = Situation(
            one, standing[one], committed.get(one), there.topic_id, there.log_start, there.log_end
        )
        progress = progress_of(standing[one])
        loaded = None if progress is None else progress.next_offset
        found.append(
            PartitionStatus(
                partition=one,
                loaded=loaded,
                committed=committed[one].offset if one in committed else None,
                log_start=there.log_start,
                log_end=there.log_end,
                lag=max(0, there.log_end - max(loaded or 0, there.log_start)),
                note=_note(situation, rules, committed.get(one)),
            )
        )
    return LoadStatus(group_id, sink.name, tuple(found), tuple(sink.lost(group_id)))


def _note(situation: Situation, rules: Rules, committed: OffsetAndMetadata | None) -> str:
    found = decide(situation, rules)
    if isinstance(found, Refusal):
        return found.reason
    if found.note:
        return found.note
    if progress_of(situation.standing) is None:
        return "not loaded yet"
    if found.repairs_group and author_of(committed, rules.sink) is not Author.NOBODY:
        return "the group's offset will be repaired"
    return ""
