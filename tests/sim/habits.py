"""How members are set up, and how their users behave."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.config import ConsumerConfig
from tests.sim.cluster import GROUP


class CommitMode(Enum):
    AUTO = "auto"
    SYNC = "sync"
    ASYNC = "async"
    BOTH = "async, and sync when partitions are revoked and at the end"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a member is set up and how its user behaves."""

    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    pattern: str | None = None
    """Instead of topics: all those whose names begin with this."""
    instance_id: str | None = None
    commits: CommitMode = CommitMode.AUTO
    poll_ms: int = 300
    work_ms: int = 100
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 800
    max_poll_interval_ms: int = 5_000

    def config(self) -> ConsumerConfig:
        """The settings of the member's consumer."""
        return ConsumerConfig(
            bootstrap_servers=(),
            group_id=GROUP,
            partition_assignment_strategy=self.assignors,
            group_instance_id=self.instance_id,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            enable_auto_commit=self.commits is CommitMode.AUTO,
            auto_commit_interval_ms=700,
            request_timeout_ms=2_500,
            default_api_timeout_ms=4_000,
            retry_backoff_ms=50,
            retry_backoff_max_ms=400,
        )
