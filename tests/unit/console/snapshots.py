"""Snapshots for tests, as a round would have made them."""

from __future__ import annotations

from millstream.admin import ClusterDescription, GroupDescription, PartitionLag
from millstream.console.cluster_snapshot import (
    ClusterSnapshot,
    SampledGroup,
    SampledPartition,
    SampledTopic,
)


def topic(name: str, *bounds: tuple[int, int]) -> SampledTopic:
    """A topic with these first and end offsets."""
    return SampledTopic(
        name,
        topic_id=f"id-of-{name}",
        internal=False,
        replication_factor=1,
        partitions=tuple(
            SampledPartition(number, 1, (1,), start, end, 100) for number, (start, end) in enumerate(bounds)
        ),
    )


def group(name: str, *partitions: PartitionLag) -> SampledGroup:
    return SampledGroup(GroupDescription(name, "Empty", "consumer", "", None, (), partitions))


def snapshot(*looks: SampledTopic | SampledGroup) -> ClusterSnapshot:
    return ClusterSnapshot(
        ClusterDescription("a-cluster", None, ()),
        {one.name: one for one in looks if isinstance(one, SampledTopic)},
        {one.name: one for one in looks if isinstance(one, SampledGroup)},
    )
