"""A consumer group as plain values for JSON, the same in the command line and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.admin import GroupDescription


def group_values(group: GroupDescription) -> dict[str, Any]:
    """A group with its members and partitions, ready for JSON."""
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": None if group.coordinator is None else group.coordinator.node_id,
        "lag": group.lag,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "topics": list(member.topics),
                "partitions": [list(partition) for partition in member.assignment],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "member_id": None if one.member is None else one.member.member_id,
                "metadata": one.metadata,
            }
            for one in group.partitions
        ],
    }
