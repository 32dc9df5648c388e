"""What the coordinator counts, for the driver to publish. Counters only rise, from zero at every start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """One number for each thing worth watching."""

    rebalances_started: int = 0
    rebalances_completed: int = 0
    """Generations whose assignment became durable."""
    members_joined: int = 0
    members_left: int = 0
    members_expired: int = 0
    """Sessions that ran out."""
    members_dropped: int = 0
    """Members that did not rejoin or sync in time, or came when the group was full."""
    members_fenced: int = 0
    """Static members whose place a newer process took."""
    offsets_committed: int = 0
    offsets_deleted: int = 0
    offsets_expired: int = 0
    commits_refused: int = 0
    """Whole commits that were turned down, by a stale member for example."""
    groups_deleted: int = 0
    writes_failed: int = 0


@dataclass(frozen=True, slots=True)
class Gauges:
    """How things stand at one moment."""

    groups_by_state: dict[str, int]
    members: int
    offsets: int
    parked_requests: int
    writes_in_flight: int
