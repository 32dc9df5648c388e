"""Offsets as users and Spark's checkpoints write them: ``{"orders": {"0": 23, "1": -2}}``.

Spark's own source writes its checkpoints so, and those are read here as well. A stream adds the topics' ids,
under a name that no topic can have, so that a topic which was made anew is recognised after a restart too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.errors import ConfigError
from millstream.model import TopicPartition

Offsets = Mapping[TopicPartition, int]

LATEST: Final = -1
EARLIEST: Final = -2

_IDS: Final = "#topic_ids"
_UNSTARTED: Final = "#unstarted"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has come: the next offset of each partition, and the ids of their topics."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    unstarted: bool = False
    """Whether this start is not written down anywhere yet: asked again, it would be another."""

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


def read_numbers(text: str, option: str, *, lowest: int) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"partition": number}}``; raises ConfigError that names the option."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _read_object(text, option, '{"orders": {"0": 23, "1": -2}}').items():
        if not isinstance(partitions, dict):
            raise ConfigError(f'{option}: {topic} must have a number for each partition, as {{"0": 23}}')
        for partition, number in partitions.items():
            if not partition.isdigit() or not isinstance(number, int) or isinstance(number, bool):
                raise ConfigError(f"{option}: {partition}: {number!r} of {topic} must be two whole numbers")
            if number < lowest:
                raise ConfigError(f"{option}: {number} of {topic}-{partition} must be at least {lowest}")
            numbers[TopicPartition(topic, int(partition))] = number
    if not numbers:
        raise ConfigError(f"{option} names no partition")
    return numbers


def read_partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Read ``{"topic": [0, 1]}``; raises ConfigError that names the option."""
    found: list[TopicPartition] = []
    for topic, partitions in _read_object(text, option, '{"orders": [0, 1]}').items():
        if not isinstance(partitions, list) or not all(_is_number(each) for each in partitions):
            raise ConfigError(f"{option}: {topic} must have a list of partitions, as [0, 1]")
        found += [TopicPartition(topic, partition) for partition in partitions]
    if not found:
        raise ConfigError(f"{option} names no partition")
    return tuple(sorted(set(found)))


def _read_object(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option} is not JSON ({error}): write it like {example}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option} must be a JSON object like {example}")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
