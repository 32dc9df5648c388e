"""The classic group protocol: finding the coordinator, joining, syncing, heartbeats and leaving."""

from __future__ import annotations

from millstream.wire.schema import (
    Api,
    Request,
    Response,
    Struct,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    string,
)

FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, flexible=3)
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, flexible=6)
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, flexible=4)
HEARTBEAT = Api(12, "Heartbeat", 0, 4, flexible=4)
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, flexible=4)


class FindCoordinatorRequest(Request, api=FIND_COORDINATOR):
    """Request the coordinator of groups (``key_type`` 0), transactional ids (1) or share groups (2)."""

    key: str = string("0-3", default="", ignorable=False)
    key_type: int = int8("1+", default=0, ignorable=False)
    coordinator_keys: list[str] = array(string(), "4+", default=[], ignorable=False)


class Coordinator(Struct):
    key: str = string("4+", default="")
    node_id: int = int32("4+", default=0)
    host: str = string("4+", default="")
    port: int = int32("4+", default=0)
    error_code: int = int16("4+", default=0)
    error_message: str | None = string("4+", nullable="4+", default=None)


class FindCoordinatorResponse(Response, api=FIND_COORDINATOR):
    """The coordinator: of one key up to version 3, of several from version 4 on."""

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default=None)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=[])


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, and the member's subscription for it."""

    name: str = string()
    metadata: bytes = data()


class JoinGroupRequest(Request, api=JOIN_GROUP):
    """Join the next generation of a group."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=False)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    """A member's subscription. Only the leader receives the members."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = data()


class JoinGroupResponse(Response, api=JOIN_GROUP):
    """The new generation: its leader, its assignor, and the member id of the recipient."""

    throttle_time_ms: int = int32("2+", default=0)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = data()


class SyncGroupRequest(Request, api=SYNC_GROUP):
    """Request the member's assignment in this generation; the leader sends those of all members."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=False)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, api=SYNC_GROUP):
    """The member's own assignment."""

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = data()


class HeartbeatRequest(Request, api=HEARTBEAT):
    """Keep the member's session alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=False)


class HeartbeatResponse(Response, api=HEARTBEAT):
    """No error, or the group is rebalancing, or the member is no longer in it."""

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()


class MemberIdentity(Struct):
    member_id: str = string("3+", default="", ignorable=False)
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=False)
    reason: str | None = string("5+", nullable="5+", default=None)


class LeaveGroupRequest(Request, api=LEAVE_GROUP):
    """Remove members from a group; up to version 2 only the sender itself."""

    group_id: str = string()
    member_id: str = string("0-2", default="", ignorable=False)
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default=[], ignorable=False)


class MemberResponse(Struct):
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    error_code: int = int16("3+", default=0)


class LeaveGroupResponse(Response, api=LEAVE_GROUP):
    """Which members have left."""

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", default=[])
