"""The states of a group member, and how it moves between them, as a table that the documents can draw."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a member stands. The value is its name in diagrams."""

    UNJOINED = "Unjoined"
    """Not in the group: nothing is subscribed, poll() has not been called yet, or membership was lost."""
    PREPARING = "Preparing"
    """Gives up partitions before it joins: the user's callbacks run. Still a member of the old generation."""
    JOINING = "Joining"
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
    """The group refused the member; the user is to be told."""
    CLOSED = "Closed"
    """Done for good."""


Transitions = Mapping[Phase, str]

_LOST: Final = "membership lost"
_AGAIN: Final = "another rebalance"
_GIVE_UP: Final = "close or unsubscribe"

ALLOWED: Final[Mapping[Phase, Transitions]] = {
    Phase.UNJOINED: {
        Phase.JOINING: "poll()",
        Phase.FAILED: "refused by the group",
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.PREPARING: {
        Phase.JOINING: "callbacks done",
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.JOINING: {
        Phase.ASSIGNING: "leads, without metadata",
        Phase.SYNCING: "all have joined",
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.ASSIGNING: {
        Phase.SYNCING: "metadata is there",
        Phase.PREPARING: _AGAIN,
        Phase.JOINING: _AGAIN,
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.SYNCING: {
        Phase.SETTLING: "assigned",
        Phase.PREPARING: _AGAIN,
        Phase.JOINING: _AGAIN,
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.SETTLING: {
        Phase.STABLE: "callbacks done",
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.STABLE: {
        Phase.PREPARING: "rebalance, gives something up",
        Phase.JOINING: "rebalance, keeps everything",
        Phase.UNJOINED: _LOST,
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.LEAVING: {
        Phase.UNJOINED: "unsubscribed",
        Phase.CLOSED: "closed",
    },
    Phase.FAILED: {
        Phase.UNJOINED: "the user was told",
        Phase.LEAVING: _GIVE_UP,
    },
    Phase.CLOSED: {},
}
"""Every step that a member can take, with its cause."""

HEARTBEATING: Final = frozenset(
    {Phase.PREPARING, Phase.ASSIGNING, Phase.SETTLING, Phase.STABLE, Phase.LEAVING}
)
"""Where heartbeats are sent. A heartbeat behind a JoinGroup or SyncGroup would wait with it, as a broker
handles a connection's requests one after the other; it does not expire members that it keeps waiting."""

COMMITTING: Final = frozenset({Phase.PREPARING, Phase.SETTLING, Phase.STABLE, Phase.LEAVING})
"""Where the coordinator takes this member's commits: its generation is known and still the group's."""

JOINED: Final = HEARTBEATING | {Phase.JOINING, Phase.SYNCING}
"""Where the coordinator may count on this member, so that a user who stops polling must be taken out."""


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.UNJOINED.value}"]
    for phase, transitions in ALLOWED.items():
        lines += [f"    {phase.value} --> {after.value}: {cause}" for after, cause in transitions.items()]
    lines.append(f"    {Phase.CLOSED.value} --> [*]")
    return "\n".join(lines) + "\n"
