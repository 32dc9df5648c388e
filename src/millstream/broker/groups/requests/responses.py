"""Builds the responses that several handlers need, in the form of each version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from millstream.broker.groups.outcome import Parked
from millstream.broker.groups.state.group import ClassicGroup
from millstream.errors import ErrorCode
from millstream.wire.messages.group_admin import DescribedGroup
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse

_JOIN_NULL_PROTOCOL: Final = 7


def join_error(to: Parked, error: int, member_id: str) -> JoinGroupResponse:
    """Refuse a join; ``member_id`` is the id that the client should use, if any."""
    return _join_response(to, error_code=error, member_id=member_id)


def joined(
    to: Parked,
    group: ClassicGroup,
    member_id: str,
    *,
    leader: str | None = None,
    with_members: bool,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """Describe the current generation to a member of it. ``leader`` overrides the leader's id."""
    return _join_response(
        to,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or group.leader or "",
        member_id=member_id,
        members=_members_for_leader(group) if with_members else [],
        skip_assignment=skip_assignment,
    )


def _join_response(to: Parked, **values: Any) -> JoinGroupResponse:
    fields = {"error_code": 0, "protocol_name": None, "leader": "", "members": [], **values}
    if fields["protocol_name"] is None and to.version < _JOIN_NULL_PROTOCOL:
        fields["protocol_name"] = ""
    return JoinGroupResponse(**fields)


def _members_for_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members.values()
    ]


def sync_error(error: int) -> SyncGroupResponse:
    """Refuse a sync."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """Tell a member its assignment in the current generation."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def commit_response(
    outcomes: Iterable[tuple[OffsetCommitRequestTopic, Sequence[tuple[int, int]]]],
) -> OffsetCommitResponse:
    """Answer a commit with one error per partition: ``(topic, [(partition, error), ...])``."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition, error_code=error)
                    for partition, error in partitions
                ],
            )
            for topic, partitions in outcomes
        ]
    )


def described_error(group_id: str, state: str, error: int, message: str | None = None) -> DescribedGroup:
    """Say why a group cannot be described."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
