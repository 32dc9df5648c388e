"""Settings of a consumer for tests of its cores."""

from __future__ import annotations

from typing import Any

from millstream.config import ConsumerConfig


def config(*, read_committed: bool = False, **changes: Any) -> ConsumerConfig:
    """Kafka's defaults in group ``g``; what is given is not checked, so that it may be extreme."""
    group_id = changes.setdefault("group_id", "g")
    changes.setdefault("enable_auto_commit", group_id is not None)
    changes.setdefault("isolation_level", "read_committed" if read_committed else "read_uncommitted")
    return ConsumerConfig(bootstrap_servers=(), **changes)
