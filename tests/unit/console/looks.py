"""Snapshots for tests, as a round would have made them."""

from __future__ import annotations

from millstream.admin import ClusterDescription, GroupDescription, PartitionLag
from millstream.console.looking import GroupLook, PartitionLook, Snapshot, TopicLook


def topic(name: str, *bounds: tuple[int, int]) -> TopicLook:
    """A topic with these first and end offsets."""
    return TopicLook(
        name,
        topic_id=f"id-of-{name}",
        internal=False,
        replication_factor=1,
        partitions=tuple(
            PartitionLook(number, 1, (1,), start, end, 100) for number, (start, end) in enumerate(bounds)
        ),
    )


def group(name: str, *partitions: PartitionLag) -> GroupLook:
    return GroupLook(GroupDescription(name, "Empty", "consumer", "", None, (), partitions))


def snapshot(*looks: TopicLook | GroupLook) -> Snapshot:
    return Snapshot(
        ClusterDescription("a-cluster", None, ()),
        {one.name: one for one in looks if isinstance(one, TopicLook)},
        {one.name: one for one in looks if isinstance(one, GroupLook)},
    )
