"""Late binding: a task of a batch looks up where its partition starts and ends when it runs.

Spark plans a Python source once for each ``load()``, and keeps the tasks. So a data frame, an RDD or a view
that is used again would never see new records, and fail once retention has passed its start. Only the edges
between the pieces of a split partition stay as planned: pieces that run at different moments overlap nowhere,
and leave no gap. One task also reads the partitions that no task was planned for: they were empty, or absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from millstream.model import TopicPartition
from millstream.spark.planning.losses import DataLoss
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading import pool
from millstream.spark.reading.reader import consumer_settings
from millstream.spark.source.bounds import batch_ranges, narrowed
from millstream.spark.source.client import SourceClient
from millstream.spark.source.offset_client import OffsetClient
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.values import NamedOffset

Found = tuple[list[OffsetRange], list[DataLoss]]


@dataclass(frozen=True, slots=True)
class LateRange:
    """What one task reads, as it was planned; it looks again when it runs."""

    part: OffsetRange | None
    """One piece of a partition; None if there was nothing to plan."""
    is_first: bool = True
    """Whether this piece begins where the partition is to begin, and not at ``part.start``."""
    is_last: bool = True
    planned: frozenset[TopicPartition] | None = None
    """In one task: all partitions that have tasks. It reads the others as well."""


def late_ranges(pieces: Sequence[OffsetRange]) -> list[LateRange]:
    """Tasks for ``pieces``, which are sorted."""
    tasks = []
    for index, part in enumerate(pieces):
        before = pieces[index - 1].topic_partition if index else None
        after = pieces[index + 1].topic_partition if index + 1 < len(pieces) else None
        own = part.topic_partition
        tasks.append(LateRange(part, is_first=before != own, is_last=after != own))
    tasks = tasks or [LateRange(None)]
    tasks[-1] = replace(tasks[-1], planned=frozenset(part.topic_partition for part in pieces))
    return tasks


def find_ranges(task: LateRange, options: SourceOptions) -> Iterator[Found]:
    """What the task reads now, and what of it is lost."""
    if task.part is not None:
        yield _own_range(task, task.part, options)
    if task.planned is not None:
        yield _other_ranges(task.planned, options)


def _own_range(task: LateRange, part: OffsetRange, options: SourceOptions) -> Found:
    settings = consumer_settings(options.settings, part)
    if NamedOffset.COMMITTED is options.starting:
        settings["group.id"] = options.group_id
    own = part.topic_partition
    with pool.borrowed(settings) as consumer:
        client = OffsetClient(consumer, options)
        now = client.offsets({}, [own])
        if not now.partitions:
            return [], [DataLoss(part, "the topic or partition no longer exists")]
        ranges, lost = batch_ranges(narrowed(options, [own]), now, client)
    low = 0 if task.is_first else part.start
    kept = []
    for found in ranges:
        start = max(found.start, low)
        end = found.end if task.is_last else min(found.end, part.end)
        if start < end:
            kept.append(OffsetRange(found.topic, found.partition, start, end))
    return kept, lost


def _other_ranges(planned: frozenset[TopicPartition], options: SourceOptions) -> Found:
    with closing(SourceClient(options)) as client:
        topic_ids, partitions = client.topics()
        others = [each for each in partitions if each not in planned]
        if not others:
            return [], []
        return batch_ranges(narrowed(options, others), client.offsets(topic_ids, others), client)
