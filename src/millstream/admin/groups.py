"""Groups: listing and describing them, and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from millstream.admin.committed import CommittedAdmin
from millstream.admin.session import Outcome, error_of, names_of
from millstream.admin.values import GroupDescription, GroupListing, GroupMember, PartitionLag
from millstream.client.blocking import Deadline
from millstream.client.targets import CoordinatorOf, Node
from millstream.errors import CorruptMessage, GroupIdNotFoundError, UnsupportedVersionError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from millstream.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.schema import Data

D = TypeVar("D", bound=Data)

_CONSUMERS = "consumer"
_DEAD = "Dead"


class GroupAdmin(CommittedAdmin):
    """The calls about groups."""

    def list_groups(
        self, states: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[GroupListing]:
        """All groups of the cluster, by name; only those in these states, if any are given."""
        deadline = self._deadline(timeout)
        filters = [] if states is None else names_of(states, "state")
        cluster = self._calls.refresh_metadata((), deadline)

        def ask(nodes: list[int]) -> Mapping[int, Outcome[list[GroupListing]]]:
            return {node_id: self._list_groups_on(node_id, filters, deadline) for node_id in nodes}

        found = self._each(cluster.brokers, deadline, ask)
        return sorted((group for groups in found.values() for group in groups), key=lambda one: one.group_id)

    def _list_groups_on(
        self, node_id: int, states: list[str], deadline: Deadline
    ) -> Outcome[list[GroupListing]]:
        request = ListGroupsRequest(states_filter=states)
        response = self._calls.call(Node(node_id), ListGroupsResponse, lambda version: request, deadline)
        if response.error_code:
            return error_of(response.error_code, f"the groups of broker {node_id}")
        return [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in response.groups
        ]

    def describe_group(
        self, group: str, *, lag: bool = True, timeout: float | None = None
    ) -> GroupDescription:
        """One group with its members, its offsets and its lag. Raises GroupIdNotFoundError."""
        return self.describe_groups(group, lag=lag, timeout=timeout)[group]

    def describe_groups(
        self, groups: str | Iterable[str], *, lag: bool = True, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Groups by name. ``lag=False`` leaves the partitions out, which saves asking for their offsets."""
        deadline = self._deadline(timeout)
        wanted = names_of(groups, "group")
        found = self._each(wanted, deadline, lambda names: self._describe_all(names, deadline))
        if not lag:
            return found
        return {name: self._with_lag(description, deadline) for name, description in found.items()}

    def delete_groups(self, groups: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups without members, with their offsets.

        Raises NonEmptyGroupError for one with members, and GroupIdNotFoundError.
        """
        deadline = self._deadline(timeout)

        def ask(names: list[str]) -> Mapping[str, Outcome[None]]:
            return {name: self._delete_group(name, deadline) for name in names}

        self._each(names_of(groups, "group"), deadline, ask)

    def _delete_group(self, group: str, deadline: Deadline) -> Outcome[None]:
        request = DeleteGroupsRequest(groups_names=[group])
        response = self._calls.call(
            CoordinatorOf(group), DeleteGroupsResponse, lambda version: request, deadline
        )
        code = response.results[0].error_code
        if not code:
            return None
        error = error_of(code, f"group {group}")
        self._forget_if_moved(group, error)
        return error

    # -- describing

    def _describe_all(self, groups: list[str], deadline: Deadline) -> Mapping[str, Outcome[GroupDescription]]:
        return {group: self._describe_group(group, deadline) for group in groups}

    def _describe_group(self, group: str, deadline: Deadline) -> Outcome[GroupDescription]:
        request = DescribeGroupsRequest(groups=[group])
        response = self._calls.call(
            CoordinatorOf(group), DescribeGroupsResponse, lambda version: request, deadline
        )
        described = response.groups[0]
        if described.error_code:
            error = error_of(described.error_code, f"group {group}", described.error_message)
            self._forget_if_moved(group, error)
            return error
        if described.group_state == _DEAD:
            return GroupIdNotFoundError(f"group {group}")
        return self._description(described)

    def _description(self, described: DescribedGroup) -> GroupDescription:
        return GroupDescription(
            group_id=described.group_id,
            state=described.group_state,
            protocol_type=described.protocol_type,
            assignor=described.protocol_data,
            coordinator=self._coordinator(described.group_id),
            members=tuple(_member(member, described.protocol_type) for member in described.members),
            partitions=(),
        )

    def _with_lag(self, group: GroupDescription, deadline: Deadline) -> GroupDescription:
        committed = self._committed(group.group_id, None, deadline)
        readers = {partition: member for member in group.members for partition in member.assignment}
        partitions = sorted({*committed, *readers})
        ends = self._ends_of(partitions, deadline)
        lags = [_lag(one, committed.get(one), ends.get(one), readers.get(one)) for one in partitions]
        # Who leads it is known by its number first, and by its address since the metadata came.
        coordinator = group.coordinator or self._coordinator(group.group_id)
        return replace(group, coordinator=coordinator, partitions=tuple(lags))

    def _ends_of(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        """The end of each log that is still there: a group may remember topics that are gone."""
        wanted = list(partitions)
        cluster = self._calls.refresh_metadata({topic for topic, _ in wanted}, deadline)
        there = [one for one in wanted if cluster.partition(*one) is not None]
        return {one: end for one, (_, end) in self._bounds(there, deadline).items()}


def _lag(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    end: int | None,
    member: GroupMember | None,
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    return PartitionLag(
        topic=partition.topic,
        partition=partition.partition,
        committed=offset,
        end=end,
        lag=None if offset is None or end is None else max(0, end - offset),
        metadata="" if committed is None else committed.metadata,
        member=member,
    )


def _member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    subscription: ConsumerProtocolSubscription | None = None
    assignment: ConsumerProtocolAssignment | None = None
    if protocol_type == _CONSUMERS:
        subscription = _decoded(ConsumerProtocolSubscription, member.member_metadata)
        assignment = _decoded(ConsumerProtocolAssignment, member.member_assignment)
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=() if subscription is None else tuple(sorted(subscription.topics)),
        assignment=tuple(
            sorted(
                TopicPartition(topic.topic, partition)
                for topic in ([] if assignment is None else assignment.assigned_partitions)
                for partition in topic.partitions
            )
        ),
    )


def _decoded(kind: type[D], raw: bytes) -> D | None:
    """What a member said, in whatever version; None where it said nothing, or something of its own."""
    if len(raw) < 2:
        return None
    version = min(int.from_bytes(raw[:2], "big", signed=True), kind.versions[1])
    try:
        return kind.decode(raw[2:], version)
    except (CorruptMessage, UnsupportedVersionError):
        return None
