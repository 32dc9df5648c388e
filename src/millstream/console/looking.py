"""One round of admin calls, and the snapshot that it makes: the cluster, its topics, its groups.

Calls block, so rounds run on a thread. What vanishes while a round is under way (a topic is deleted, a group
ends) is left out of the snapshot; only brokers that do not answer make a round fail.
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
from millstream.console.views.sampling import Sample
from millstream.errors import (
    BrokerError,
    GroupIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata, TopicPartition

CALL_SECONDS: Final = 5.0
_SIZES_SECONDS: Final = 5.0
"""How often sizes are asked for, unless there are new partitions: brokers look at every file for it."""
_TRIES: Final = 10
_CLASSIC: Final = ("", "classic")


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """One partition. Offsets and size are None where nobody could tell them."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    start: int | None
    end: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """The offsets between start and end: as many records, except where compaction took some."""
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class TopicLook:
    """One topic and its partitions."""

    name: str
    topic_id: str
    internal: bool
    replication_factor: int
    partitions: tuple[PartitionLook, ...]

    @property
    def records(self) -> int | None:
        return _sum(one.records for one in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        return _sum(one.size_bytes for one in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupLook:
    """One group. ``note`` says why something about it is not known."""

    description: GroupDescription
    note: str = ""

    @property
    def name(self) -> str:
        return self.description.group_id

    @property
    def lag(self) -> int | None:
        """All lags that are known, together; None for a group that has committed nothing."""
        return _sum(one.lag for one in self.description.partitions)

    @property
    def topics(self) -> list[str]:
        """What it reads, or has committed offsets of."""
        subscribed = {topic for member in self.description.members for topic in member.topics}
        return sorted(subscribed | {one.topic for one in self.description.partitions})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, as it was found in one round."""

    cluster: ClusterDescription
    topics: Mapping[str, TopicLook] = field(default_factory=dict)
    groups: Mapping[str, GroupLook] = field(default_factory=dict)

    def sample(self, at_ms: int) -> Sample:
        """What rates and charts are made of."""
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


class Looker:
    """Makes snapshots with an Admin; for one thread at a time."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._sizes: dict[TopicPartition, int] = {}
        self._sizes_due_s = 0.0
        self._sized: set[TopicPartition] = set()
        """Which partitions there were when sizes were asked for."""

    def look(self) -> Snapshot:
        """Ask for everything. Raises when the brokers do not answer."""
        cluster = _cluster(self._admin)
        described = _topics(self._admin)
        led = [
            one.topic_partition for topic in described for one in topic.partitions if one.leader is not None
        ]
        starts = _offsets(self._admin, led, "earliest")
        ends = _offsets(self._admin, led, "latest")
        self._look_at_sizes(led)
        topics = {topic.name: _topic(topic, starts, ends, self._sizes) for topic in described}
        groups: dict[str, GroupLook] = {}
        for listing in self._admin.list_groups(timeout=CALL_SECONDS):
            # Kafka lists offsets that were committed without a group's name under an empty one.
            if listing.group_id and (found := _group(self._admin, listing, ends)) is not None:
                groups[listing.group_id] = found
        return Snapshot(cluster, topics, groups)

    def _look_at_sizes(self, partitions: list[TopicPartition]) -> None:
        now_s = time.monotonic()
        if now_s < self._sizes_due_s and self._sized.issuperset(partitions):
            return
        self._sizes_due_s = now_s + _SIZES_SECONDS
        self._sized = set(partitions)
        sizes: dict[TopicPartition, int] = {}
        try:
            directories = self._admin.describe_log_dirs(timeout=CALL_SECONDS)
        except BrokerError:  # not every broker tells everybody
            directories = []
        for replica in (each for directory in directories for each in directory.replicas):
            if not replica.is_future:
                one = TopicPartition(replica.topic, replica.partition)
                sizes[one] = max(replica.size_bytes, sizes.get(one, 0))
        self._sizes = sizes


def _cluster(admin: Admin) -> ClusterDescription:
    try:
        return admin.describe_cluster(timeout=CALL_SECONDS)
    except UnsupportedVersionError:  # before Kafka 2.8 brokers could not be asked for it
        return ClusterDescription("", None, ())


def _topics(admin: Admin) -> list[TopicDescription]:
    """All topics there are. One that is deleted between two questions is asked for no more."""
    for tries_left in reversed(range(_TRIES)):
        names = admin.list_topics(internal=True, timeout=CALL_SECONDS)
        try:
            return list(admin.describe_topics(names, timeout=CALL_SECONDS).values()) if names else []
        except UnknownTopicOrPartitionError:
            if not tries_left:
                raise
    raise AssertionError("the last try has returned or raised")


def _offsets(admin: Admin, partitions: list[TopicPartition], spec: str) -> dict[TopicPartition, int]:
    """Where partitions begin or end; those that nobody leads, or that are gone, are left out."""
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
) -> TopicLook:
    return TopicLook(
        name=topic.name,
        topic_id=topic.topic_id,
        internal=topic.internal,
        replication_factor=topic.replication_factor,
        partitions=tuple(
            PartitionLook(
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


def _group(admin: Admin, listing: GroupListing, ends: Mapping[TopicPartition, int]) -> GroupLook | None:
    """A group with its lag; None for one that has ended since it was listed.

    The ends are those of the round: ``Admin.describe_group`` would ask for them once more for each group.
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
    return GroupLook(replace(description, partitions=_lags(description, committed, ends)), note)


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
    """All that is known, together; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
