"""The offsets that groups have committed: read, write and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.admin.call import AdminCall, Outcome, by_topic
from millstream.client.targets import CoordinatorOf
from millstream.errors import NonEmptyGroupError, UnknownMemberIdError, raise_for_code
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_Fetched = OffsetFetchResponsePartition | OffsetFetchResponsePartitions

_FIRST_VERSION_WITH_GROUPS = 8
_NO_OFFSET = -1


def committed_offsets(
    call: AdminCall, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed, for ``partitions`` or for all; those without a commit are left out."""
    indexes = None if partitions is None else by_topic((one, one.partition) for one in partitions)

    def check(response: OffsetFetchResponse) -> None:
        codes = [response.error_code, *(one.error_code for one in response.groups)]
        codes += [found.error_code for _, found in _fetched(response)]
        for code in codes:
            raise_for_code(code, f"group {group}")

    response = call.send(
        CoordinatorOf(group),
        OffsetFetchResponse,
        lambda version: _fetch_request(group, indexes, version),
        check,
    )
    return {
        partition: OffsetAndMetadata(
            found.committed_offset,
            found.metadata or "",
            found.committed_leader_epoch if found.committed_leader_epoch >= 0 else None,
        )
        for partition, found in _fetched(response)
        if found.committed_offset != _NO_OFFSET
    }


def commit_offsets(call: AdminCall, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit offsets for a group without members."""

    def ask(partitions: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[None]]:
        grouped = by_topic(
            (
                one,
                OffsetCommitRequestPartition(
                    partition_index=one.partition,
                    committed_offset=offsets[one].offset,
                    committed_metadata=offsets[one].metadata,
                ),
            )
            for one in partitions
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in grouped.items()],
        )
        return _outcomes(call, group, call.send(CoordinatorOf(group), OffsetCommitResponse, request))

    call.each(offsets, ask)


def delete_offsets(call: AdminCall, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete what a group has committed for these partitions."""

    def check(response: OffsetDeleteResponse) -> None:
        raise_for_code(response.error_code, f"group {group}")

    def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[None]]:
        grouped = by_topic((one, OffsetDeleteRequestPartition(partition_index=one.partition)) for one in left)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in grouped.items()],
        )
        return _outcomes(call, group, call.send(CoordinatorOf(group), OffsetDeleteResponse, request, check))

    call.each(partitions, ask)


def non_empty_group(group: str, clients: Iterable[str] = ()) -> NonEmptyGroupError:
    """The error for a group that cannot be changed while it has members."""
    named = ", ".join(sorted(set(clients)))
    return NonEmptyGroupError(f"group {group} has members{f' ({named})' if named else ''}")


def _outcomes(call: AdminCall, group: str, response: Any) -> dict[TopicPartition, Outcome[None]]:
    outcomes: dict[TopicPartition, Outcome[None]] = {}
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            outcome = call.coordinator_outcome(group, result.error_code, f"group {group}, {partition}")
            # This is how a broker says that the group has members: we are not one of them.
            is_member = isinstance(outcome, UnknownMemberIdError)
            outcomes[partition] = non_empty_group(group) if is_member else outcome
    return outcomes


def _fetch_request(group: str, indexes: dict[str, list[int]] | None, version: int) -> OffsetFetchRequest:
    """The request in the form of this version: for one group, or since version 8 for a list of groups."""
    named = indexes.items() if indexes else ()
    if version < _FIRST_VERSION_WITH_GROUPS:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in named]
        return OffsetFetchRequest(group_id=group, topics=None if indexes is None else old)
    new = [OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in named]
    entry = OffsetFetchRequestGroup(group_id=group, topics=None if indexes is None else new)
    return OffsetFetchRequest(groups=[entry])


def _fetched(response: OffsetFetchResponse) -> list[tuple[TopicPartition, _Fetched]]:
    """The partitions of a response, in whichever form it has, with what was found."""
    rows: list[tuple[TopicPartition, _Fetched]] = []
    for topic in (topic for group in response.groups for topic in group.topics):
        rows += [(TopicPartition(topic.name, found.partition_index), found) for found in topic.partitions]
    for old in response.topics:
        rows += [(TopicPartition(old.name, found.partition_index), found) for found in old.partitions]
    return rows
