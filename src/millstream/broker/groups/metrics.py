"""The metrics of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.metrics.declarations import counter, gauge


@dataclass(slots=True)
class GroupCounters:
    """What happened to groups since the start."""

    rebalances_started: int = counter("Rebalances that began.")
    rebalances_completed: int = counter("Rebalances whose assignment became durable.")
    members_joined: int = counter("Members that joined a group.")
    members_left: int = counter("Members that left their group.")
    members_expired: int = counter("Members whose session timed out.")
    members_dropped: int = counter("Members that did not rejoin or sync in time, or found the group full.")
    members_fenced: int = counter("Static members that were replaced by a newer process.")
    offsets_committed: int = counter("Offsets committed.")
    offsets_deleted: int = counter("Offsets deleted on request.")
    offsets_expired: int = counter("Offsets deleted because of offsets.retention.minutes.")
    commits_refused: int = counter("Commits refused as a whole, for example from a stale member.")
    groups_deleted: int = counter("Groups deleted or expired.")
    writes_failed: int = counter("Writes to __consumer_offsets that failed.")


@dataclass(frozen=True, slots=True)
class GroupGauges:
    """The state of all groups at one moment."""

    groups_by_state: dict[str, int] = gauge("Groups in each state.", "state")
    members: int = gauge("Members of all groups.")
    offsets: int = gauge("Committed offsets that are stored.")
    parked_requests: int = gauge("Requests that wait for a rebalance or a write.")
    writes_in_flight: int = gauge("Writes to __consumer_offsets that are not durable yet.")
