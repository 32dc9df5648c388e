"""The broker's settings for groups, which the coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millstream.settings import INT_MAX, Int, PositiveInt, Settings, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings(Settings):
    """Defaults are Kafka's, except two that suit a broker for one machine: short sessions are accepted, and
    the first rebalance of a new group waits only briefly for more members."""

    group_min_session_timeout_ms: Int = setting(
        1_000, "The shortest `session.timeout.ms` that a member may have. (Kafka: 6000.)"
    )
    group_max_session_timeout_ms: Int = setting(
        1_800_000, "The longest `session.timeout.ms` that a member may have."
    )
    group_initial_rebalance_delay_ms: Int = setting(
        100, "How long a new group waits for more members before its first rebalance. (Kafka: 3000.)"
    )
    group_max_size: PositiveInt = setting(INT_MAX, "The most members of one group.")
    offset_metadata_max_bytes: Int = setting(4_096, "The longest metadata of a committed offset.")
    offsets_retention_minutes: PositiveInt = setting(
        10_080, "How long the offsets of a group without members are kept."
    )
    offsets_retention_check_interval_ms: PositiveInt = setting(
        600_000, "How often expired offsets are looked for."
    )

    new_member_join_timeout_ms: ClassVar[int] = 300_000
    """How long the first join of a member may wait. Such a member cannot heartbeat yet, and a client that
    gave up and came back would leave one behind at every try."""
    member_metadata_max_bytes: ClassVar[int] = 1 << 20
    """The largest protocols of one member, names included."""
    assignment_max_bytes: ClassVar[int] = 16 << 20
    """The largest assignments of a whole group."""
