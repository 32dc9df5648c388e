"""Data loss: offsets that should be read and that the log no longer has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.errors import DataLostError
from millstream.model import TopicPartition
from millstream.spark.planning.offsets import ClusterOffsets, Offsets, StreamOffset
from millstream.spark.planning.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Offsets that should be read and are gone, and why."""

    lost: OffsetRange
    reason: str

    def __str__(self) -> str:
        return f"{self.lost} ({self.reason})"


def lost_error(losses: Iterable[DataLoss]) -> DataLostError:
    """The error that names all losses."""
    found = list(losses)
    ranges = [(one.lost.topic, one.lost.partition, one.lost.start, one.lost.end) for one in found]
    return DataLostError(
        f"records were lost: {'; '.join(map(str, found))}. Start again from what is left (another checkpoint "
        "and startingOffsets), or continue without them with failOnDataLoss=false",
        ranges,
    )


def starts_at(each: TopicPartition, start: int, end: int, log_start: int) -> DataLoss:
    """[start, end) is lost because the log starts after it."""
    return DataLoss(OffsetRange(each.topic, each.partition, start, end), f"the log starts at {log_start}")


def ends_at(each: TopicPartition, start: int, end: int, log_end: int) -> DataLoss:
    """[start, end) is lost because the log ends before it."""
    return DataLoss(OffsetRange(each.topic, each.partition, start, end), f"the log ends at {log_end}")


def vanished(known: StreamOffset, topic_ids: Mapping[str, str], there: Iterable[TopicPartition]) -> set[str]:
    """Topics of the stream that the cluster does not have, or has with fewer partitions.

    A broker with outdated metadata may report the same: ask again before acting on it.
    """
    found = set(there)
    return {each.topic for each in known.offsets if each.topic not in topic_ids or each not in found}


def recreated(known: StreamOffset, topic_ids: Mapping[str, str]) -> set[str]:
    """Topics whose id has changed since the stream read them: old offsets mean nothing in them."""
    return {
        topic
        for topic, topic_id in known.topic_ids.items()
        if topic_id and topic_ids.get(topic) and topic_ids[topic] != topic_id
    }


def went_back(known: StreamOffset, latest: Offsets) -> set[TopicPartition]:
    """Partitions whose log ends before what was read. A new leader may report that for a moment."""
    return {each for each, offset in known.offsets.items() if each in latest and latest[each] < offset}


def losses_of_topics(known: StreamOffset, now: ClusterOffsets) -> list[DataLoss]:
    """What a stream lost between two batches. Call it after doubtful answers were asked for again."""
    replaced = recreated(known, now.topic_ids)
    gone = vanished(known, now.topic_ids, now.partitions) - replaced
    losses = []
    for each, offset in sorted(known.offsets.items()):
        nothing = OffsetRange(each.topic, each.partition, offset, offset)
        if each.topic in replaced:
            reason = "the topic was deleted and recreated: what was unread then is unknown"
            losses.append(DataLoss(nothing, reason))
        elif each.topic in gone and each not in now.partitions:
            reason = "the topic or partition no longer exists, or is no longer subscribed to"
            losses.append(DataLoss(nothing, reason))
        elif each in went_back(known, now.latest):
            cut = OffsetRange(each.topic, each.partition, now.latest[each], offset)
            losses.append(DataLoss(cut, "the log was truncated: its new records would count as read"))
    return losses


def existing(
    ranges: Iterable[OffsetRange], planned: StreamOffset, now: ClusterOffsets
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """The planned ranges whose topic is still the same, and what is lost with the others."""
    replaced = recreated(planned, now.topic_ids)
    there, lost = [], []
    for part in ranges:
        if part.topic in replaced:
            lost.append(DataLoss(part, "the topic was deleted and recreated"))
        elif part.topic_partition not in now.partitions:
            lost.append(DataLoss(part, "the topic or partition no longer exists"))
        else:
            there.append(part)
    return there, lost


def losses_of_ranges(ranges: Iterable[OffsetRange], earliest: Offsets) -> list[DataLoss]:
    """What retention has deleted from ``ranges``."""
    losses = []
    for part in ranges:
        start = earliest.get(part.topic_partition, part.start)
        if start > part.start and part.end > part.start:
            losses.append(starts_at(part.topic_partition, part.start, min(start, part.end), start))
    return losses


def losses_of_new_partitions(known: StreamOffset, settled: StreamOffset) -> list[DataLoss]:
    """What partitions that are new to the stream lost before they were first read."""
    return [
        starts_at(each, 0, offset, offset)
        for each, offset in sorted(settled.offsets.items())
        if each not in known.offsets and offset > 0
    ]


def without(ranges: Iterable[OffsetRange], losses: Iterable[DataLoss]) -> list[OffsetRange]:
    """``ranges`` without what retention has deleted from their beginnings."""
    moved = {loss.lost.topic_partition: loss.lost.end for loss in losses}
    kept = (
        OffsetRange(part.topic, part.partition, max(part.start, moved.get(part.topic_partition, 0)), part.end)
        for part in ranges
        if moved.get(part.topic_partition, 0) <= part.end
    )
    return [part for part in kept if part.offsets]
