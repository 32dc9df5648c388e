"""PartitionState: one assigned partition, and Attention: which partitions the fetcher must look at.

A partition goes through phases: its committed offset is awaited, or its position is reset, or validated, and
then it is fetched. ``ALLOWED`` is the whole table.

Every jump (a seek, a reset, a new leader, a new assignment) gives the partition a new generation. Requests
and fetched data carry the generation that they were made for, so whatever belongs to an older one is known to
be stale. Reading on does not change it.

A partition that is fetched by a session and has no news needs nothing, and of thousands most are like that.
So whatever changes a state touches it, and the fetcher looks only at those that were touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from millstream.config import ConsumerConfig
from millstream.model import TopicPartition


class ResetStrategy(Enum):
    """Where to start without a committed offset, or when the position is not in the log (any more)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    """At the first record that is not older than a given age; at the end if there is none (KIP-1106)."""

    @classmethod
    def of(cls, config: ConsumerConfig) -> ResetStrategy | None:
        """What auto_offset_reset says; None: a lost position is an error."""
        name = config.auto_offset_reset.partition(":")[0]
        return None if name == "none" else cls(name)


class FetchPhase(Enum):
    """What has to happen next before a partition can be read."""

    AWAITING_COMMITTED = "awaiting committed"
    """The group's committed offset is being fetched."""
    AWAITING_RESET = "awaiting reset"
    """The leader is being asked where the log begins or ends."""
    VALIDATING = "validating"
    """The leader is being asked whether its log still holds what was read (KIP-320)."""
    FETCHING = "fetching"
    """The position is good."""


_ONCE_STARTED = frozenset({FetchPhase.AWAITING_RESET, FetchPhase.VALIDATING, FetchPhase.FETCHING})
ALLOWED: dict[FetchPhase, frozenset[FetchPhase]] = dict.fromkeys(FetchPhase, _ONCE_STARTED)
"""The phases that may follow each phase: all but the first one, which is never entered again."""


class FetchPosition(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it where that is known."""

    offset: int
    leader_epoch: int | None = None


class Leader(NamedTuple):
    """The leader of a partition, its epoch, and the topic id, which changes when a topic is recreated."""

    node_id: int
    epoch: int | None
    topic_id: bytes


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition. Its phase, position and generation change through the methods only."""

    partition: TopicPartition
    _generations: count[int]
    _attention: Attention
    phase: FetchPhase = FetchPhase.AWAITING_COMMITTED
    position: FetchPosition | None = None
    generation: int = field(init=False)
    strategy: ResetStrategy | None = None
    """What to reset to, in the phase AWAITING_RESET."""
    paused: bool = False
    fetch_end: int | None = None
    """The end that fetch_until() has set: nothing is fetched from there on."""

    leader: Leader | None = None
    """The last known leader."""
    without_leader: bool = True
    """Whether there is no known leader at the moment."""
    preferred_replica: int | None = None
    """The follower to fetch from, which is closer than the leader (KIP-392)."""
    preferred_until_ms: int = 0

    stored: FetchPosition | None = None
    """The position that the group has committed, as far as is known."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    caught_up_since_ms: int | None = None

    asked_generation: int | None = None
    asked_since_ms: int = 0
    retry_at_ms: int = 0
    failures: int = 0
    last_error: Exception | None = None
    """Why the last try failed; None after a success."""
    _error: Exception | None = None

    def __post_init__(self) -> None:
        self.generation = next(self._generations)
        self.touch()

    def touch(self) -> None:
        """Something has changed: have the fetcher look at this partition."""
        self._attention.touch(self)

    # -- jumps

    def jump(self, position: FetchPosition, *, validate: bool) -> None:
        """Move to another position. ``validate``: ask the leader first, where both epochs are known."""
        checked = (
            validate
            and position.leader_epoch is not None
            and self.leader is not None
            and self.leader.epoch is not None
        )
        self._move_to(FetchPhase.VALIDATING if checked else FetchPhase.FETCHING)
        self.position = position

    def reset(self, strategy: ResetStrategy | None) -> None:
        """Forget the position, and find another one; None leaves that to the user."""
        self._move_to(FetchPhase.AWAITING_RESET)
        self.position = self.stored = None
        self.strategy = strategy

    def validated(self) -> None:
        """The position is good as it is."""
        assert self.position is not None
        self._move_to(FetchPhase.FETCHING)

    def renew(self) -> None:
        """Start over at the same position: what was requested or fetched before is stale."""
        self.generation = next(self._generations)
        self.caught_up_since_ms = None
        self.succeeded()
        self.touch()
        self._attention.moved[self] = None

    def lead_by(self, leader: Leader | None) -> None:
        """Note the leader. A new one may lack what the old one had: the position is validated."""
        if self.without_leader is not (leader is None):
            self.without_leader = leader is None
            self.touch()
            if leader is not None:
                self.succeeded()
        if leader is None or leader == self.leader:
            return
        self.leader = leader
        self.prefer(None)
        self._attention.sources_changed = True
        if self.position is not None:
            self.jump(self.position, validate=True)
        elif (
            self.phase is not FetchPhase.AWAITING_COMMITTED
        ):  # the committed offset does not come from the leader
            self.renew()

    def _move_to(self, phase: FetchPhase) -> None:
        assert phase in ALLOWED[self.phase], f"{self.partition}: {self.phase} to {phase}"
        self.phase = phase
        self.strategy = None
        if self._error is not None:
            self.take_error()
        self.renew()

    # -- reading on

    def advance(self, offset: int, leader_epoch: int | None) -> None:
        """Everything before ``offset`` has been returned, or is not for users."""
        assert self.phase is FetchPhase.FETCHING and self.position is not None
        assert offset >= self.position.offset, f"{self.partition}: back from {self.position} to {offset}"
        if offset > self.position.offset:
            self.position = FetchPosition(offset, leader_epoch)
            self._attention.moved[self] = None

    # -- requests

    @property
    def busy(self) -> bool:
        """Whether a request for the current generation is in flight."""
        return self.asked_generation == self.generation

    def due(self, now_ms: int) -> bool:
        """Whether the next request for this partition may leave."""
        return self.error is None and now_ms >= self.retry_at_ms and not self.busy

    def asked(self, now_ms: int) -> int:
        """A request is in flight; returns the generation that its response must match."""
        self.asked_generation = self.generation
        self.asked_since_ms = now_ms
        return self.generation

    def answered(self) -> None:
        self.asked_generation = None
        self.touch()

    def succeeded(self) -> None:
        self.failures = 0
        self.retry_at_ms = 0
        self.last_error = None

    def retry(self, error: Exception, at_ms: int) -> None:
        """The last try failed: try again at a time."""
        self.last_error = error
        self.retry_at_ms = at_ms
        self._attention.wait_until(self, at_ms)
        self.touch()

    @property
    def error(self) -> Exception | None:
        """What poll() must raise before the partition is tried again."""
        return self._error

    def fail(self, error: Exception) -> None:
        """Do not try again before the user was told."""
        self._error = error
        self._attention.failed[self] = None
        self.touch()

    def take_error(self) -> Exception:
        """The error, which no longer stops the partition."""
        error, self._error = self._error, None
        assert error is not None
        self._attention.failed.pop(self, None)
        self.touch()
        return error

    # -- what the log has

    def end_offset(self, *, read_committed: bool) -> int | None:
        """Where the log ends for this reader, as the last answer said."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def prefer(self, node_id: int | None, until_ms: int = 0) -> None:
        """Fetch from this follower until a time, or from the leader (None)."""
        if node_id is None and self.preferred_replica is None:
            return
        self.preferred_replica, self.preferred_until_ms = node_id, until_ms
        self._attention.sources_changed = True
        self.touch()
        if node_id is not None:
            self._attention.wait_until(self, until_ms)

    def preferred_node(self, now_ms: int) -> int | None:
        """The follower to fetch from, while the leader's advice is fresh."""
        if self.preferred_replica is not None and now_ms >= self.preferred_until_ms:
            self.prefer(None)
        return self.preferred_replica


class Attention:
    """The partitions that have changed, that wait for a time, that have failed, and that have moved."""

    def __init__(self) -> None:
        self.failed: dict[PartitionState, None] = {}
        """Those with an error for the user."""
        self.moved: dict[PartitionState, None] = {}
        """Those whose position may not be committed yet."""
        self.sources_changed = True
        """Whether partitions may be fetched from other nodes than before."""
        self._touched: dict[PartitionState, None] = {}
        self._waiting: list[tuple[int, int, PartitionState]] = []
        self._order = count()

    def touch(self, state: PartitionState) -> None:
        """``state`` has changed: look at it in the next poll."""
        self._touched[state] = None

    def wait_until(self, state: PartitionState, time_ms: int) -> None:
        """Look at ``state`` at this time, too."""
        heappush(self._waiting, (time_ms, next(self._order), state))

    def take(self, now_ms: int) -> list[PartitionState]:
        """What must be looked at now; it will not be returned again unless it is touched."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._touched[heappop(self._waiting)[2]] = None
        touched, self._touched = self._touched, {}
        return list(touched)

    def __bool__(self) -> bool:
        """Whether there is something to take now."""
        return bool(self._touched)

    def next_wake_ms(self) -> int | None:
        """When there will be something to take, if nothing is touched before."""
        return self._waiting[0][0] if self._waiting else None
