"""A member of a classic group: its settings, its assignment and its parked requests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millstream.broker.groups.outcome import Parked
from millstream.broker.groups.state.records import MemberSnapshot

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols (assignors) that a member supports, the preferred one first, each with its metadata."""


@dataclass(slots=True)
class Member:
    """One member. ``group`` keeps its counters in step, so ``protocols`` and ``join`` are set only there."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Never in a generation yet: a parked join does not prove that its client is still connected."""
    join: Parked | None = None
    sync: Parked | None = None

    @property
    def keeps_session_by_waiting(self) -> bool:
        """Whether the member waits for an answer, and therefore sends no heartbeats."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty for one that it does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def snapshot(self, protocol: str | None, assignment: bytes) -> MemberSnapshot:
        """Return the member as a record stores it, with the metadata of the chosen protocol only."""
        return MemberSnapshot(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def restored_member(stored: MemberSnapshot, protocol: str | None) -> Member:
    """Build a member from a stored record."""
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=((protocol or "", stored.subscription),),
        assignment=stored.assignment,
    )
