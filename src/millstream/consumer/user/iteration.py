"""``for record in consumer``: the records of one poll, one by one, and those that are not yet handed out.

A consumer that is iterated has fetched more than it has handed out. Whoever commits or asks for a position in
the loop means the record that the loop has just seen; so what is still to come is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from operator import length_hint

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.records import Record, Records, records_of
from millstream.model import OffsetAndMetadata, TopicPartition


class Iteration:
    """The rest of a poll's records. ``first_offsets`` is where each partition would go on.

    Nobody counts while ``rest`` is read, as that would take longer than the reading. Each part's records are
    drawn along with a ``repeat``, which knows how often it can still be asked.
    """

    def __init__(self) -> None:
        self._parts: tuple[Columns, ...] = ()
        self._begun: list[repeat[str]] = []
        self.rest: Iterator[Record] = iter(())
        """What was not handed out. After ``start`` and ``stop`` it is another iterator, and this one void."""

    def start(self, records: Records) -> None:
        self._parts, self._begun = records.columns, []
        self.rest = chain.from_iterable(map(self._begin, self._parts))

    def _begin(self, part: Columns) -> Iterator[Record]:
        topics = repeat(part.topic, len(part))
        self._begun.append(topics)
        return records_of(part, topics)

    def next(self) -> Record | None:
        return next(self.rest, None)

    def stop(self) -> None:
        """Hand out no more."""
        self.start(Records())

    def __bool__(self) -> bool:
        return len(self._begun) < len(self._parts) or any(map(length_hint, self._begun[-1:]))

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """The first record of each partition that was not handed out: its offset and leader epoch."""
        first: dict[TopicPartition, tuple[int, int | None]] = {}
        current = max(0, len(self._begun) - 1)
        for place, part in enumerate(self._parts[current:], current):
            left = length_hint(self._begun[place]) if place < len(self._begun) else len(part)
            if left:
                first.setdefault(part.topic_partition, (part.offsets[len(part) - left], part.leader_epoch))
        return first

    def correct(
        self, positions: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions as far as records were handed out."""
        for partition, (offset, epoch) in self.first_offsets().items():
            known = positions.get(partition)
            if known is not None and known.offset > offset:
                positions[partition] = OffsetAndMetadata(offset, "", epoch)
        return positions
