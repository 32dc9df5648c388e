"""Decides at which offset a partition starts, from the sink's progress and the group's offset. Pure.

The sink's progress P (of the slower of its two tables) and the group's committed offset G may disagree. P was
stored together with the rows, so it is the truth; G is followed only if it was moved on purpose.

| P | G was committed by | the load starts |
|-|-|-|
| yes | no one, or a load | at P; the group's offset is repaired if it differs |
| yes | a reset or a stranger, G = P | at P |
| yes | a reset or a stranger, G < P | at G: a rewind, replayed rows replace the earlier ones |
| yes | a reset, G > P | at G: a skip, what was never loaded of [P, G) is recorded as lost |
| yes | a stranger, G > P | the same, but an error if records are lost, unless that is accepted |
| no | a reset | at G |
| no | this load, before its first cycle | at G: it was about to begin there |
| no | this load | at the beginning of the log: the table was deleted or emptied |
| no, but rows | a reset or this load | an error if rows would be there twice: the progress was deleted |
| no | a load into another sink | an error: a group has one sink |
| no | a stranger, or no one | at ``starting``; a partition that was added later, at the start of its log |

If another group has loaded the topic into the same table, a group without progress of its own starts only at
an offset set by a reset: from the beginning it would load every record a second time.

Then the start is checked against the log:

- The stored topic id is not the topic's: it was deleted and recreated. An error, or with
  ``on_recreated="append"`` the load starts at the beginning of the new log (or at a reset's offset).
- The start lies before the log: what was never loaded of that is lost. An error, or with
  ``fail_on_data_loss=False`` recorded as lost, and the load goes on at the beginning of the log.
- The start lies past the end of the log: an error, never a silent reset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import Author, author_of, read_commit_metadata
from millstream.spark.sinks.base import Loss, Progress, Standing


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide where a load starts."""

    group_id: str
    sink: str
    starting: str = "earliest"
    fail_on_data_loss: bool = True
    on_recreated: str = "fail"
    known_as: tuple[str, ...] = ()
    """Further names of the sink in commits."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What sink, group and brokers say of a partition when a cycle is planned."""

    partition: TopicPartition
    standing: Standing
    committed: OffsetAndMetadata | None
    topic_id: str
    log_start: int
    log_end: int
    came_later: bool = False
    """The sink already has progress of other partitions of this topic."""
    appeared: bool = False
    """The topic was created since the load began, and a pattern matches it: none of it is skipped."""
    stable_end: int | None = None
    """The last stable offset, for a load that reads only committed transactions."""
    others: frozenset[str] = frozenset()
    """Other groups that have loaded this topic into this sink, as far as the sink can tell."""
    last_row: int | None = None
    """The last offset of this partition in a table that has no progress of it, as far as that was read."""


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets ``[start, end)`` that will never be in the table."""

    start: int
    end: int
    reason: Loss


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition starts, and what has to be committed before anything is read."""

    offset: int
    anchors: bool
    """The sink's progress is elsewhere: an empty commit must move it to ``offset`` first."""
    repairs_group: bool
    """The group's offset differs, or was committed by others: it must be committed again."""
    group_first: bool = False
    """The group's offset must be committed before the sink moves, or it would look like a seek."""
    alone: bool = False
    """The group is the first to load the topic into the sink: another that begins in the same moment must be
    refused by the first commit."""
    lost: tuple[LostOffsets, ...] = ()
    note: str = ""
    """What is unusual about this start, as a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the partition cannot be loaded, and what the user can do about it."""

    partition: TopicPartition
    reason: str
    lost: tuple[LostOffsets, ...] = ()
    passing: bool = False
    """It may be temporary, as after a change of leaders: look again before failing."""
    of_topic: bool = False
    """The reason concerns the whole topic and names no partition."""


def decide(situation: Situation, rules: Rules) -> Start | Refusal:
    """Where the partition starts: see the module."""
    if is_recreated(situation):
        return _recreated(situation, rules)
    found = _start(situation, rules)
    return found if isinstance(found, Refusal) else _within_log(situation, rules, found)


def progress_of(standing: Standing) -> Progress | None:
    """The progress of the slower of the two tables; None if the rows have none.

    What was ever loaded is what the rows' progress says: rejected rows past that are of a commit that stopped
    between the two tables. Without progress of the rows, that of the rejected rows means nothing: the table
    was deleted, or the very first commit stopped between the two.
    """
    if standing.rows is None:
        return None
    if standing.rejected is None:
        return standing.rows
    rows = standing.rows
    slower = min(rows, standing.rejected, key=lambda one: one.next_offset)
    return replace(slower, high_offset=rows.high_offset, low_offset=rows.low_offset, gap_end=rows.gap_end)


def _start(situation: Situation, rules: Rules) -> Start | Refusal:
    author = author_of(situation.committed, rules.sink, *rules.known_as)
    progress = progress_of(situation.standing)
    if progress is not None:
        return _resumed(situation, rules, progress, author)
    found = _first(situation, rules, author)
    if isinstance(found, Refusal):
        return found
    if situation.last_row is not None and situation.last_row >= found.offset:
        return _progress_deleted(situation, rules, found.offset, situation.last_row)
    return replace(found, alone=author in _NO_SEEK_REQUEST and not situation.came_later)


def _progress_deleted(situation: Situation, rules: Rules, start: int, last_row: int) -> Refusal:
    where, committed = situation.partition, situation.committed
    after = max(last_row + 1, 0 if committed is None else committed.offset)
    return Refusal(
        where,
        f"{rules.sink} holds rows of {where} up to offset {last_row}, but the progress of group "
        f"{rules.group_id} was deleted, and loading from {start} would add them a second time: delete the "
        f"rows as well, or go on behind them with 'millstream group reset {rules.group_id} --to {after} "
        f"--topic {where.topic}:{where.partition}'",
    )


def may_lack_progress(situation: Situation, rules: Rules) -> bool:
    """Whether a table without progress of this partition may hold rows of it: the group has loaded it before,
    or was moved on purpose. ``Situation.last_row`` should then be read.
    """
    author = author_of(situation.committed, rules.sink, *rules.known_as)
    return (
        situation.standing.rows is None
        and not situation.others
        and author in (Author.THIS_LOAD, Author.RESET)
    )


def _resumed(situation: Situation, rules: Rules, progress: Progress, author: Author) -> Start | Refusal:
    here = progress.next_offset
    committed = situation.committed
    if committed is None or author not in (Author.RESET, Author.STRANGER):
        is_ours = author is Author.THIS_LOAD and committed is not None and committed.offset == here
        return Start(here, anchors=False, repairs_group=not is_ours)
    there = committed.offset
    if there == here:
        return Start(here, anchors=False, repairs_group=True)
    if there < here:
        note = f"{situation.partition}: goes back from {here} to {there}, as the group's offset was moved"
        return Start(there, anchors=True, repairs_group=True, note=note)
    lost = _never_loaded(progress, here, there, Loss.SKIPPED)
    if lost and author is Author.STRANGER and rules.fail_on_data_loss:
        return _strangers_skip(situation, rules, there, lost)
    note = f"{situation.partition}: skips from {here} to {there}, as the group's offset was moved"
    return Start(there, anchors=True, repairs_group=True, lost=lost, note=note)


def _strangers_skip(situation: Situation, rules: Rules, there: int, lost: tuple[LostOffsets, ...]) -> Refusal:
    """A consumer that used the load's group commits what it has read: probably not meant as a skip."""
    where = situation.partition
    return Refusal(
        where,
        f"{where} {_spelled(lost)} would be skipped, as something other than a load has committed "
        f"{there} for group {rules.group_id}, perhaps a consumer that used this group: confirm that "
        f"with 'millstream group reset {rules.group_id}' to {there}, or with fail_on_data_loss=False "
        f"(--accept-data-loss); to load what would be missing, reset the group to {lost[0].start}",
        lost=lost,
    )


def _never_loaded(progress: Progress | None, start: int, end: int, reason: Loss) -> tuple[LostOffsets, ...]:
    """The part of ``[start, end)`` that would be missing if it is not read now; not rows that the table holds
    from before a rewind.
    """
    found = [(start, end)] if progress is None else progress.never_loaded(start, end)
    return tuple(LostOffsets(*each, reason) for each in found)


def _spelled(lost: tuple[LostOffsets, ...]) -> str:
    return " and ".join(f"[{each.start}, {each.end})" for each in lost)


_NO_SEEK_REQUEST: Final = (Author.NO_ONE, Author.STRANGER, Author.THIS_LOAD)
"""Authors whose offset does not say where a group without progress should start."""


def _first(situation: Situation, rules: Rules, author: Author) -> Start | Refusal:
    where, committed = situation.partition, situation.committed
    if situation.others and not situation.came_later and author in _NO_SEEK_REQUEST:
        return _other_group(situation, rules)
    earliest = Start(situation.log_start, anchors=True, repairs_group=True)
    chosen = earliest
    if rules.starting == "latest" and not (situation.came_later or situation.appeared):
        stable = situation.stable_end
        # It was read after the end, so it may be larger.
        latest = situation.log_end if stable is None else min(stable, situation.log_end)
        chosen = replace(earliest, offset=latest)
    if committed is None:
        return chosen
    match author:
        case Author.RESET | Author.THIS_LOAD_STARTING:
            return replace(earliest, offset=committed.offset)
        case Author.THIS_LOAD:
            note = (
                f"{where}: the group's offset is {committed.offset} and {rules.sink} has no progress, so "
                f"the table was deleted or emptied: starts over at {situation.log_start}"
            )
            return replace(earliest, note=note)
        case Author.OTHER_LOAD:
            return _other_sink(where, committed, rules)
        case _:
            note = (
                f"{where}: the group's offset {committed.offset} was committed by a consumer, not a load: it "
                f"is not trusted, and the load starts at {chosen.offset}"
            )
            return replace(chosen, group_first=True, note=note)


def other_sink(
    partition: TopicPartition, committed: OffsetAndMetadata | None, rules: Rules
) -> Refusal | None:
    """The refusal of a partition that the group loads into another sink; None if it does not.

    It concerns every member that loads partitions of the topic: each sink would get only a part.
    """
    if committed is None or author_of(committed, rules.sink, *rules.known_as) is not Author.OTHER_LOAD:
        return None
    return _other_sink(partition, committed, rules)


def _other_sink(partition: TopicPartition, committed: OffsetAndMetadata, rules: Rules) -> Refusal:
    written = read_commit_metadata(committed.metadata)
    other = "another sink" if written is None else written.sink
    return Refusal(
        partition,
        f"group {rules.group_id} loads {partition.topic} into {other}, and a group has one sink: choose "
        f"another group for {rules.sink}, or move this one with 'millstream group reset {rules.group_id}'",
        of_topic=True,
    )


def _other_group(situation: Situation, rules: Rules) -> Refusal:
    topic, group = situation.partition.topic, rules.group_id
    others = " and ".join(sorted(situation.others))
    return Refusal(
        situation.partition,
        f"group {others} has loaded {topic} into {rules.sink}, and with group {group} every record would be "
        f"there twice: load with group {others}, or into another table. To continue with the new group, stop "
        f"the old one and move the new one to its offsets, with 'millstream group reset "
        f"{group} --to OFFSET --topic {topic}:PARTITION' for each partition",
        of_topic=True,
    )


# ---- the log as it is now


def _within_log(situation: Situation, rules: Rules, found: Start) -> Start | Refusal:
    where = situation.partition
    if found.offset > situation.log_end:
        return Refusal(
            where,
            f"{where} would start at {found.offset}, but its log ends at {situation.log_end}: the log was "
            "truncated, or this is another cluster. Nothing is reset by itself: check the broker, then move "
            f"the group with 'millstream group reset {rules.group_id}'",
            passing=True,
        )
    if found.offset >= situation.log_start:
        return found
    return _behind_log(situation, rules, found)


def _behind_log(situation: Situation, rules: Rules, found: Start) -> Start | Refusal:
    """The log starts later. Rows from before a rewind are not lost, only not replaced."""
    where, log_start = situation.partition, situation.log_start
    progress = progress_of(situation.standing)
    lost = _never_loaded(progress, found.offset, log_start, Loss.RETENTION)
    if lost and rules.fail_on_data_loss:
        return Refusal(
            where,
            f"{where} {_spelled(lost)} was deleted before it was loaded, as the log starts at "
            f"{log_start}: accept that with fail_on_data_loss=False (--accept-data-loss), which records "
            "what is lost beside the table and goes on",
            lost=lost,
        )
    note = f"{where}: starts at {log_start} instead of {found.offset}, as the log begins there"
    return replace(
        found,
        offset=log_start,
        anchors=True,
        repairs_group=True,
        lost=found.lost + lost,
        note="; ".join(filter(None, (found.note, note))),
    )


# ---- another topic under the same name


def is_recreated(situation: Situation) -> bool:
    """Whether the topic was deleted and recreated since it was loaded; False if brokers have no topic ids."""
    stored = {
        one.topic_id for one in (situation.standing.rows, situation.standing.rejected) if one is not None
    }
    return bool(situation.topic_id) and bool(stored - {situation.topic_id, ""})


def _recreated(situation: Situation, rules: Rules) -> Start | Refusal:
    where = situation.partition
    if rules.on_recreated == "fail":
        return Refusal(
            where,
            f"topic {where.topic} was deleted and recreated since it was loaded into {rules.sink} (its id "
            'has changed): load the new one as well with on_recreated="append" (--on-recreated append), '
            "which keeps the rows of the old one, or choose another sink and group",
            of_topic=True,
        )
    start = situation.log_start
    if (
        author_of(situation.committed, rules.sink, *rules.known_as) is Author.RESET
        and situation.committed is not None
    ):
        start = situation.committed.offset
    note = f"{where}: the topic was recreated; its new records are added from {start} on"
    found = Start(start, anchors=True, repairs_group=True, group_first=True, note=note)
    fresh = replace(situation, standing=Standing(None, None))
    return _within_log(fresh, rules, found)
