"""A member of a classic group: what it told us, what it owns, and which of its requests are parked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millstream.broker.groups.outcome import Parked
from millstream.broker.groups.state.records import MemberSnapshot

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols (assignors) that a member supports, the one it likes best first, each with its metadata."""


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
    """It has never been in a generation: a parked join does not prove that its client is still there."""
    join: Parked | None = None
    sync: Parked | None = None

    @property
    def keeps_session_by_waiting(self) -> bool:
        """Whether the coordinator owes it an answer: then it cannot be blamed for missing heartbeats."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said along with a protocol; empty for one that it does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that the member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def snapshot(self, protocol: str | None, assignment: bytes) -> MemberSnapshot:
        """The member as a record holds it: only the chosen protocol's metadata is kept."""
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
    """The member as a record remembers it."""
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
