"""Offsets of a stream, as Spark's checkpoint has them, and offsets of the cluster's logs.

A checkpoint holds ``{"orders": {"0": 23, "1": 7}}``, as that of Spark's kafka source does, which can be
continued. A stream adds the topics' ids, under a key that no topic can have, so that a topic that was deleted
and recreated is noticed after a restart too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

LATEST: Final = -1
EARLIEST: Final = -2

_IDS: Final = "#topic_ids"
_UNSTARTED: Final = "#unstarted"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has read: the next offset of each partition, and the ids of their topics."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    unstarted: bool = False
    """Whether this start is not in the checkpoint yet, and would be another if resolved again."""

    def to_dict(self) -> dict[str, Any]:
        """For Spark, which compares offsets as text: always in the same order."""
        found: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        if self.topic_ids:
            found[_IDS] = dict(sorted(self.topic_ids.items()))
        if self.unstarted:
            found[_UNSTARTED] = True
        return found

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> StreamOffset:
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in written.items()
            if not topic.startswith("#")
            for partition, offset in partitions.items()
        }
        return cls(offsets, dict(written.get(_IDS, {})), bool(written.get(_UNSTARTED, False)))


@dataclass(frozen=True, slots=True)
class ClusterOffsets:
    """Topic ids and the first and next offset of each log, as the cluster reports them at one moment.

    ``earliest`` may lack partitions that have been read before.
    """

    topic_ids: Mapping[str, str]
    earliest: Offsets
    latest: Offsets

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.latest)
