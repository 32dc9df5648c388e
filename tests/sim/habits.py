"""How members are set up, and how their users behave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.sim.cluster import GROUP
from tests.sim.network import FIRST_PORT


class CommitMode(Enum):
    AUTO = "auto"
    SYNC = "sync"
    ASYNC = "async"
    BOTH = "async, and sync when partitions are revoked and at the end"


class Fidget(Enum):
    """What users do between polls, or in the middle of an iteration."""

    PAUSE = "pauses and resumes partitions"
    SEEK = "seeks to where it is"
    LEAVE = "unsubscribes, and subscribes again"
    LEAVE_IN_CALLBACKS = "does so inside rebalance callbacks"
    POSITION = "waits for positions inside on_assigned"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a member is set up and how its user behaves."""

    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    pattern: str | None = None
    """Instead of topics: all those whose names begin with this."""
    instance_id: str | None = None
    commits: CommitMode = CommitMode.AUTO
    iterates: bool = False
    """Whether it reads with ``for record in consumer``, instead of poll()."""
    fidgets: tuple[Fidget, ...] = ()
    close_ms: int = 3_000
    max_poll_records: int = 500
    poll_ms: int = 300
    work_ms: int = 100
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 800
    max_poll_interval_ms: int = 5_000
    fetch_max_wait_ms: int = 800
    metadata_max_age_ms: int = 2_500

    def settings(self, brokers: int) -> dict[str, Any]:
        """The settings of the member's consumer."""
        return {
            "bootstrap_servers": [f"sim:{FIRST_PORT + number}" for number in range(brokers)],
            "group_id": GROUP,
            "partition_assignment_strategy": self.assignors,
            "group_instance_id": self.instance_id,
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "max_poll_interval_ms": self.max_poll_interval_ms,
            "max_poll_records": self.max_poll_records,
            "enable_auto_commit": self.commits is CommitMode.AUTO,
            "auto_commit_interval_ms": 700,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": self.fetch_max_wait_ms,
            "metadata_max_age_ms": self.metadata_max_age_ms,
            "request_timeout_ms": 2_500,
            "default_api_timeout_ms": 4_000,
            "retry_backoff_ms": 50,
            "retry_backoff_max_ms": 400,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 400,
        }
