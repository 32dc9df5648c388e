"""The coordinator's settings: Kafka's broker settings for groups, under the same names with underscores."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Defaults are Kafka's, except the two that suit a broker for one machine: short sessions are accepted
    and a new group waits little for more members."""

    group_min_session_timeout_ms: int = 1_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 100
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * _DAY_MS
    """offsets.retention.minutes, in milliseconds."""
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000
    """How long a join of a member that nobody has heard of before may stay parked. Such a member cannot
    heartbeat yet, and a client that gave up and came back would leave one behind at every try."""
    member_metadata_max_bytes: int = _MEBIBYTE
    """The most that one member's protocols may weigh, names included."""
    assignment_max_bytes: int = 16 * _MEBIBYTE
    """The most that the assignments of a whole group may weigh."""
