"""Listing, describing and deleting groups."""

from __future__ import annotations

from millstream.wire.schema import Api, Request, Response, Struct, array, boolean, data, int16, int32, string

DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 6, flexible=5)
LIST_GROUPS = Api(16, "ListGroups", 0, 5, flexible=3)
DELETE_GROUPS = Api(42, "DeleteGroups", 0, 2, flexible=2, since="1.1")


class DescribeGroupsRequest(Request, api=DESCRIBE_GROUPS):
    """Request the state and the members of groups."""

    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean("3+", default=False, ignorable=False)


class DescribedGroupMember(Struct):
    """A member, with its subscription and assignment in the group's own protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = data()
    member_assignment: bytes = data()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Response, api=DESCRIBE_GROUPS):
    """The state and the members of each group."""

    throttle_time_ms: int = int32("1+", default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Request, api=LIST_GROUPS):
    """Request the groups of a coordinator. Empty filters mean all of them."""

    states_filter: list[str] = array(string(), "4+", default=[], ignorable=False)
    types_filter: list[str] = array(string(), "5+", default=[], ignorable=False)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="")
    group_type: str = string("5+", default="")


class ListGroupsResponse(Response, api=LIST_GROUPS):
    """The groups that the broker coordinates."""

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(Request, api=DELETE_GROUPS):
    """Delete groups without members, with their offsets."""

    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, api=DELETE_GROUPS):
    """The result for each group."""

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
