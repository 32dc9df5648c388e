"""The requests of a group member, each built for the version that client and broker agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.config import ConsumerConfig
from millstream.consumer.assignors.protocol import PROTOCOL_TYPE
from millstream.consumer.membership.values import CoordinatorNode, GroupMetadata
from millstream.errors import UnsupportedVersionError
from millstream.wire.messages.group_admin import DescribeGroupsRequest
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

_MAX_REASON: Final = 255
_JOIN_GRACE_MS: Final = 5_000
"""How much longer than the rebalance a JoinGroup may take, for delays on the way."""


def find_coordinator(group_id: str) -> Callable[[int], FindCoordinatorRequest]:
    """Ask any broker who coordinates the group."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(coordinator_keys=[group_id])
        return FindCoordinatorRequest(key=group_id)

    return build


def coordinator_of(response: FindCoordinatorResponse) -> tuple[CoordinatorNode, int, str]:
    """The coordinator in an answer of any version, with the error code and message about it."""
    if response.coordinators:
        found = response.coordinators[0]
        node = CoordinatorNode(found.node_id, found.host, found.port)
        return node, found.error_code, found.error_message or ""
    node = CoordinatorNode(response.node_id, response.host, response.port)
    return node, response.error_code, response.error_message or ""


def join_timeout_ms(config: ConsumerConfig) -> int:
    """How long JoinGroup may take: the coordinator answers when all have joined or the rebalance is over."""
    return max(config.request_timeout_ms, config.max_poll_interval_ms + _JOIN_GRACE_MS)


def join_group(
    who: GroupMetadata, config: ConsumerConfig, protocols: Mapping[str, bytes], reason: str
) -> Callable[[int], JoinGroupRequest]:
    """``protocols`` are the subscriptions by the name of their assignor, the preferred one first."""

    def build(version: int) -> JoinGroupRequest:
        _check_static(who.group_instance_id, version, since=5)
        return JoinGroupRequest(
            group_id=who.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=m) for name, m in protocols.items()],
            reason=reason[:_MAX_REASON] or None,
        )

    return build


def sync_group(
    who: GroupMetadata, protocol_name: str, assignments: Sequence[tuple[str, bytes]]
) -> Callable[[int], SyncGroupRequest]:
    """``assignments`` are the leader's, by member id; the others send none."""

    def build(version: int) -> SyncGroupRequest:
        _check_static(who.group_instance_id, version, since=3)
        return SyncGroupRequest(
            group_id=who.group_id,
            generation_id=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments
            ],
        )

    return build


def heartbeat(who: GroupMetadata) -> Callable[[int], HeartbeatRequest]:
    """Say that the member is alive."""

    def build(version: int) -> HeartbeatRequest:
        _check_static(who.group_instance_id, version, since=3)
        return HeartbeatRequest(
            group_id=who.group_id,
            generation_id=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
        )

    return build


def leave_group(group_id: str, member_id: str, reason: str) -> Callable[[int], LeaveGroupRequest]:
    """Give a member id back; one of a static member never is."""

    def build(version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id=group_id, member_id=member_id)
        leaver = MemberIdentity(member_id=member_id, reason=reason[:_MAX_REASON])
        return LeaveGroupRequest(group_id=group_id, members=[leaver])

    return build


def leave_error(response: LeaveGroupResponse) -> int:
    """The error code of an answer of any version to one member's leaving."""
    if response.error_code or not response.members:
        return response.error_code
    return response.members[0].error_code


def describe_group(group_id: str) -> Callable[[int], DescribeGroupsRequest]:
    """Ask what each member of the group has been assigned."""
    return lambda version: DescribeGroupsRequest(groups=[group_id])


def _check_static(group_instance_id: str | None, version: int, since: int) -> None:
    if group_instance_id is not None and version < since:
        raise UnsupportedVersionError(
            f"group_instance_id {group_instance_id!r} needs a broker that knows static membership "
            "(Kafka 2.3 or later): leave it out, or upgrade the broker"
        )
