"""Values of committed offsets: what they need of the group, and the events that end operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millstream.consumer.membership.values import CoordinatorNode, GroupMetadata
from millstream.consumer.membership.views import CommitIdentity
from millstream.errors import MillstreamError
from millstream.model import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommittingMember(Protocol):
    """What offsets need of a membership."""

    @property
    def coordinator(self) -> CoordinatorNode | None: ...
    @property
    def error(self) -> MillstreamError | None: ...
    def need_coordinator(self) -> None: ...
    def coordinator_lost(self, reason: str, now_ms: int) -> None: ...
    def commit_identity(self) -> CommitIdentity: ...
    def commit_refused(self, code: int, who: GroupMetadata, now_ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class CommitDone:
    """A commit has ended: stored, or refused with ``error``. ``offsets`` are all that were to be committed.

    No caller waits for ``automatic`` ones: their errors are logged.
    """

    commit_id: int
    offsets: Offsets
    error: MillstreamError | None = None
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class CommittedFetched:
    """The committed offsets are there, None for a partition that has none; or ``error`` says why not."""

    fetch_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    error: MillstreamError | None = None


Event = CommitDone | CommittedFetched
