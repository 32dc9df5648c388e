"""Consumer groups: list, describe and delete them, and remove their members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from millstream.admin.call import AdminCall, Outcome, names_of, outcome_of
from millstream.admin.committed import committed_offsets
from millstream.admin.offsets import log_bounds
from millstream.admin.values import GroupDescription, GroupListing, GroupMember, PartitionLag
from millstream.client.targets import CoordinatorOf, Node
from millstream.errors import (
    CorruptMessage,
    ErrorCode,
    GroupIdNotFoundError,
    UnsupportedVersionError,
    raise_for_code,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from millstream.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from millstream.wire.schema import Data

D = TypeVar("D", bound=Data)

_CONSUMERS = "consumer"
_DEAD = "Dead"
_REMOVAL_VERSION = 3
_REASON_LIMIT = 255


def list_groups(call: AdminCall, states: Iterable[str] | None) -> list[GroupListing]:
    """All groups of the cluster, sorted by name, or only those in one of ``states``."""
    request = ListGroupsRequest(states_filter=[] if states is None else names_of(states, "state"))

    def ask(nodes: list[int]) -> Mapping[int, Outcome[list[GroupListing]]]:
        return {node_id: listed(node_id) for node_id in nodes}

    def listed(node_id: int) -> Outcome[list[GroupListing]]:
        response = call.send(Node(node_id), ListGroupsResponse, request)
        groups = [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in response.groups
        ]
        return outcome_of(groups, response.error_code, f"the groups of broker {node_id}")

    found = call.each(call.metadata(()).brokers, ask)
    return sorted((group for groups in found.values() for group in groups), key=lambda one: one.group_id)


def describe_groups(
    call: AdminCall, groups: str | Iterable[str], *, lag: bool
) -> dict[str, GroupDescription]:
    """Groups by name, with or without the lag of their partitions."""
    wanted = names_of(groups, "group")
    found = call.each(wanted, lambda names: {name: _describe(call, name) for name in names})
    return {name: _with_lag(call, description) for name, description in found.items()} if lag else found


def delete_groups(call: AdminCall, groups: str | Iterable[str]) -> None:
    """Delete groups without members, with their committed offsets."""

    def delete(group: str) -> Outcome[None]:
        request = DeleteGroupsRequest(groups_names=[group])
        response = call.send(CoordinatorOf(group), DeleteGroupsResponse, request)
        return call.coordinator_outcome(group, response.results[0].error_code, f"group {group}")

    call.each(names_of(groups, "group"), lambda names: {name: delete(name) for name in names})


def remove_members(
    call: AdminCall,
    group: str,
    instance_ids: str | Iterable[str] | None,
    member_ids: str | Iterable[str] | None,
    reason: str | None,
) -> list[str]:
    """Remove members by instance id or member id, or all of them; return their ids."""
    identities = {name: MemberIdentity(group_instance_id=name) for name in _ids(instance_ids, "instance id")}
    identities |= {name: MemberIdentity(member_id=name) for name in _ids(member_ids, "member id")}
    everyone = instance_ids is None and member_ids is None
    if everyone:
        for one in describe_groups(call, group, lag=False)[group].members:
            name = one.instance_id or one.member_id
            identities[name] = MemberIdentity(
                member_id="" if one.instance_id else one.member_id, group_instance_id=one.instance_id
            )
    for identity in identities.values():
        identity.reason = (reason or "removed by an administrator")[:_REASON_LIMIT]

    def ask(left: list[str]) -> Mapping[str, Outcome[None]]:
        def build(version: int) -> LeaveGroupRequest:
            if version < _REMOVAL_VERSION:
                raise UnsupportedVersionError("removing members from a group needs Kafka 2.4 or later")
            return LeaveGroupRequest(group_id=group, members=[identities[name] for name in left])

        return {
            (name := one.group_instance_id or one.member_id): (
                None  # it has left by itself
                if everyone and one.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                else outcome_of(None, one.error_code, f"member {name} of group {group}")
            )
            for one in call.send(CoordinatorOf(group), LeaveGroupResponse, build, check).members
        }

    def check(response: LeaveGroupResponse) -> None:
        raise_for_code(response.error_code, f"group {group}")

    return list(call.each(identities, ask)) if identities else []


def _ids(given: str | Iterable[str] | None, what: str) -> list[str]:
    return [] if given is None else names_of(given, what)


def _describe(call: AdminCall, group: str) -> Outcome[GroupDescription]:
    request = DescribeGroupsRequest(groups=[group])
    described = call.send(CoordinatorOf(group), DescribeGroupsResponse, request).groups[0]
    error = call.coordinator_outcome(group, described.error_code, f"group {group}", described.error_message)
    if error is not None:
        return error
    if described.group_state == _DEAD:
        return GroupIdNotFoundError(f"group {group}")
    return GroupDescription(
        group_id=described.group_id,
        state=described.group_state,
        protocol_type=described.protocol_type,
        assignor=described.protocol_data,
        coordinator=call.coordinator(group),
        members=tuple(_member(member, described.protocol_type) for member in described.members),
        partitions=(),
    )


def _with_lag(call: AdminCall, group: GroupDescription) -> GroupDescription:
    committed = committed_offsets(call, group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    # A group may have committed offsets of topics that are gone.
    cluster = call.metadata({topic for topic, _ in partitions})
    bounds = log_bounds(call, [one for one in partitions if cluster.partition(*one) is not None])
    lags = [_lag(one, committed.get(one), bounds.get(one), readers.get(one)) for one in partitions]
    # The coordinator is known by its id first, and by its address once there are metadata.
    coordinator = group.coordinator or call.coordinator(group.group_id)
    return replace(group, coordinator=coordinator, partitions=tuple(lags))


def _lag(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    bounds: tuple[int, int] | None,
    member: GroupMember | None,
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    end = None if bounds is None else bounds[1]
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
    """A member's own data, in any version; None if there are none, or not in Kafka's format."""
    if len(raw) < 2:
        return None
    version = min(int.from_bytes(raw[:2], "big", signed=True), kind.versions[1])
    try:
        return kind.decode(raw[2:], version)
    except (CorruptMessage, UnsupportedVersionError):
        return None
