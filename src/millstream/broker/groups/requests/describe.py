"""Handles DescribeGroups and ListGroups."""

from __future__ import annotations

from typing import Final

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.requests.responses import described_error
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.members import Member
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import GroupTable
from millstream.errors import ErrorCode
from millstream.wire.messages.group_admin import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

_GROUP_NOT_FOUND_VERSION: Final = 6  # KIP-1043
_NO_AUTHORIZER_GROUP: Final = 0b1101_0100_1000
"""All operations that Kafka knows on a group: without an authorizer, all are allowed."""


def _refuse_describe(request: DescribeGroupsRequest, version: int, error: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[described_error(name, "", error) for name in request.groups])


class DescribeHandler:
    """Handles DescribeGroups and ListGroups."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    @answers(DESCRIBE_GROUPS, _refuse_describe)
    def describe(
        self, request: DescribeGroupsRequest, parked: Parked, caller: Caller, effects: Effects
    ) -> None:
        groups = [self._describe(name, caller.version) for name in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = _NO_AUTHORIZER_GROUP
        effects.reply(parked, DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._table.groups.get(group_id)
        if group is None:
            new = version >= _GROUP_NOT_FOUND_VERSION
            return described_error(
                group_id,
                GroupState.DEAD.value,
                ErrorCode.GROUP_ID_NOT_FOUND if new else ErrorCode.NONE,
                f"Group {group_id} not found." if new else None,
            )
        # Between generations there is no protocol yet, and so no metadata to show.
        protocol = group.protocol if group.state is GroupState.STABLE else None
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[_describe_member(member, protocol) for member in group.members.values()],
        )

    @answers(LIST_GROUPS, lambda _, __, error: ListGroupsResponse(error_code=error, groups=[]))
    def list_groups(
        self, request: ListGroupsRequest, parked: Parked, caller: Caller, effects: Effects
    ) -> None:
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        groups = [
            _listed(group)
            for group in self._table.groups.values()
            if (not states or group.state.value.lower() in states)
            and (not types or group.group_type in types)
        ]
        effects.reply(parked, ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups))


def _describe_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol),
        member_assignment=member.assignment,
    )


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.group_type,
    )
