"""Snapshots for tests, as a round would have made them."""

from __future__ import annotations

from millstream.admin import ClusterDescription, GroupDescription, PartitionLag
from millstream.console.cluster_snapshot import ClusterSnapshot, GroupState, PartitionState, TopicState


def topic(name: str, *bounds: tuple[int, int]) -> TopicState:
    """A topic with these first and end offsets."""
    return TopicState(
        name,
        topic_id=f"id-of-{name}",
        internal=False,
        replication_factor=1,
        partitions=tuple(
            PartitionState(number, 1, (1,), start, end, 100) for number, (start, end) in enumerate(bounds)
        ),
    )


def group(name: str, *partitions: PartitionLag) -> GroupState:
    return GroupState(GroupDescription(name, "Empty", "consumer", "", None, (), partitions))


def snapshot(*looks: TopicState | GroupState) -> ClusterSnapshot:
    return ClusterSnapshot(
        ClusterDescription("a-cluster", None, ()),
        {one.name: one for one in looks if isinstance(one, TopicState)},
        {one.name: one for one in looks if isinstance(one, GroupState)},
    )
