"""The values that source options take, and how their text is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from millstream.model import TopicPartition
from millstream.settings import LONG_MAX, Choice, Integer
from millstream.spark.planning.offsets import EARLIEST, LATEST


class NamedOffset(Enum):
    """An offset by name."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; LATEST and EARLIEST mean the ends of the log."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """A timestamp in milliseconds since 1970, for all partitions or for each."""

    times: int | Mapping[TopicPartition, int]
    option: str
    or_latest: bool
    """If no record is that recent: the end of the log, or else an error."""

    def of(self, partition: TopicPartition | None) -> int | None:
        """The timestamp for ``partition`` (None: for all); None if there is none."""
        if isinstance(self.times, int):
            return self.times
        return None if partition is None else self.times.get(partition)


OffsetBound = NamedOffset | SpecificOffsets | SpecificTimestamps
"""Where a read starts or ends."""


# -- readers: each raises ValueError with what was expected

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

positive: Final = Integer(1, LONG_MAX)
natural: Final = Integer(0, LONG_MAX)


def read_topics(text: str) -> tuple[str, ...]:
    """Read topic names separated by commas."""
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError("must name at least one topic")
    return topics


def read_pattern(text: str) -> str:
    """Read a regular expression."""
    if not text:
        raise ValueError("must not be empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from error
    return text


def read_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Read ``{"topic": [0, 1]}``."""
    found: list[TopicPartition] = []
    for topic, partitions in _read_object(text, '{"orders": [0, 1]}').items():
        if not isinstance(partitions, list) or not all(type(n) is int and n >= 0 for n in partitions):
            raise ValueError(f"must have a list of partitions for {topic}, as [0, 1]")
        found += [TopicPartition(topic, partition) for partition in partitions]
    if not found:
        raise ValueError("must name a partition")
    return tuple(sorted(set(found)))


def numbers(lowest: int) -> Callable[[str], dict[TopicPartition, int]]:
    """A reader of ``{"topic": {"partition": number}}``."""

    def read(text: str) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic, partitions in _read_object(text, '{"orders": {"0": 23, "1": -2}}').items():
            if not isinstance(partitions, dict):
                raise ValueError(f'must have a number for each partition of {topic}, as {{"0": 23}}')
            for partition, number in partitions.items():
                if not partition.isdigit() or type(number) is not int:
                    raise ValueError(f'must have whole numbers for {topic}, as {{"0": 23}}')
                if number < lowest:
                    raise ValueError(f"must be at least {lowest} for {topic}-{partition}")
                found[TopicPartition(topic, int(partition))] = number
        if not found:
            raise ValueError("must name a partition")
        return found

    return read


def _read_object(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"must be JSON like {example} ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"must be a JSON object like {example}")
    return found


def read_starting_offsets(text: str) -> OffsetBound:
    """Read a named offset, or an offset for each partition."""
    if text.startswith("{"):
        return SpecificOffsets(numbers(EARLIEST)(text), "startingOffsets")
    try:
        return NamedOffset(text.lower())
    except ValueError:
        raise ValueError('must be earliest, latest, committed or JSON like {"orders": {"0": 23}}') from None


def read_ending_offsets(text: str) -> OffsetBound:
    """Read ``latest``, or an offset for each partition."""
    if text.startswith("{"):
        return SpecificOffsets(numbers(LATEST)(text), "endingOffsets")
    if text.lower() != "latest":
        raise ValueError('must be latest or JSON like {"orders": {"0": 23}}')
    return NamedOffset.LATEST


def read_strategy(text: str) -> str:
    """Read ``error`` or ``latest``."""
    return Choice(("error", "latest"))(text.lower())


def read_duration_ms(text: str) -> int:
    """Read a time such as ``15m``; a number alone is milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a time such as 15m, 30s or 500ms")
    return int(match[1]) * _UNITS_MS[(match[2] or "ms").lower()]
