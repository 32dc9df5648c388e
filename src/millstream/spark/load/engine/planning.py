"""Plans a load's next step: reads sink, group and brokers, and decides where each partition starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

from millstream.errors import DataLostError, LoadFailedError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.cycles import Backlog
from millstream.spark.load.decisions.losses import goes_back, loaded_again
from millstream.spark.load.decisions.starts import (
    Refusal,
    Rules,
    Situation,
    Start,
    decide,
    is_recreated,
    may_lack_progress,
    other_sink,
    progress_of,
)
from millstream.spark.load.engine.topics import LoadedTopics, LogBounds
from millstream.spark.sinks.base import Advance, Cycle, Loss, LostRange, Progress, Sink, Standing, Written
from millstream.spark.sinks.capabilities import FindsRangeStart, ListsGroups

_PAST_ANY_OFFSET: Final = 1 << 62


class Aligned(Protocol):
    """Moves the offset of a rewind to where a row begins, for rows that aggregate many records."""

    def __call__(self, partition: TopicPartition, offset: int) -> int: ...


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The state of all partitions of the topics, and where the owned ones start."""

    seen: Mapping[TopicPartition, LogBounds]
    standing: Mapping[TopicPartition, Standing]
    starts: Mapping[TopicPartition, Start]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def anchors(self) -> list[TopicPartition]:
        """Partitions whose progress an empty commit must move before they are read."""
        return [one for one, start in self.starts.items() if start.anchors]

    @property
    def repairs(self) -> dict[TopicPartition, int]:
        """Offsets that must be committed to the group."""
        return {
            one: start.offset
            for one, start in self.starts.items()
            if start.repairs_group and not start.anchors
        }

    def advance(self, partition: TopicPartition, start: int, end: int) -> Advance:
        """The progress of one partition in the commit of a cycle."""
        topic_id = self.seen[partition].topic_id
        begins = self.starts[partition]
        lost_from = min((lost.start for lost in begins.lost), default=None)
        return Advance(
            *partition, topic_id, start, end, self.standing[partition], lost_from, alone=begins.alone
        )

    def backlogs(self, ends: Mapping[TopicPartition, int]) -> list[Backlog]:
        """What is to be loaded, up to ``ends``; nothing of partitions without an end."""
        found = []
        for one, start in self.starts.items():
            end = min(ends.get(one, 0), self.seen[one].readable_end)
            found.append(Backlog(one, start.offset, max(end, start.offset)))
        return found

    def position(self, partition: TopicPartition) -> int | None:
        """The sink's progress in a partition, owned or not; None if it has none of this topic."""
        progress = progress_of(self.standing[partition])
        topic_id = self.seen[partition].topic_id
        if progress is None or (topic_id and progress.topic_id not in ("", topic_id)):
            return None
        return progress.next_offset

    def reached(self, targets: Mapping[TopicPartition, int]) -> bool:
        """Whether the sink has all partitions up to their targets, or to the end of a truncated log."""
        for one, target in targets.items():
            if one not in self.seen:
                continue
            position = self.position(one)
            if position is None or position < min(target, self.seen[one].log_end):
                return False
        return True

    def lost(self, now: datetime) -> tuple[LostRange, ...]:
        """What will never be loaded once the anchors are committed."""
        return tuple(
            LostRange(*one, lost.start, lost.end, lost.reason, now, topic_id=self.seen[one].topic_id)
            for one in self.anchors
            for lost in self.starts[one].lost
        )

    @property
    def lag(self) -> int:
        """Offsets between the starts and what can be loaded now."""
        return sum(max(0, self.seen[one].readable_end - start.offset) for one, start in self.starts.items())

    def raise_refusals(self, sink: str, committed: int) -> None:
        """Raise one error for all partitions that cannot be loaded."""
        if not self.refusals:
            return
        reasons = "; ".join(_said_once(self.refusals)).rstrip(". ")
        reasons += (
            f". This run had committed {committed:,} rows to {sink} before: running it again is safe and "
            "continues there"
        )
        lost = [(*one.partition, gone.start, gone.end) for one in self.refusals for gone in one.lost]
        if all(refusal.lost for refusal in self.refusals):
            raise DataLostError(reasons, lost)
        raise LoadFailedError(reasons, sink, lost, committed)


def _said_once(refusals: Iterable[Refusal]) -> Iterator[str]:
    """Each reason once; one of a whole topic is followed by the partitions that it concerns."""
    found: dict[tuple[str, str, bool], list[int]] = {}
    for one in refusals:
        found.setdefault((one.reason, one.partition.topic, one.of_topic), []).append(one.partition.partition)
    for (reason, _, of_topic), partitions in found.items():
        yield f"{reason} ({_listed(partitions)})" if of_topic else reason


def _listed(partitions: list[int]) -> str:
    """``partition 3``, ``partitions 0 to 7 and 9``."""
    runs: list[list[int]] = []
    for one in sorted(partitions):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else " and ".join(map(str, run)) for run in runs]
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(words)}"


def other_groups(sink: Sink, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Other groups with progress of these topics in the sink, as far as it can tell."""
    wanted = sorted(topics)
    return sink.other_groups(group_id, wanted) if wanted and isinstance(sink, ListsGroups) else {}


def situation_of(
    partition: TopicPartition,
    seen: LogBounds,
    standing: Standing,
    committed: OffsetAndMetadata | None,
    *,
    came_later: bool = False,
    appeared: bool = False,
    others: frozenset[str] = frozenset(),
) -> Situation:
    """What brokers, sink and group say of a partition."""
    return Situation(
        partition=partition,
        standing=standing,
        committed=committed,
        topic_id=seen.topic_id,
        log_start=seen.log_start,
        log_end=seen.log_end,
        came_later=came_later,
        appeared=appeared,
        stable_end=seen.stable_end,
        others=others,
    )


class Planner:
    """Makes a plan for the partitions that the load owns."""

    def __init__(
        self, rules: Rules, topics: LoadedTopics, sink: Sink, aligned: Aligned | None = None
    ) -> None:
        self._rules = rules
        self._topics = topics
        self._sink = sink
        self._aligned = aligned
        self._at_start: frozenset[str] | None = None
        """The topics that were there at the first plan."""

    def plan(self, owned: Iterable[TopicPartition]) -> LoadPlan:
        """Read the state of sink, group and brokers, and decide where each owned partition starts."""
        seen = self._topics.look()
        if self._at_start is None:
            self._at_start = frozenset(one.topic for one in seen)
        standing = self._sink.standing(self._rules.group_id, list(seen))
        known = {one.topic for one in seen if standing[one].rows is not None}
        wanted = sorted(self._concerned(set(owned) & set(seen), set(seen), known))
        unknown = sorted(one for one in set(seen).difference(wanted) if standing[one].rows is None)
        committed = self._topics.committed(self._rules.group_id, [*wanted, *unknown])
        others = other_groups(self._sink, self._rules.group_id, {one.topic for one in wanted} - known)
        starts: dict[TopicPartition, Start] = {}
        refusals = [other_sink(one, committed.get(one), self._rules) for one in unknown]
        for one in wanted:
            situation = situation_of(
                one,
                seen[one],
                standing[one],
                committed.get(one),
                came_later=one.topic in known,
                appeared=self._has_appeared(one.topic, known),
                others=others.get(one.topic, frozenset()),
            )
            found = self._decide(situation)
            if isinstance(found, Refusal):
                refusals.append(found)
            else:
                starts[one] = found
        notes = [start.note for start in starts.values() if start.note]
        if self._topics.pattern is not None and not seen:
            notes.append(f"no topic matches the pattern {self._topics.pattern!r}")
        return LoadPlan(seen, standing, starts, tuple(filter(None, refusals)), tuple(notes))

    def _has_appeared(self, topic: str, known: set[str]) -> bool:
        """Whether a topic that a pattern matches was created since the load began."""
        assert self._at_start is not None
        return self._topics.pattern is not None and (bool(known) or topic not in self._at_start)

    def reach(self) -> None:
        """Query the group's coordinator; raises if it does not answer."""
        self._topics.reach(self._rules.group_id)

    def sizes(self, plan: LoadPlan) -> Mapping[TopicPartition, float]:
        """Average bytes per offset of each partition, where known."""
        return self._topics.sizes(plan.seen)

    def cycle(
        self, cycle_id: str, advances: Sequence[Advance], written: Sequence[Written], now: datetime
    ) -> Cycle:
        """The cycle to commit; it records what it loads of ranges that were recorded as lost."""
        group_id = self._rules.group_id
        recorded = self._sink.lost(group_id) if goes_back(advances) else ()
        loaded = tuple(
            LostRange(*step.where, start, end, Loss.LOADED, now, step.topic_id)
            for step, start, end in loaded_again(recorded, advances)
        )
        return Cycle(group_id, cycle_id, tuple(advances), tuple(written), loaded)

    def still_holds(self, plan: LoadPlan, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the topics of these partitions are still the ones that were planned for."""
        planned = {one.topic: plan.seen[one].topic_id for one in partitions}
        return self._topics.ids(planned) == planned

    def _concerned(
        self, owned: set[TopicPartition], every: set[TopicPartition], known: set[str]
    ) -> set[TopicPartition]:
        """The owned partitions. With "latest" the first driver sets the start of all partitions of a topic,
        or a second driver would take its own for partitions that were added later.
        """
        if self._rules.starting != "latest":
            return owned
        if self._topics.pattern is not None:  # all topics of a pattern start in one moment
            return owned if known else owned | every
        fresh = {one.topic for one in owned} - known
        return owned | {one for one in every if one.topic in fresh}

    def _decide(self, situation: Situation) -> Start | Refusal:
        if may_lack_progress(situation, self._rules) and isinstance(self._sink, FindsRangeStart):
            last_row = self._sink.range_start(*situation.partition, _PAST_ANY_OFFSET)
            situation = replace(situation, last_row=last_row)
        found = decide(situation, self._rules)
        if self._aligned is None or isinstance(found, Refusal) or not found.anchors:
            return found
        progress = progress_of(situation.standing)
        if progress is None or is_recreated(situation):
            return found
        return self._with_whole_rows(situation, found, progress, self._aligned)

    def _with_whole_rows(
        self, situation: Situation, found: Start, progress: Progress, aligned: Aligned
    ) -> Start | Refusal:
        """The start, moved to where a row begins: a row that aggregates records is recomputed as a whole."""
        if not progress.has_gap and progress.next_offset < min(progress.high_offset, found.offset):
            return self._half_made(situation, found.offset, progress)
        if found.offset >= progress.high_offset:
            return found
        moved = aligned(situation.partition, found.offset)
        if moved < progress.next_offset <= found.offset:
            moved = found.offset  # in a gap: rows before it are complete, and none reaches into it
        if moved < situation.log_start:
            return self._cut_row(situation, found.offset, moved, progress.high_offset)
        return replace(found, offset=moved)

    def _half_made(self, situation: Situation, wanted: int, progress: Progress) -> Refusal:
        """A rewind is under way: it may have deleted a row whose last records are not reloaded yet."""
        where, here, group = situation.partition, progress.next_offset, self._rules.group_id
        if situation.log_start > here:
            return Refusal(
                where,
                f"{where} was rewound and has reached {here} of {progress.high_offset}, and the log now "
                f"begins at {situation.log_start}: rows of this load aggregate many records each, and "
                "one whose records are partly deleted cannot be computed again. Load the rest into another "
                "table",
            )
        return Refusal(
            where,
            f"{where} cannot continue at {wanted}: it was rewound and has reached {here} of "
            f"{progress.high_offset}, and the rows of this load aggregate many records each, so that one may "
            f"be incomplete. Move the group back with 'millstream group reset {group}' to {here} or "
            "before, and let it finish",
        )

    def _cut_row(self, situation: Situation, wanted: int, stamped: int, high: int) -> Refusal:
        """Recomputed, the row would lack records; left as it is, they would count twice."""
        where, group = situation.partition, self._rules.group_id
        return Refusal(
            where,
            f"{where} cannot start at {wanted}: the row stamped {stamped} aggregates records that retention "
            f"has deleted (the log starts at {situation.log_start}), so it cannot be computed again. Move "
            f"the group with 'millstream group reset {group}' to an offset that a later row is stamped with, "
            f"or to {high}, up to which the table is loaded",
        )
