"""Record and Records: what ``poll()`` returns; records are built from columns when they are accessed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple, overload

from millstream.consumer.decoding.columns import Columns
from millstream.model import Header, TimestampType, TopicPartition


class Record(NamedTuple):
    """One record, with its key and value as the deserializers gave them.

    (A named tuple is built in one C call, five times faster than a frozen dataclass.)
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[Header, ...]
    leader_epoch: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


_new_record = partial(tuple.__new__, Record)
"""A record from a tuple of its fields: ``Record._make`` without its check of the length."""


class Records(Sequence[Record]):
    """Records of any number of partitions; those of one partition are in the order of their offsets.

    Each access to a record builds it again. Slices, and the parts of ``by_partition``, are views of the same
    columns.
    """

    __slots__ = ("_ends", "columns")

    def __init__(self, columns: Iterable[Columns] = ()) -> None:
        self.columns = tuple(part for part in columns if len(part))
        """The columns that hold the records, none of them empty."""
        self._ends = tuple(accumulate(map(len, self.columns)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(map(records_of, self.columns))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return self._slice(index)
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} of {len(self)} records")
        return self._record(position)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = ", ".join(f"{partition}: {len(part)}" for partition, part in self.by_partition().items())
        return f"<Records {parts}>" if parts else "<Records none>"

    def by_partition(self) -> dict[TopicPartition, Records]:
        """The records of each partition that has any, in the order in which they came."""
        parts: dict[TopicPartition, list[Columns]] = {}
        for part in self.columns:
            parts.setdefault(part.topic_partition, []).append(part)
        return {partition: Records(columns) for partition, columns in parts.items()}

    def _record(self, position: int) -> Record:
        place = bisect_right(self._ends, position)
        part = self.columns[place]
        row = position - self._ends[place] + len(part)
        return Record(
            part.topic,
            part.partition,
            part.offsets[row],
            part.timestamps[row],
            part.timestamp_type,
            part.keys[row],
            part.values[row],
            part.headers[row],
            part.leader_epoch,
        )

    def _slice(self, index: slice) -> Sequence[Record]:
        start, stop, step = index.indices(len(self))
        if step != 1:
            return [self._record(position) for position in range(start, stop, step)]
        return Records(self._rows(start, stop))

    def _rows(self, start: int, stop: int) -> Iterator[Columns]:
        for part, end in zip(self.columns, self._ends, strict=True):
            first = end - len(part)
            if start < end and stop > first:
                yield part.rows(max(0, start - first), min(len(part), stop - first))


def records_of(part: Columns, topics: Iterable[str] | None = None) -> Iterator[Record]:
    """The records of one part, built when they are read. ``topics``: its topic, once for each of them."""
    return map(
        _new_record,
        zip(
            repeat(part.topic) if topics is None else topics,
            repeat(part.partition),
            part.offsets,
            part.timestamps,
            repeat(part.timestamp_type),
            part.keys,
            part.values,
            part.headers,
            repeat(part.leader_epoch),
        ),
    )
