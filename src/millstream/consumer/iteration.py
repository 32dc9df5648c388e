"""``for record in consumer``: the records of one poll, one by one, and those that are not yet handed out.

A consumer that is iterated has fetched more than it has handed out. Whoever commits or asks for a position in
the loop means the record that the loop has just seen; so what is still to come is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.consumer.records import Record, Records
from millstream.model import OffsetAndMetadata, TopicPartition


class Iteration:
    """The rest of a poll's records. ``first_offsets`` is where each partition would go on."""

    def __init__(self) -> None:
        self._records: Records = Records()
        self._iterator: Iterator[Record] = iter(())
        self._given = 0

    def start(self, records: Records) -> None:
        self._records, self._given = records, 0
        self._iterator = iter(records)

    def next(self) -> Record | None:
        record = next(self._iterator, None)
        if record is not None:
            self._given += 1
        return record

    def stop(self) -> None:
        """Hand out no more."""
        self.start(Records())

    def __bool__(self) -> bool:
        return self._given < len(self._records)

    def first_offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """The first record of each partition that was not handed out: its offset and leader epoch."""
        first: dict[TopicPartition, tuple[int, int | None]] = {}
        skip = self._given
        for columns in self._records.columns:
            if skip >= len(columns):
                skip -= len(columns)
                continue
            first.setdefault(columns.topic_partition, (columns.offsets[skip], columns.leader_epoch))
            skip = 0
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
