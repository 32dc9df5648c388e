"""Taking the dead out of their group at once.

A group misses a driver that was killed when its session ends. Sessions that end soon would end, too, for
drivers that a busy machine keeps from running for a while. So here they are long, and nobody waits for them.
"""

from __future__ import annotations

from millstream.admin import Admin
from millstream.errors import ErrorCode
from millstream.wire.messages.groups import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.system.raw_client import RawClient


def bury(admin: Admin, group: str, client_id: str) -> None:
    """Do what the coordinator does when the sessions of this client's members end."""
    dead = [
        MemberIdentity(member_id=one.member_id)
        for one in admin.describe_group(group, lag=False).members
        if one.client_id == client_id
    ]
    if not dead:
        return
    (broker,) = admin.describe_cluster().brokers
    with RawClient(f"{broker.host}:{broker.port}") as client:
        request = LeaveGroupRequest(group_id=group, members=dead)
        left = client.call(request, LEAVE_GROUP.max_version, LeaveGroupResponse)
    gone = {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}  # the second: its session has just ended
    assert left.error_code == 0 and gone.issuperset(one.error_code for one in left.members), left
