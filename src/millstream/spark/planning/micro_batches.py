"""Where the next micro-batch of a stream starts and ends."""

from __future__ import annotations

from collections.abc import Collection

from millstream.model import TopicPartition
from millstream.spark.planning.losses import recreated
from millstream.spark.planning.offsets import ClusterOffsets, Offsets, StreamOffset


def settle(known: StreamOffset, now: ClusterOffsets, kept: Collection[str] = ()) -> StreamOffset:
    """The stream's position in the partitions that exist now.

    A partition that is gone is left out, unless its topic is in ``kept``, or nothing would be left: if it
    comes back, the stream continues where it was. A new one starts at its beginning, whatever
    ``startingOffsets`` said: all of its records were written later.
    """
    if not now.partitions:
        return known
    replaced = recreated(known, now.topic_ids)
    offsets = {}
    for each in now.partitions:
        offset = known.offsets.get(each)
        if offset is None or each.topic in replaced:
            offsets[each] = now.earliest[each]
        else:
            offsets[each] = min(offset, now.latest[each])
    gone = {each: n for each, n in known.offsets.items() if each.topic in kept and each not in offsets}
    offsets |= gone
    ids = {each.topic: known.topic_ids.get(each.topic, "") for each in gone} | dict(now.topic_ids)
    ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
    return StreamOffset(offsets, ids)


def advance(
    known: StreamOffset,
    settled: StreamOffset,
    latest: Offsets,
    *,
    most: int | None = None,
    target: Offsets | None = None,
) -> StreamOffset:
    """The end of the next batch: ``latest``, at most ``target``, and at most ``most`` offsets in total.

    A partition that ``known`` lacks, or has at another offset, only gets its start in this batch, and is read
    from the next one on: its start is then in the checkpoint, and never resolved a second time.
    """
    start = {
        each: n for each, n in settled.offsets.items() if known.offsets.get(each) == n and each in latest
    }
    ends = {}
    for each, offset in start.items():
        end = latest[each] if target is None else min(latest[each], target.get(each, offset))
        ends[each] = max(offset, end)
    return StreamOffset({**settled.offsets, **limit(start, ends, most)}, settled.topic_ids)


def available(start: Offsets, end: Offsets) -> int:
    """The number of offsets between ``start`` and ``end``."""
    return sum(end[each] - start[each] for each in end if each in start)


def limit(start: Offsets, end: Offsets, most: int | None) -> dict[TopicPartition, int]:
    """Ends with about ``most`` offsets in total, shared in proportion to what each partition has.

    A share below 1 is 1, so that no partition starves beside a large one: only these exceed ``most``.
    """
    total = available(start, end)
    if most is None or total <= most:
        return dict(end)
    shares: dict[TopicPartition, int] = {}
    # Cumulative rounding: each share is right to one offset, and nothing is left over.
    before = 0
    for each in sorted(end):
        after = before + end[each] - start[each]
        share = after * most // total - before * most // total
        shares[each] = start[each] + (share or min(1, end[each] - start[each]))
        before = after
    return shares
