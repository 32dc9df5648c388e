"""Committed offsets, as a pure core: commits and fetches of them."""

from __future__ import annotations

from millstream.consumer.offsets.core import OffsetStore
from millstream.consumer.offsets.values import (
    CommitDone,
    CommittedFetched,
    Event,
    GroupMember,
    Offsets,
)

__all__ = ["CommitDone", "CommittedFetched", "Event", "GroupMember", "OffsetStore", "Offsets"]
