"""The offsets that groups have committed: reading, writing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.admin.offsets import OffsetAdmin
from millstream.admin.session import Outcome, error_of
from millstream.client.blocking import Deadline
from millstream.client.cluster import BrokerInfo
from millstream.client.targets import CoordinatorOf
from millstream.errors import (
    Action,
    BrokerError,
    MillstreamError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    raise_for_code,
)
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

Partitions = Iterable[str | TopicPartition]
"""Topics (all their partitions), partitions, or both."""

_Fetched = OffsetFetchResponsePartition | OffsetFetchResponsePartitions

_FIRST_VERSION_WITH_GROUPS = 8
_NO_OFFSET = -1


class CommittedAdmin(OffsetAdmin):
    """The calls about committed offsets."""

    def group_offsets(
        self,
        group: str,
        partitions: str | Partitions | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed: for these topics or partitions, or for all. Others are left out."""
        deadline = self._deadline(timeout)
        wanted = None if partitions is None else self._partitions(partitions, deadline)
        return self._committed(group, wanted, deadline)

    def delete_group_offsets(
        self, group: str, partitions: str | Partitions, *, timeout: float | None = None
    ) -> None:
        """Forget what a group has committed for these topics or partitions.

        Raises GroupSubscribedToTopicError while members read the topic.
        """
        deadline = self._deadline(timeout)
        wanted = self._partitions(partitions, deadline)
        self._each(wanted, deadline, lambda left: self._delete_offsets(group, left, deadline))

    # -- reading

    def _partitions(self, given: str | Partitions, deadline: Deadline) -> list[TopicPartition]:
        entries = [given] if isinstance(given, str) else list(given)
        topics = [entry for entry in entries if isinstance(entry, str)]
        found = [TopicPartition(*entry) for entry in entries if not isinstance(entry, str)]
        return list(dict.fromkeys([*found, *(self._all_partitions(topics, deadline) if topics else ())]))

    def _committed(
        self, group: str, partitions: list[TopicPartition] | None, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        by_topic: dict[str, list[int]] | None = None
        if partitions is not None:
            by_topic = {}
            for topic, partition in partitions:
                by_topic.setdefault(topic, []).append(partition)

        def check(response: OffsetFetchResponse) -> None:
            codes = [response.error_code, *(one.error_code for one in response.groups)]
            codes += [row[2].error_code for row in _fetched(response)]
            for code in codes:
                raise_for_code(code, f"group {group}")

        response = self._calls.call(
            CoordinatorOf(group),
            OffsetFetchResponse,
            lambda version: _offset_fetch(group, by_topic, version),
            deadline,
            check,
        )
        return {
            TopicPartition(topic, index): OffsetAndMetadata(
                found.committed_offset,
                found.metadata or "",
                found.committed_leader_epoch if found.committed_leader_epoch >= 0 else None,
            )
            for topic, index, found in _fetched(response)
            if found.committed_offset != _NO_OFFSET
        }

    def _coordinator(self, group: str) -> BrokerInfo | None:
        """The broker that was found to coordinate a group."""
        node_id = self._client.coordinators.known(group)
        return None if node_id is None else self._client.cluster.brokers.get(node_id)

    def _forget_if_moved(self, group: str, error: MillstreamError) -> None:
        if isinstance(error, BrokerError) and error.action is Action.FIND_COORDINATOR:
            self._client.submit(lambda: self._client.coordinators.forget(group))

    # -- writing

    def _commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
    ) -> None:
        self._each(offsets, deadline, lambda left: self._commit_some(group, left, offsets, deadline))

    def _commit_some(
        self,
        group: str,
        partitions: list[TopicPartition],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Outcome[None]]:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition in partitions:
            part = OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offsets[partition].offset,
                committed_metadata=offsets[partition].metadata,
            )
            by_topic.setdefault(partition.topic, []).append(part)
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()
            ],
        )
        response = self._calls.call(
            CoordinatorOf(group), OffsetCommitResponse, lambda version: request, deadline
        )
        return {
            TopicPartition(topic.name, result.partition_index): self._offset_outcome(
                group, topic.name, result.partition_index, result.error_code
            )
            for topic in response.topics
            for result in topic.partitions
        }

    def _delete_offsets(
        self, group: str, partitions: list[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, Outcome[None]]:
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()
            ],
        )

        def check(response: OffsetDeleteResponse) -> None:
            raise_for_code(response.error_code, f"group {group}")

        response = self._calls.call(
            CoordinatorOf(group), OffsetDeleteResponse, lambda version: request, deadline, check
        )
        return {
            TopicPartition(one.name, result.partition_index): self._offset_outcome(
                group, one.name, result.partition_index, result.error_code
            )
            for one in response.topics
            for result in one.partitions
        }

    def _offset_outcome(self, group: str, topic: str, partition: int, code: int) -> Outcome[None]:
        if not code:
            return None
        error = error_of(code, f"group {group}, {topic}-{partition}")
        self._forget_if_moved(group, error)
        if isinstance(error, UnknownMemberIdError):
            # So the broker says that the group has members, and we are none of them.
            return non_empty(group, [])
        return error


def non_empty(group: str, clients: list[str]) -> NonEmptyGroupError:
    """The error for a group that may not be touched now, with who is in it."""
    named = f" ({', '.join(sorted(set(clients)))})" if clients else ""
    return NonEmptyGroupError(f"group {group} has members{named}")


def _offset_fetch(group: str, by_topic: dict[str, list[int]] | None, version: int) -> OffsetFetchRequest:
    """The request in the form of this version: for one group, or since version 8 for a list of them."""
    if version >= _FIRST_VERSION_WITH_GROUPS:
        topics = (
            None
            if by_topic is None
            else [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic.items()
            ]
        )
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    named = (
        None
        if by_topic is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ]
    )
    return OffsetFetchRequest(group_id=group, topics=named)


def _fetched(response: OffsetFetchResponse) -> list[tuple[str, int, _Fetched]]:
    """The partitions of a response, in whichever form it has: topic, number, and what was found."""
    rows: list[tuple[str, int, _Fetched]] = []
    for group in response.groups:
        for topic in group.topics:
            rows += [(topic.name, found.partition_index, found) for found in topic.partitions]
    for old in response.topics:
        rows += [(old.name, found.partition_index, found) for found in old.partitions]
    return rows
