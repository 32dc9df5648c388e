"""MemberPhase: the phases of a group member and its transitions, as a table that the docs draw."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class MemberPhase(Enum):
    """The phase of a member. The value is its name in diagrams."""

    UNJOINED = "Unjoined"
    """Not in the group: nothing is subscribed, poll() has not been called yet, or membership was lost."""
    PREPARING = "Preparing"
    """Gives up partitions before it joins: the user's callbacks run. Still a member of the old generation."""
    JOINING = "JoinStarted"
    """JoinGroup is with the coordinator, which waits for the other members, or is to be sent (again)."""
    ASSIGNING = "Assigning"
    """Leads the group, and waits for the metadata of all its topics."""
    SYNCING = "Syncing"
    """SyncGroup is with the coordinator, which waits for the leader, or is to be sent (again)."""
    SETTLING = "Settling"
    """Has its assignment: the user's callbacks run before it counts."""
    STABLE = "Stable"
    """Owns its part of the generation."""
    LEAVING = "Leaving"
    """Gives everything up on close or unsubscribe: the user's callbacks run."""
    FAILED = "Failed"
    """The group refused the member; poll() must raise the error."""
    CLOSED = "Closed"
    """Closed, the final phase."""


Transitions = Mapping[MemberPhase, str]

_LOST: Final = "membership lost"
_AGAIN: Final = "another rebalance"
_GIVE_UP: Final = "close or unsubscribe"

ALLOWED: Final[Mapping[MemberPhase, Transitions]] = {
    MemberPhase.UNJOINED: {
        MemberPhase.JOINING: "poll()",
        MemberPhase.FAILED: "refused by the group",
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.PREPARING: {
        MemberPhase.JOINING: "callbacks done",
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.JOINING: {
        MemberPhase.ASSIGNING: "leads, without metadata",
        MemberPhase.SYNCING: "all have joined",
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.ASSIGNING: {
        MemberPhase.SYNCING: "metadata is there",
        MemberPhase.PREPARING: _AGAIN,
        MemberPhase.JOINING: _AGAIN,
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.SYNCING: {
        MemberPhase.SETTLING: "assigned",
        MemberPhase.PREPARING: _AGAIN,
        MemberPhase.JOINING: _AGAIN,
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.SETTLING: {
        MemberPhase.STABLE: "callbacks done",
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.STABLE: {
        MemberPhase.PREPARING: "rebalance, gives something up",
        MemberPhase.JOINING: "rebalance, keeps everything",
        MemberPhase.UNJOINED: _LOST,
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.LEAVING: {
        MemberPhase.UNJOINED: "unsubscribed",
        MemberPhase.CLOSED: "closed",
    },
    MemberPhase.FAILED: {
        MemberPhase.UNJOINED: "poll() raised the error",
        MemberPhase.LEAVING: _GIVE_UP,
    },
    MemberPhase.CLOSED: {},
}
"""Every step that a member can take, with its cause."""

HEARTBEATING: Final = frozenset(
    {
        MemberPhase.PREPARING,
        MemberPhase.ASSIGNING,
        MemberPhase.SETTLING,
        MemberPhase.STABLE,
        MemberPhase.LEAVING,
    }
)
"""Where heartbeats are sent. A heartbeat behind a JoinGroup or SyncGroup would wait with it, as a broker
handles a connection's requests one after the other; it does not expire members that it keeps waiting."""

COMMITTING: Final = frozenset(
    {MemberPhase.PREPARING, MemberPhase.SETTLING, MemberPhase.STABLE, MemberPhase.LEAVING}
)
"""Where the coordinator takes this member's commits: its generation is known and still the group's."""

JOINED: Final = HEARTBEATING | {MemberPhase.JOINING, MemberPhase.SYNCING}
"""Where the coordinator may count on this member, so that a user who stops polling must be taken out."""
