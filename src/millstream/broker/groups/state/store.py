"""The durable state of all groups: the applied records of ``__consumer_offsets``, and nothing else.

Only ``apply`` writes here, and only with records that are on the disk. So what is read here may be sent to
clients, and replaying the log gives the same store again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from millstream.broker.groups.state.records import (
    CommittedOffset,
    GroupRecord,
    GroupSnapshot,
    OffsetRecord,
)
from millstream.model import TopicPartition

_NONE: Mapping[TopicPartition, CommittedOffset] = {}


@dataclass(slots=True)
class Store:
    """The latest record of every key."""

    groups: dict[str, GroupSnapshot] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """By group. A group without offsets has no entry."""

    def apply(self, record: GroupRecord) -> None:
        """Apply one durable record."""
        if isinstance(record, OffsetRecord):
            self._apply_offset(record)
        elif record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = record.value

    def _apply_offset(self, record: OffsetRecord) -> None:
        if record.value is not None:
            self.offsets.setdefault(record.group_id, {})[record.partition] = record.value
            return
        offsets = self.offsets.get(record.group_id)
        if offsets is not None:
            offsets.pop(record.partition, None)
            if not offsets:
                del self.offsets[record.group_id]

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; none for an unknown group."""
        return self.offsets.get(group_id, _NONE)

    def knows(self, group_id: str) -> bool:
        """Return whether there is any record of the group."""
        return group_id in self.groups or group_id in self.offsets

    def group_ids(self) -> Iterator[str]:
        """Return every group of which there is a record."""
        yield from self.groups
        yield from (group_id for group_id in self.offsets if group_id not in self.groups)

    @property
    def offset_count(self) -> int:
        return sum(len(offsets) for offsets in self.offsets.values())
