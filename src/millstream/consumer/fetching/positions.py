"""Positions: the state of each assigned partition.

A partition goes through phases: its committed offset is awaited, or its position is reset, or validated, and
then it is fetched. ``ALLOWED`` is the whole table.

Every jump (a seek, a reset, a new leader, a new assignment) gives the partition a new generation. Requests
and fetched data carry the generation that they were made for, so whatever belongs to an older one is known to
be stale. FetchContext on does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from millstream.client.cluster import Cluster
from millstream.config import ConsumerConfig
from millstream.errors import MisuseError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.schema import ZERO_UUID


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

    high_watermark: int | None = None
    last_stable_offset: int | None = None
    caught_up_since_ms: int | None = None

    asked_generation: int | None = None
    asked_since_ms: int = 0
    retry_at_ms: int = 0
    failures: int = 0
    last_error: Exception | None = None
    """Why the last try failed; None after a success."""
    error: Exception | None = None
    """What poll() must raise before the partition is tried again."""

    def __post_init__(self) -> None:
        self.generation = next(self._generations)

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
        self.position = None
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

    def lead_by(self, leader: Leader | None) -> None:
        """Note the leader. A new one may lack what the old one had: the position is validated."""
        if leader is None:
            self.without_leader = True
            return
        if self.without_leader:
            self.without_leader = False
            self.succeeded()
        if leader == self.leader:
            return
        self.leader = leader
        self.preferred_replica = None
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
        self.error = None
        self.renew()

    # -- reading on

    def advance(self, offset: int, leader_epoch: int | None) -> None:
        """Everything before ``offset`` has been returned, or is not for users."""
        assert self.phase is FetchPhase.FETCHING and self.position is not None
        assert offset >= self.position.offset, f"{self.partition}: back from {self.position} to {offset}"
        if offset > self.position.offset:
            self.position = FetchPosition(offset, leader_epoch)

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

    def succeeded(self) -> None:
        self.failures = 0
        self.retry_at_ms = 0
        self.last_error = None

    # -- what the log has

    def end_offset(self, *, read_committed: bool) -> int | None:
        """Where the log ends for this reader, as the last answer said."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def preferred_node(self, now_ms: int) -> int | None:
        """The follower to fetch from, while the leader's advice is fresh."""
        if self.preferred_replica is not None and now_ms >= self.preferred_until_ms:
            self.preferred_replica = None
        return self.preferred_replica


class Positions:
    """The assigned partitions. FetchRequests take them in order, and those just read go to the end."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._states: dict[TopicPartition, PartitionState] = {}
        self._generations = count(1)
        self.cluster = Cluster.empty()

    # -- the assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Those that were read before go on where they are."""
        wanted = dict.fromkeys(partitions)
        self.revoke([partition for partition in self._states if partition not in wanted])
        for partition in wanted:
            if partition not in self._states:
                state = self._states[partition] = PartitionState(partition, self._generations)
                state.lead_by(self.leader(partition))

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions; none of their records is returned any more."""
        for partition in partitions:
            self._states.pop(partition, None)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def states(self) -> Iterable[PartitionState]:
        return self._states.values()

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def current(self, partition: TopicPartition, generation: int) -> PartitionState | None:
        """The partition's state, unless what carries this generation is stale."""
        state = self._states.get(partition)
        return state if state is not None and state.generation == generation else None

    def rotate(self, partition: TopicPartition) -> None:
        """Let the other partitions go first from now on."""
        self._states[partition] = self._states.pop(partition)

    def update_cluster(self, cluster: Cluster) -> list[PartitionState]:
        """Take over who leads what; returns the partitions whose topic was deleted and created again."""
        self.cluster = cluster
        recreated = []
        for state in self._states.values():
            known = state.leader
            state.lead_by(self.leader(state.partition))
            if known and state.leader and _is_other_topic(known.topic_id, state.leader.topic_id):
                recreated.append(state)
        return recreated

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader of a partition, assigned or not; None while there is none that can be reached."""
        info = self.cluster.partition(partition.topic, partition.partition)
        if info is None or info.leader is None or info.leader not in self.cluster.brokers:
            return None
        topic = self.cluster.topic(partition.topic)
        return Leader(info.leader, info.leader_epoch, ZERO_UUID if topic is None else topic.topic_id)

    def is_online(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether a replica can be fetched from, as far as the metadata says."""
        info = self.cluster.partition(partition.topic, partition.partition)
        return node_id in self.cluster.brokers and (info is None or node_id not in info.offline_replicas)

    # -- what users ask for

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from another offset. With an epoch, the leader is asked whether it has that record."""
        wanted = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if wanted.offset < 0:
            raise MisuseError(f"offset {wanted.offset} of {partition}: offsets are not negative")
        self._assigned(partition).jump(FetchPosition(wanted.offset, wanted.leader_epoch), validate=True)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read these partitions (or all) from the beginning of the log, which is found when it is needed."""
        self._reset(partitions, ResetStrategy.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read these partitions (or all) from the end of the log, which is found when it is needed."""
        self._reset(partitions, ResetStrategy.LATEST)

    def _reset(self, partitions: Iterable[TopicPartition], strategy: ResetStrategy) -> None:
        states = [self._assigned(partition) for partition in partitions]
        for state in states or list(self._states.values()):
            state.reset(strategy)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these partitions until they are resumed; what is fetched already is kept."""
        for state in [self._assigned(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self._assigned(partition) for partition in partitions]:
            state.paused = False

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.partition for state in self._states.values() if state.paused)

    def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        """Fetch nothing of this partition from ``end`` on; None: all there is."""
        self._assigned(partition).fetch_end = end

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to return; None while it is being found or validated."""
        state = self._assigned(partition)
        return state.position.offset if state.position and state.phase is FetchPhase.FETCHING else None

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit when all records returned so far have been processed."""
        return {
            state.partition: OffsetAndMetadata(state.position.offset, "", state.position.leader_epoch)
            for state in self._states.values()
            if state.position is not None and state.phase is FetchPhase.FETCHING
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """The distance from the position to the end of the log, if it is known."""
        state = self._assigned(partition)
        end = state.end_offset(read_committed=self._config.read_committed)
        if state.position is None or end is None:
            return None
        return max(0, end - state.position.offset)

    def _assigned(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise MisuseError(f"{partition} is not assigned to this consumer")
        return state


def _is_other_topic(known: bytes, found: bytes) -> bool:
    return ZERO_UUID not in (known, found) and known != found
