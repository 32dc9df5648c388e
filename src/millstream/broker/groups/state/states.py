"""The states of a classic group, and which may follow which: the one table that the code obeys and docs draw.

A group that a simple consumer uses for its offsets only (no members ever) stays EMPTY all its life.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    """The state of a group. The values are Kafka's names, as in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MEANING: Final[Mapping[GroupState, str]] = {
    GroupState.EMPTY: "no members, perhaps committed offsets",
    GroupState.PREPARING_REBALANCE: "joins are parked until all members are here or time is up",
    GroupState.COMPLETING_REBALANCE: "a new generation waits for its leader's assignment",
    GroupState.STABLE: "every member has, or can fetch, its assignment",
    GroupState.DEAD: "deleted, expired, or the broker stops",
}

TRANSITIONS: Final[Mapping[tuple[GroupState, GroupState], str]] = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "a first member joins",
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): "all joined, or the rebalance timeout",
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "all members left or expired",
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the leader's assignment is on the disk",
    (
        GroupState.COMPLETING_REBALANCE,
        GroupState.PREPARING_REBALANCE,
    ): "a member joins, changes, leaves or fails",
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE): "a member joins, changes, leaves or fails",
    (GroupState.EMPTY, GroupState.DEAD): "deleted, or nothing left to remember",
    (GroupState.PREPARING_REBALANCE, GroupState.DEAD): "the broker stops",
    (GroupState.COMPLETING_REBALANCE, GroupState.DEAD): "the broker stops",
    (GroupState.STABLE, GroupState.DEAD): "the broker stops",
}
"""Every step that a group can take, with its cause."""

ALLOWED: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    state: frozenset(after for before, after in TRANSITIONS if before is state) for state in GroupState
}
"""The states that may follow each state. DEAD has none: a group of the same name is a new group."""
