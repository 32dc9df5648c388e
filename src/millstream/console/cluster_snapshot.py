"""A snapshot of the cluster, its topics and groups, read by one round of admin calls.

The calls block, so rounds run on a thread. A topic or group that is deleted during a round is left out; a
round fails only when brokers do not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.admin import (
    Admin,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    PartitionLag,
    TopicDescription,
)
from millstream.console.errors import NotFoundError
from millstream.console.views.sampling import Sample
from millstream.errors import (
    BrokerError,
    GroupIdNotFoundError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.suggestions import nearest
from millstream.terminal.topic_reads import describe_all_topics, partition_sizes

CALL_SECONDS: Final = 5.0
_SIZES_SECONDS: Final = 5.0
"""How often sizes are read, unless there are new partitions: brokers check every file for them."""
_MOST_NEAR: Final = 3
_CLASSIC: Final = ("", "classic")


@dataclass(frozen=True, slots=True)
class SampledPartition:
    """One partition. Offsets and size are None where they could not be read."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    start: int | None
    end: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """The number of offsets from start to end; compaction may have removed some of the records."""
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """One topic and its partitions."""

    name: str
    topic_id: str
    internal: bool
    replication_factor: int
    partitions: tuple[SampledPartition, ...]

    def partition(self, number: int) -> SampledPartition:
        """A partition; raises NotFoundError."""
        for one in self.partitions:
            if one.partition == number:
                return one
        raise NotFoundError("partition", f"{self.name}-{number}")

    @property
    def records(self) -> int | None:
        return _sum(one.records for one in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        return _sum(one.size_bytes for one in self.partitions)


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """One group. ``note`` says why something about it is not known."""

    description: GroupDescription
    note: str = ""

    @property
    def name(self) -> str:
        return self.description.group_id

    @property
    def lag(self) -> int | None:
        """The sum of all known lags; None for a group without commits."""
        return _sum(one.lag for one in self.description.partitions)

    @property
    def topics(self) -> list[str]:
        """The topics that it reads or has committed offsets for."""
        subscribed = {topic for member in self.description.members for topic in member.topics}
        return sorted(subscribed | {one.topic for one in self.description.partitions})


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster as one round found it."""

    cluster: ClusterDescription
    topics: Mapping[str, SampledTopic] = field(default_factory=dict)
    groups: Mapping[str, SampledGroup] = field(default_factory=dict)

    def topic(self, name: str) -> SampledTopic:
        """A topic; raises NotFoundError."""
        if name not in self.topics:
            raise NotFoundError("topic", name, nearest(name, self.topics, count=_MOST_NEAR, cutoff=0.5))
        return self.topics[name]

    def group(self, name: str) -> SampledGroup:
        """A group; raises NotFoundError."""
        if name not in self.groups:
            raise NotFoundError("group", name, nearest(name, self.groups, count=_MOST_NEAR, cutoff=0.5))
        return self.groups[name]

    def sample(self, at_ms: int) -> Sample:
        """The offsets and lags for rates and charts."""
        return Sample(
            at_ms=at_ms,
            ends={
                TopicPartition(topic.name, one.partition): one.end
                for topic in self.topics.values()
                for one in topic.partitions
                if one.end is not None
            },
            committed={
                name: {
                    TopicPartition(one.topic, one.partition): one.committed
                    for one in group.description.partitions
                    if one.committed is not None
                }
                for name, group in self.groups.items()
            },
            lags={name: group.lag for name, group in self.groups.items() if group.lag is not None},
        )


class SnapshotReader:
    """Reads snapshots with an Admin; for one thread at a time."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._sizes: dict[TopicPartition, int] = {}
        self._sizes_due_s = 0.0
        self._sized: set[TopicPartition] = set()
        """The partitions that existed when sizes were read."""

    def read(self) -> ClusterSnapshot:
        """Read everything. Raises when the brokers do not answer."""
        cluster = _cluster(self._admin)
        described = list(describe_all_topics(self._admin, internal=True, timeout=CALL_SECONDS).values())
        led = [
            one.topic_partition for topic in described for one in topic.partitions if one.leader is not None
        ]
        starts = _offsets(self._admin, led, "earliest")
        ends = _offsets(self._admin, led, "latest")
        self._read_sizes(led)
        topics = {topic.name: _topic(topic, starts, ends, self._sizes) for topic in described}
        groups: dict[str, SampledGroup] = {}
        for listing in self._admin.list_groups(timeout=CALL_SECONDS):
            # Kafka lists offsets that were committed without a group's name under an empty one.
            if listing.group_id and (found := _group(self._admin, listing, ends)) is not None:
                groups[listing.group_id] = found
        return ClusterSnapshot(cluster, topics, groups)

    def _read_sizes(self, partitions: list[TopicPartition]) -> None:
        now_s = time.monotonic()
        if now_s < self._sizes_due_s and self._sized.issuperset(partitions):
            return
        self._sizes_due_s = now_s + _SIZES_SECONDS
        self._sized = set(partitions)
        self._sizes = partition_sizes(self._admin, timeout=CALL_SECONDS)


def _cluster(admin: Admin) -> ClusterDescription:
    try:
        return admin.describe_cluster(timeout=CALL_SECONDS)
    except UnsupportedVersionError:  # before Kafka 2.8
        return ClusterDescription("", None, ())


def _offsets(admin: Admin, partitions: list[TopicPartition], spec: str) -> dict[TopicPartition, int]:
    """The first or end offsets; partitions without a leader, or that are gone, are left out."""
    left = partitions
    while left:
        try:
            found = admin.list_offsets(left, spec, timeout=CALL_SECONDS)
        except BrokerError as error:
            failures: Mapping[object, object] = getattr(error, "failures", {})
            still = [one for one in left if one not in failures]
            if len(still) == len(left):
                raise
            left = still
        else:
            return {one: place.offset for one, place in found.items() if place is not None}
    return {}


def _topic(
    topic: TopicDescription,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    sizes: Mapping[TopicPartition, int],
) -> SampledTopic:
    return SampledTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        internal=topic.internal,
        replication_factor=topic.replication_factor,
        partitions=tuple(
            SampledPartition(
                partition=one.partition,
                leader=one.leader,
                replicas=one.replicas,
                start=starts.get(one.topic_partition),
                end=ends.get(one.topic_partition),
                size_bytes=sizes.get(one.topic_partition),
            )
            for one in topic.partitions
        ),
    )


def _group(admin: Admin, listing: GroupListing, ends: Mapping[TopicPartition, int]) -> SampledGroup | None:
    """A group with its lag; None for one that was deleted since it was listed.

    ``ends`` are those of the round: ``Admin.describe_group`` would read them again for each group.
    """
    note = ""
    description = GroupDescription(
        listing.group_id, listing.state, listing.protocol_type, "", None, members=(), partitions=()
    )
    committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
    try:
        description = admin.describe_group(listing.group_id, lag=False, timeout=CALL_SECONDS)
    except GroupIdNotFoundError:
        if listing.type.lower() in _CLASSIC:
            return None
        note = f"a group of the type {listing.type}: its members are not shown"
    except BrokerError as error:
        note = str(error)
    try:
        committed = admin.group_offsets(listing.group_id, timeout=CALL_SECONDS)
    except BrokerError as error:
        note = note or str(error)
    return SampledGroup(replace(description, partitions=_lags(description, committed, ends)), note)


def _lags(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
) -> tuple[PartitionLag, ...]:
    readers = {partition: member for member in group.members for partition in member.assignment}
    lags = []
    for one in sorted({*committed, *readers}):
        place, end = committed.get(one), ends.get(one)
        lags.append(
            PartitionLag(
                topic=one.topic,
                partition=one.partition,
                committed=None if place is None else place.offset,
                end=end,
                lag=None if place is None or end is None else max(0, end - place.offset),
                metadata="" if place is None else place.metadata,
                member=readers.get(one),
            )
        )
    return tuple(lags)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
