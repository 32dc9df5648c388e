"""Why a partition gives no records at the moment: what ``diagnose()`` puts into words."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config import ConsumerConfig
from millstream.consumer.fetching.positions import PartitionState, Phase, ResetStrategy
from millstream.consumer.fetching.requests import Fetches


@dataclass(frozen=True, slots=True)
class Failing:
    """The next poll() raises this error."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Paused:
    """The user has paused the partition. ``buffered``: whether records of it are there already."""

    buffered: bool


@dataclass(frozen=True, slots=True)
class Buffered:
    """Records are there, from this offset on: poll() hands them out."""

    offset: int


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No broker is known to lead the partition, or its topic is not known."""


@dataclass(frozen=True, slots=True)
class AwaitingCommitted:
    """The group's committed offset is being asked for. ``error``: why the last try failed."""

    error: Exception | None


@dataclass(frozen=True, slots=True)
class Resetting:
    """There is no position, and the leader is being asked for one. ``error``: why the last try failed."""

    strategy: ResetStrategy | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Validating:
    """The leader has changed, and is being asked whether it has what was read. ``error``: as above."""

    offset: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Retrying:
    """The last fetch of the partition, or from the node, failed; the next one is tried at this time."""

    node_id: int
    error: Exception
    retry_at_ms: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything up to the end of the log has been handed out, which is at this offset since that time."""

    offset: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class NotWanted:
    """Everything up to this offset has been handed out, and the user said that no more is wanted."""

    offset: int


@dataclass(frozen=True, slots=True)
class Fetching:
    """A fetch is under way. The broker answers when it has ``min_bytes``, or after ``max_wait_ms``."""

    node_id: int
    offset: int
    since_ms: int
    min_bytes: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class AwaitingTurn:
    """The next fetch waits for the node's earlier one, or for room: ``buffered_bytes`` of it are taken."""

    node_id: int
    offset: int
    buffered_bytes: int


Reason = (
    Failing
    | Paused
    | Buffered
    | NoLeader
    | AwaitingCommitted
    | Resetting
    | Validating
    | Retrying
    | CaughtUp
    | NotWanted
    | Fetching
    | AwaitingTurn
)


def explain(state: PartitionState, fetches: Fetches, config: ConsumerConfig) -> Reason:
    """The first of the reasons that holds, the most telling first."""
    buffered = bool(fetches.buffer.waiting(state.partition))
    if state.error is not None:
        return Failing(state.error)
    if state.paused:
        return Paused(buffered)
    if state.phase is Phase.AWAITING_COMMITTED:
        return AwaitingCommitted(state.last_error)
    if state.without_leader or state.leader is None:
        return NoLeader()
    if state.position is None:
        return Resetting(state.strategy, state.last_error)
    return _explain_position(state, state.position.offset, state.leader.node_id, fetches, config)


def _explain_position(
    state: PartitionState, offset: int, leader: int, fetches: Fetches, config: ConsumerConfig
) -> Reason:
    if state.phase is Phase.VALIDATING:
        return Validating(offset, state.last_error)
    if fetches.buffer.waiting(state.partition):
        return Buffered(offset)
    if state.fetch_end is not None and offset >= state.fetch_end:
        return NotWanted(offset)
    return _explain_fetch(state, offset, leader, fetches, config)


def _explain_fetch(
    state: PartitionState, offset: int, leader: int, fetches: Fetches, config: ConsumerConfig
) -> Reason:
    node_id = leader if state.preferred_replica is None else state.preferred_replica
    node = fetches.node(node_id)
    if state.last_error is not None:
        return Retrying(node_id, state.last_error, state.retry_at_ms)
    if node is not None and node.error is not None and node.request is None:
        return Retrying(node_id, node.error, node.retry_at_ms)
    end = state.end_offset(read_committed=config.read_committed)
    if state.caught_up_since_ms is not None and end is not None and offset >= end:
        return CaughtUp(offset, state.caught_up_since_ms)
    if state.busy:
        wait = (config.fetch_min_bytes, config.fetch_max_wait_ms)
        return Fetching(node_id, offset, state.asked_since_ms, *wait)
    return AwaitingTurn(node_id, offset, fetches.buffer.held_from(node_id))
