"""Positions: the assigned partitions and what users ask of them: seek, pause, resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from millstream.client.cluster import Cluster
from millstream.config import ConsumerConfig
from millstream.consumer.fetching.partition_state import (
    Attention,
    FetchPhase,
    FetchPosition,
    Leader,
    PartitionState,
    ResetStrategy,
)
from millstream.errors import MisuseError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.schema import ZERO_UUID

_KNOWN = frozenset({FetchPhase.VALIDATING, FetchPhase.FETCHING})


class Positions:
    """The assigned partitions. FetchRequests take them in order, and those just read go to the end."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._states: dict[TopicPartition, PartitionState] = {}
        self._generations = count(1)
        self.attention = Attention()
        self.cluster = Cluster.empty()

    # -- the assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others. Those that were read before go on where they are."""
        wanted = dict.fromkeys(partitions)
        self.revoke([partition for partition in self._states if partition not in wanted])
        for partition in wanted:
            if partition not in self._states:
                state = PartitionState(partition, self._generations, self.attention)
                self._states[partition] = state
                state.lead_by(self.leader(partition))

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget these partitions; none of their records is returned any more."""
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                self.attention.failed.pop(state, None)
                self.attention.moved.pop(state, None)
                self.attention.sources_changed = True
                state.touch()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def states(self) -> Iterable[PartitionState]:
        return self._states.values()

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def has(self, state: PartitionState) -> bool:
        """Whether this is the state of an assigned partition, not of one that was revoked."""
        return self._states.get(state.partition) is state

    def current(self, partition: TopicPartition, generation: int) -> PartitionState | None:
        """The partition's state, unless what carries this generation is stale."""
        state = self._states.get(partition)
        return state if state is not None and state.generation == generation else None

    def touch(self, partition: TopicPartition) -> None:
        """What is fetched of this partition has changed."""
        state = self._states.get(partition)
        if state is not None:
            state.touch()

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
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        for state in [self._assigned(partition) for partition in partitions]:
            state.paused = paused
            state.touch()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.partition for state in self._states.values() if state.paused)

    def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        """Fetch nothing of this partition from ``end`` on; None: all there is."""
        state = self._assigned(partition)
        state.fetch_end = end
        state.touch()

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to return; None while it is being found or validated."""
        state = self._assigned(partition)
        return state.position.offset if state.position and state.phase is FetchPhase.FETCHING else None

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit when all records returned so far have been processed.

        Those that are being validated, too: whoever reads on from there validates them by their epoch again.
        """
        return _offsets(self._states.values())

    def moved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of ``consumed``, what the group has not committed yet, as far as is known."""
        moved = self.attention.moved
        for state in [state for state in moved if state.position and state.position == state.stored]:
            del moved[state]
        return _offsets(moved)

    def is_stored(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether the group has committed this offset already, as far as is known."""
        state = self._states.get(partition)
        return state is not None and state.stored == (offset.offset, offset.leader_epoch)

    def note_stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, certain: bool) -> None:
        """The group has committed these offsets; or, if not ``certain``, it is unknown what it has now."""
        for partition, offset in offsets.items():
            state = self._states.get(partition)
            if state is not None:
                state.stored = FetchPosition(offset.offset, offset.leader_epoch) if certain else None
                self.attention.moved[state] = None

    def forget_stored(self) -> None:
        """Take everything for uncommitted, so that all offsets are committed once more."""
        for state in self._states.values():
            state.stored = None
            self.attention.moved[state] = None

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


def _offsets(states: Iterable[PartitionState]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions of those that have one."""
    return {
        state.partition: OffsetAndMetadata(state.position.offset, "", state.position.leader_epoch)
        for state in states
        if state.position is not None and state.phase in _KNOWN
    }


def _is_other_topic(known: bytes, found: bytes) -> bool:
    return ZERO_UUID not in (known, found) and known != found
