"""Immutable values that users and every layer share: TopicPartition, OffsetAndMetadata and others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]
"""One record header: a name, and bytes that may be null."""

RESET_METADATA: Final = "millstream-reset"
"""The metadata of an offset that was set on purpose (``millstream group reset``): a load continues there."""


class TopicPartition(NamedTuple):
    """One partition of one topic; hashable, ordered by topic and then by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """Who set a record's timestamp: the producer, or the broker when it appended. Values as on the wire."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group commits for a partition: the next offset to read, with the committer's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset found by time, with the timestamp of its record."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where the broker stored a record. ``offset`` is -1 with acks=0, as there is no answer."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
