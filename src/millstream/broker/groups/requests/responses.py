"""Building answers: the success and error forms that several places need, in the shape each version wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from millstream.broker.groups.outcome import Parked
from millstream.broker.groups.state.group import ClassicGroup
from millstream.errors import ErrorCode
from millstream.wire.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.wire.schema import Request, Response

NO_OFFSET: Final = -1

_FETCH_SEVERAL_GROUPS: Final = 8
_FETCH_TOP_LEVEL_ERROR: Final = 2
_JOIN_NULL_PROTOCOL: Final = 7


def join_error(to: Parked, error: int, member_id: str) -> JoinGroupResponse:
    """No generation for the caller; ``member_id`` is the id it should use, if any."""
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
    """The current generation, for a member of it. ``leader`` overrides who is said to lead."""
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
    """No assignment for the caller."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """What the caller owns in the current generation."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def commit_response(outcomes: Iterable[tuple[str, Sequence[tuple[int, int]]]]) -> OffsetCommitResponse:
    """One error for each partition: ``(topic, [(partition, error), ...])``."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition, error_code=error)
                    for partition, error in partitions
                ],
            )
            for topic, partitions in outcomes
        ]
    )


def leave_error(error: int) -> LeaveGroupResponse:
    """Nobody left."""
    return LeaveGroupResponse(error_code=error)


def fetch_error(request: OffsetFetchRequest, version: int, error: int) -> OffsetFetchResponse:
    """The same error for every group; versions without a place for that repeat it for each partition."""
    if version >= _FETCH_SEVERAL_GROUPS:
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error) for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    if version >= _FETCH_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(error_code=error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=NO_OFFSET, error_code=error
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def described_error(group_id: str, state: str, error: int, message: str | None = None) -> DescribedGroup:
    """A group that cannot be described."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _join(request: JoinGroupRequest, version: int, error: int) -> Response:
    return join_error(Parked(None, version), error, request.member_id)


def _sync(request: SyncGroupRequest, version: int, error: int) -> Response:
    return sync_error(error)


def _heartbeat(request: HeartbeatRequest, version: int, error: int) -> Response:
    return HeartbeatResponse(error_code=error)


def _leave(request: LeaveGroupRequest, version: int, error: int) -> Response:
    return leave_error(error)


def _commit(request: OffsetCommitRequest, version: int, error: int) -> Response:
    return commit_response(
        (topic.name, [(partition.partition_index, error) for partition in topic.partitions])
        for topic in request.topics
    )


def _delete_offsets(request: OffsetDeleteRequest, version: int, error: int) -> Response:
    return OffsetDeleteResponse(error_code=error, topics=[])


def _describe(request: DescribeGroupsRequest, version: int, error: int) -> Response:
    return DescribeGroupsResponse(groups=[described_error(name, "", error) for name in request.groups])


def _list(request: ListGroupsRequest, version: int, error: int) -> Response:
    return ListGroupsResponse(error_code=error, groups=[])


def _delete_groups(request: DeleteGroupsRequest, version: int, error: int) -> Response:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=error) for name in request.groups_names]
    )


_BY_REQUEST: Final[dict[type[Request], Callable[[Any, int, int], Response]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    OffsetFetchRequest: fetch_error,
    OffsetDeleteRequest: _delete_offsets,
    DescribeGroupsRequest: _describe,
    ListGroupsRequest: _list,
    DeleteGroupsRequest: _delete_groups,
}


def error_response(request: Request, version: int, error: int) -> Response:
    """The answer that refuses a request as a whole."""
    return _BY_REQUEST[type(request)](request, version, error)
