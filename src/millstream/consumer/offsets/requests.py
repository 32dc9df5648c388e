"""OffsetCommit and OffsetFetch, written and read in every version that brokers speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from millstream.consumer.membership.values import GroupMetadata
from millstream.consumer.offsets.values import Offsets
from millstream.errors import UnsupportedVersionError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_NO_EPOCH: Final = -1
_STATIC_SINCE: Final = 7
_STABLE_SINCE: Final = 7
_GROUPS_SINCE: Final = 8


def offset_commit(who: GroupMetadata, offsets: Offsets) -> Callable[[int], OffsetCommitRequest]:
    """Commit offsets as ``who``."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, []).append(_commit_partition(partition.partition, offset))

    def build(version: int) -> OffsetCommitRequest:
        if who.group_instance_id is not None and version < _STATIC_SINCE:
            raise UnsupportedVersionError(
                f"the broker is too old for commits of group_instance_id {who.group_instance_id!r}: "
                "static membership needs Kafka 2.3 or later"
            )
        return OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

    return build


def _commit_partition(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_codes(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def offset_fetch(group_id: str, partitions: Iterable[TopicPartition]) -> Callable[[int], OffsetFetchRequest]:
    """Ask for committed offsets; those of open transactions are waited for, if the broker can (KIP-447)."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)

    def build(version: int) -> OffsetFetchRequest:
        stable = version >= _STABLE_SINCE
        if version >= _GROUPS_SINCE:
            wanted = [OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in topics.items()]
            group = OffsetFetchRequestGroup(group_id=group_id, topics=wanted)
            return OffsetFetchRequest(groups=[group], require_stable=stable)
        return OffsetFetchRequest(
            group_id=group_id,
            topics=[OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in topics.items()],
            require_stable=stable,
        )

    return build


class Fetched(NamedTuple):
    """An answer to OffsetFetch: an error about the whole group, or what it says of each partition."""

    error_code: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    errors: Mapping[TopicPartition, int]


def read_fetched(response: OffsetFetchResponse) -> Fetched:
    """Read an answer of any version."""
    code = response.groups[0].error_code if response.groups else response.error_code
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    errors: dict[TopicPartition, int] = {}
    for topic, found in _partitions(response):
        partition = TopicPartition(topic, found.partition_index)
        if found.error_code:
            errors[partition] = found.error_code
        elif found.committed_offset < 0:
            offsets[partition] = None
        else:
            epoch = found.committed_leader_epoch
            leader_epoch = None if epoch == _NO_EPOCH else epoch
            offsets[partition] = OffsetAndMetadata(found.committed_offset, found.metadata or "", leader_epoch)
    return Fetched(code, offsets, errors)


def _partitions(
    response: OffsetFetchResponse,
) -> Iterator[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    for group in response.groups:
        for topics in group.topics:
            for partitions in topics.partitions:
                yield topics.name, partitions
    for topic in response.topics:
        for partition in topic.partitions:
            yield topic.name, partition
