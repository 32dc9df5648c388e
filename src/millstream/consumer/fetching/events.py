"""Events of the fetcher for its driver: what it needs, what its searches found, and what to log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.client.cluster import BrokerInfo
from millstream.consumer.fetching.partition_state import ResetStrategy
from millstream.model import OffsetAndTimestamp, TopicPartition


@dataclass(frozen=True, slots=True)
class MetadataNeeded:
    """What is known about these topics is missing or wrong: ask a broker, then call ``update_cluster``."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class CommittedNeeded:
    """Find the group's committed offsets, then call ``set_committed`` or ``failed`` with the token."""

    token: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class NewLeaders:
    """A broker named newer leaders (node id, epoch) and where they listen: for ``Cluster.with_leaders``."""

    leaders: Mapping[TopicPartition, tuple[int, int]]
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class OffsetsFound:
    """A search of ``find_offsets`` is done; None where a partition has no such record."""

    search: int
    offsets: Mapping[TopicPartition, OffsetAndTimestamp | None]


@dataclass(frozen=True, slots=True)
class OffsetsNotFound:
    """A search of ``find_offsets`` has failed or run out of time, and found nothing."""

    search: int
    error: Exception


@dataclass(frozen=True, slots=True)
class PositionLost:
    """The position is not in the log, or there never was one (None): the reset strategy decides. To log."""

    partition: TopicPartition
    offset: int | None
    strategy: ResetStrategy


@dataclass(frozen=True, slots=True)
class PositionReset:
    """A reset found the partition's new position. To log."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The log was cut below the position, which moved to where it was cut (KIP-320). To log."""

    partition: TopicPartition
    offset: int
    new_offset: int


FetchEvent = (
    MetadataNeeded
    | CommittedNeeded
    | NewLeaders
    | OffsetsFound
    | OffsetsNotFound
    | PositionLost
    | PositionReset
    | LogTruncated
)
