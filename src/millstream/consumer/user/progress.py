"""How far the user has read: positions, minus the records that an iteration still holds back.

``for record in consumer`` polls many records and yields them one by one. A commit or a position inside the
loop means the record that the loop has just seen, so records that it has not seen yet are subtracted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, repeat
from operator import length_hint

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.records import Record, Records, records_of
from millstream.consumer.fetching.partition_state import FetchPhase, FetchPosition
from millstream.consumer.fetching.positions import Positions
from millstream.model import OffsetAndMetadata, TopicPartition


class Iteration:
    """The records of one poll that are still to be yielded.

    Counting records while they are read would cost more than reading them. Instead, each part's records are
    zipped with a ``repeat``, whose length hint says how many are left.
    """

    def __init__(self) -> None:
        self._parts: tuple[Columns, ...] = ()
        self._begun: list[repeat[str]] = []
        self.rest: Iterator[Record] = iter(())
        """The records still to be yielded. ``start`` and ``stop`` replace this iterator."""

    def start(self, records: Records) -> None:
        self._parts, self._begun = records.columns, []
        self.rest = chain.from_iterable(map(self._begin, self._parts))

    def _begin(self, part: Columns) -> Iterator[Record]:
        topics = repeat(part.topic, len(part))
        self._begun.append(topics)
        return records_of(part, topics)

    def stop(self) -> None:
        """Yield no more."""
        self.start(Records())

    def __bool__(self) -> bool:
        return len(self._begun) < len(self._parts) or any(map(length_hint, self._begun[-1:]))

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """The first record of each partition that was not yielded: its offset and leader epoch."""
        first: dict[TopicPartition, tuple[int, int | None]] = {}
        for part, offset in self._left():
            first.setdefault(part.topic_partition, (offset, part.leader_epoch))
        return first

    def first_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the first record of ``partition`` that was not yielded; None: all were."""
        topic, number = partition
        for part, offset in self._left():
            if part.partition == number and part.topic == topic:
                return offset
        return None

    def _left(self) -> Iterator[tuple[Columns, int]]:
        """The parts that were not yielded to their end, and the offset where each goes on."""
        current = max(0, len(self._begun) - 1)
        for part, begun in zip(self._parts[current:], self._begun[current:], strict=False):
            left = length_hint(begun)
            if left:
                yield part, part.offsets[len(part) - left]
        for part in self._parts[len(self._begun) :]:
            if len(part):
                yield part, part.offsets[0]

    def correct(
        self, positions: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Move positions back to the first record that was not yielded."""
        for partition, (offset, epoch) in self.first_offsets().items():
            known = positions.get(partition)
            if known is not None and known.offset > offset:
                positions[partition] = OffsetAndMetadata(offset, "", epoch)
        return positions


class UserProgress:
    """Positions as the user sees them. Call with the consumer's lock held."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.iteration = Iteration()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit: those after the last record that the user has seen."""
        return self.iteration.correct(self._positions.consumed())

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As ``consumed``, without what the group has committed already: what automatic commits send."""
        found = self.iteration.correct(self._positions.moved())
        return {
            where: offset for where, offset in found.items() if not self._positions.is_stored(where, offset)
        }

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that the user sees; None while it is unknown."""
        offset = self._positions.position(partition)
        waiting = self.iteration.first_offset(partition)
        return offset if offset is None or waiting is None else min(offset, waiting)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records the user has not seen; None while that is unknown."""
        behind = self._positions.lag(partition)
        offset = self._positions.position(partition)
        waiting = self.iteration.first_offset(partition)
        if behind is None or offset is None or waiting is None:
            return behind
        return behind + offset - waiting

    def give_back(self, partitions: Collection[TopicPartition] = ()) -> None:
        """End an iteration that holds records of ``partitions`` (none: any): its rest is read again."""
        if not self.iteration:
            return
        rest = self.iteration.first_offsets()
        if partitions and rest.keys().isdisjoint(partitions):
            return
        for partition, (offset, epoch) in rest.items():
            state = self._positions.get(partition)
            if state is not None and state.position is not None and state.position.offset > offset:
                # These records came from the leader, so a good position stays good, and can be committed.
                is_good = state.phase is FetchPhase.FETCHING
                state.jump(FetchPosition(offset, epoch), validate=not is_good)
        self.iteration.stop()
