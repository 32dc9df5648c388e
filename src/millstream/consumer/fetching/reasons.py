"""Why a partition gives no records at the moment, as values and in the words of ``diagnose()``."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.consumer.fetching.context import FetchContext
from millstream.consumer.fetching.partition_state import FetchPhase, PartitionState, ResetStrategy
from millstream.consumer.fetching.requests import FetchRequests


@dataclass(frozen=True, slots=True)
class Failing:
    """poll() raises an error next."""

    error: Exception

    def words(self, now_ms: int) -> str:
        return f"the next poll() raises {type(self.error).__name__}: {self.error}"


@dataclass(frozen=True, slots=True)
class Paused:
    """The user has paused the partition."""

    buffered: bool
    """Whether records are there already."""

    def words(self, now_ms: int) -> str:
        return "paused: call resume()" + (", records are waiting" if self.buffered else "")


@dataclass(frozen=True, slots=True)
class Buffered:
    """Records are there."""

    offset: int

    def words(self, now_ms: int) -> str:
        return f"records are there from offset {self.offset} on: call poll()"


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No leader is known."""

    def words(self, now_ms: int) -> str:
        return "no broker leads the partition at the moment, or the topic does not exist"


@dataclass(frozen=True, slots=True)
class AwaitingCommitted:
    """The committed offset is not known yet."""

    error: Exception | None
    """Why the last try failed; also below."""

    def words(self, now_ms: int) -> str:
        return "the group's committed offset is being fetched" + _because(self.error)


@dataclass(frozen=True, slots=True)
class Resetting:
    """There is no position yet."""

    strategy: ResetStrategy | None
    error: Exception | None

    def words(self, now_ms: int) -> str:
        if self.strategy is None:
            return "there is no offset to start from, and auto_offset_reset is none: seek()"
        which = f"the {self.strategy.value} one is being looked up"
        return f"there is no offset to start from, and {which}{_because(self.error)}"


@dataclass(frozen=True, slots=True)
class Validating:
    """A new leader must confirm the position (KIP-320)."""

    offset: int
    error: Exception | None

    def words(self, now_ms: int) -> str:
        return f"the new leader is being asked whether it has offset {self.offset}" + _because(self.error)


@dataclass(frozen=True, slots=True)
class Retrying:
    """The last fetch of the partition, or from the node, failed."""

    node_id: int
    error: Exception
    retry_at_ms: int

    def words(self, now_ms: int) -> str:
        wait_s = max(0, self.retry_at_ms - now_ms) / 1000
        return f"fetching from broker {self.node_id} failed ({self.error}), again in {wait_s:.1f} s"


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The position is at the end of the log."""

    offset: int
    since_ms: int

    def words(self, now_ms: int) -> str:
        since_s = max(0, now_ms - self.since_ms) / 1000
        return f"caught up: nothing was written after offset {self.offset} for {since_s:.1f} s"


@dataclass(frozen=True, slots=True)
class FetchEndReached:
    """The position is at the end that fetch_until() has set."""

    offset: int

    def words(self, now_ms: int) -> str:
        return f"read up to offset {self.offset}, where fetch_until() has set the end"


@dataclass(frozen=True, slots=True)
class Fetching:
    """A fetch is in flight. The broker answers when it has ``min_bytes``, or after ``max_wait_ms``."""

    node_id: int
    offset: int
    since_ms: int
    min_bytes: int
    max_wait_ms: int

    def words(self, now_ms: int) -> str:
        words = f"a fetch from offset {self.offset} is in flight to broker {self.node_id}"
        if self.min_bytes <= 1:
            return words
        minimum = f"fetch_min_bytes ({self.min_bytes})"
        return f"{words}, which waits for {minimum} or fetch_max_wait_ms ({self.max_wait_ms})"


@dataclass(frozen=True, slots=True)
class AwaitingTurn:
    """The next fetch cannot be sent yet."""

    node_id: int
    offset: int
    buffered_bytes: int

    def words(self, now_ms: int) -> str:
        return (
            f"the next fetch from broker {self.node_id} waits for an earlier one, or for room: "
            f"{self.buffered_bytes} bytes are waiting for poll()"
        )


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
    | FetchEndReached
    | Fetching
    | AwaitingTurn
)


def _because(error: Exception | None) -> str:
    return "" if error is None else f" (the last try failed: {error})"


def explain(state: PartitionState, context: FetchContext, requests: FetchRequests) -> Reason:
    """The first reason that holds, the most telling first."""
    if state.error is not None:
        return Failing(state.error)
    if state.paused:
        return Paused(bool(context.buffer.waiting(state.partition)))
    if state.phase is FetchPhase.AWAITING_COMMITTED:
        return AwaitingCommitted(state.last_error)
    if state.without_leader or state.leader is None:
        return NoLeader()
    if state.position is None:
        return Resetting(state.strategy, state.last_error)
    return _explain_position(state, state.position.offset, state.leader.node_id, context, requests)


def _explain_position(
    state: PartitionState, offset: int, leader: int, context: FetchContext, requests: FetchRequests
) -> Reason:
    if state.phase is FetchPhase.VALIDATING:
        return Validating(offset, state.last_error)
    if context.buffer.waiting(state.partition):
        return Buffered(offset)
    if state.fetch_end is not None and offset >= state.fetch_end:
        return FetchEndReached(offset)
    return _explain_fetch(state, offset, leader, context, requests)


def _explain_fetch(
    state: PartitionState, offset: int, leader: int, context: FetchContext, requests: FetchRequests
) -> Reason:
    config = context.config
    node_id = leader if state.preferred_replica is None else state.preferred_replica
    node = requests.node(node_id)
    if state.last_error is not None:
        return Retrying(node_id, state.last_error, state.retry_at_ms)
    if node is not None and node.error is not None and node.request is None:
        return Retrying(node_id, node.error, node.retry_at_ms)
    end = state.end_offset(read_committed=config.read_committed)
    if state.caught_up_since_ms is not None and end is not None and offset >= end:
        return CaughtUp(offset, state.caught_up_since_ms)
    asked_since_ms = requests.asked_since_ms(state)
    if asked_since_ms is not None:
        wait = (config.fetch_min_bytes, config.fetch_max_wait_ms)
        return Fetching(node_id, offset, asked_since_ms, *wait)
    return AwaitingTurn(node_id, offset, context.buffer.held_from(node_id))
