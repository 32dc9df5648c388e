"""Decides which offsets a batch covers and how they are cut into tasks. No I/O: what is known comes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.model import TopicPartition
from millstream.spark.planning.offsets import Offsets, StreamOffset
from millstream.spark.planning.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cluster says at one moment: topics with their ids, and each partition's log.

    Where the log begins may be left out for partitions that have been read before.
    """

    topic_ids: Mapping[str, str]
    earliest: Offsets
    latest: Offsets

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.latest)


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets that were to be read and are gone, and why."""

    lost: OffsetRange
    reason: str

    def __str__(self) -> str:
        return f"{self.lost} ({self.reason})"


# -- what is lost


def vanished(known: StreamOffset, topic_ids: Mapping[str, str], there: Iterable[TopicPartition]) -> set[str]:
    """Topics of the stream that the cluster does not have, or has without all their partitions.

    That may be true, or a reply of a broker that does not know better yet: ask again before it counts.
    """
    seen = set(there)
    return {each.topic for each in known.offsets if each.topic not in topic_ids or each not in seen}


def recreated(known: StreamOffset, topic_ids: Mapping[str, str]) -> set[str]:
    """Topics that have another id than when the stream read them last: offsets mean nothing in them."""
    return {
        topic
        for topic, topic_id in known.topic_ids.items()
        if topic_id and topic_ids.get(topic) and topic_ids[topic] != topic_id
    }


def went_back(known: StreamOffset, latest: Offsets) -> set[TopicPartition]:
    """Partitions whose log seems to end before what was read. A new leader may not know its end yet."""
    return {each for each, offset in known.offsets.items() if each in latest and latest[each] < offset}


def losses_of_topics(known: StreamOffset, seen: Seen) -> list[Loss]:
    """What a stream has lost between two batches, once what might have been a mistake was asked again."""
    anew = recreated(known, seen.topic_ids)
    gone = vanished(known, seen.topic_ids, seen.partitions) - anew
    losses = []
    for each, offset in sorted(known.offsets.items()):
        nothing = OffsetRange(each.topic, each.partition, offset, offset)
        if each.topic in anew:
            losses.append(
                Loss(nothing, "the topic was deleted and made anew: what was unread then is unknown")
            )
        elif each.topic in gone and each not in seen.partitions:
            losses.append(
                Loss(nothing, "the topic or partition does not exist any more, or is not subscribed to")
            )
        elif each in went_back(known, seen.latest):
            cut = OffsetRange(each.topic, each.partition, seen.latest[each], offset)
            losses.append(Loss(cut, "the log was cut, and its new records would be taken for read"))
    return losses


def losses_of_ranges(ranges: Iterable[OffsetRange], earliest: Offsets) -> list[Loss]:
    """What retention has taken of ranges that are about to be read."""
    losses = []
    for part in ranges:
        start = earliest.get(part.topic_partition, part.start)
        if start > part.start and part.end > part.start:
            gone = OffsetRange(part.topic, part.partition, part.start, min(start, part.end))
            losses.append(Loss(gone, f"the log starts at {start}"))
    return losses


def without(ranges: Iterable[OffsetRange], losses: Iterable[Loss]) -> list[OffsetRange]:
    """The ranges behind what retention has taken from their beginnings."""
    moved = {loss.lost.topic_partition: loss.lost.end for loss in losses}
    kept = (
        OffsetRange(part.topic, part.partition, max(part.start, moved.get(part.topic_partition, 0)), part.end)
        for part in ranges
        if moved.get(part.topic_partition, 0) <= part.end
    )
    return [part for part in kept if part.offsets]


# -- how far a batch goes


def settle(known: StreamOffset, seen: Seen) -> StreamOffset:
    """Where the stream stands in what there is now. What is gone is left out, what is new starts at its
    beginning, whatever ``startingOffsets`` said: records of a new partition were all written after that.
    """
    anew = recreated(known, seen.topic_ids)
    offsets = {}
    for each in seen.partitions:
        offset = known.offsets.get(each)
        if offset is None or each.topic in anew:
            offsets[each] = seen.earliest[each]
        else:
            offsets[each] = min(offset, seen.latest[each])
    ids = {topic: topic_id for topic, topic_id in seen.topic_ids.items() if topic_id}
    return StreamOffset(offsets, ids)


def advance(
    known: StreamOffset,
    settled: StreamOffset,
    latest: Offsets,
    *,
    most: int | None = None,
    target: Offsets | None = None,
) -> StreamOffset:
    """The end of the next batch: all there is, up to ``target`` and to ``most`` offsets in total.

    A partition that ``known`` has not, or has elsewhere, only takes its place in this batch, and is read from
    the next one on: so its start is written down with the batch, and never found out a second time.
    """
    start = {each: offset for each, offset in settled.offsets.items() if known.offsets.get(each) == offset}
    ends = {}
    for each, offset in start.items():
        end = latest[each] if target is None else min(latest[each], target.get(each, offset))
        ends[each] = max(offset, end)
    return StreamOffset({**settled.offsets, **limit(start, ends, most)}, settled.topic_ids)


def available(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between."""
    return sum(end[each] - start[each] for each in end if each in start)


def limit(start: Offsets, end: Offsets, most: int | None) -> dict[TopicPartition, int]:
    """Ends with at most ``most`` offsets before them in total, shared out in proportion to what there is.

    The shares add up to exactly ``most``, so that a stream always advances.
    """
    total = available(start, end)
    if most is None or total <= most:
        return dict(end)
    shares: dict[TopicPartition, int] = {}
    # Cumulative rounding: each share is right to one offset, and nothing is left over.
    before = 0
    for each in sorted(end):
        after = before + end[each] - start[each]
        shares[each] = start[each] + after * most // total - before * most // total
        before = after
    return shares


# -- tasks


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What to read of each partition that both know. A partition that only the end knows begins there."""
    return [
        OffsetRange(each.topic, each.partition, start[each], offset)
        for each, offset in sorted(end.items())
        if each in start and offset > start[each]
    ]


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut large ranges, so that each has at most ``max_records``, and there are about ``min_partitions``.

    Without either, one range is one task. Large ranges are cut first: each gets tasks in proportion.
    """
    parts = [part for part in ranges if part.offsets]
    if max_records is not None:
        parts = [piece for part in parts for piece in part.split(max_records)]
    if min_partitions is None or not parts or len(parts) >= min_partitions:
        return parts
    total = sum(part.offsets for part in parts)
    small = [part for part in parts if part.offsets * min_partitions < total]
    left = max(1, min_partitions - len(small))
    large_total = sum(part.offsets for part in parts if part not in small)
    pieces: list[OffsetRange] = []
    for part in parts:
        count = 1 if part in small else max(1, round(part.offsets * left / large_total))
        pieces += part.split(-(-part.offsets // count))
    return pieces
