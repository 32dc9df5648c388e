"""Offsets of a stream, as Spark's checkpoint has them, and offsets of the cluster's logs.

A checkpoint holds ``{"orders": {"0": 23, "1": 7}}``, as that of Spark's kafka source does: either source
continues the other's. A stream adds the topics' ids, so that a topic that was deleted and recreated is
noticed after a restart too. They are in keys that no topic can have, with an empty object as the value:
whoever goes through the partitions of each topic, as Spark's parser and lag listeners do, does not see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

LATEST: Final = -1
EARLIEST: Final = -2

_ID: Final = "#id"
_UNSTARTED: Final = "#unstarted"
_OLD_IDS: Final = "#topic_ids"
"""All ids in one object, as earlier versions wrote them."""


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
        for topic, topic_id in sorted(self.topic_ids.items()):
            found[f"{_ID}:{topic}:{topic_id}"] = {}
        if self.unstarted:
            found[_UNSTARTED] = {}
        return found

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> StreamOffset:
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in written.items()
            if not topic.startswith("#")
            for partition, offset in partitions.items()
        }
        ids = dict(written.get(_OLD_IDS, {}))
        for name in written:
            mark, _, rest = name.partition(":")
            if mark == _ID:
                topic, _, topic_id = rest.partition(":")
                ids[topic] = topic_id
        return cls(offsets, ids, _UNSTARTED in written)


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
