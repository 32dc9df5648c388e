"""Checks of the arguments of Consumer's methods; each error says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from millstream.consumer.listener import RebalanceListener
from millstream.errors import ConfigError, MisuseError
from millstream.model import OffsetAndMetadata, TopicPartition

OffsetsToCommit = Mapping[TopicPartition, int | OffsetAndMetadata]


def seconds(timeout: float) -> float:
    """A timeout, which may be 0 but not less."""
    if timeout < 0:
        raise MisuseError(f"timeout is {timeout}: seconds must not be negative")
    return float(timeout)


def record_limit(max_records: int) -> int:
    """A limit of at least one record."""
    if max_records < 1:
        raise MisuseError(f"max_records is {max_records}: it must be at least 1")
    return max_records


def partition_of(each: TopicPartition) -> TopicPartition:
    """A partition; a pair of topic and number is accepted."""
    if isinstance(each, TopicPartition):
        return each
    if isinstance(each, tuple) and len(each) == 2:
        return TopicPartition(*each)
    raise MisuseError(f"{each!r} is not a partition: write TopicPartition(topic, number)")


def offsets_to_commit(offsets: OffsetsToCommit) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as they are stored; numbers are accepted."""
    return {partition_of(each): _offset(offset) for each, offset in offsets.items()}


def _offset(value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    wanted = OffsetAndMetadata(value) if isinstance(value, int) else value
    if wanted.offset < 0:
        raise MisuseError(f"offset {wanted.offset} cannot be committed: offsets are not negative")
    return wanted


def times_of(timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Times to look for, in milliseconds of the epoch."""
    if any(timestamp < 0 for timestamp in timestamps.values()):
        raise MisuseError("a time must not be negative: use beginning_offsets() or end_offsets()")
    return {partition_of(each): timestamp for each, timestamp in timestamps.items()}


def topic_names(topics: Iterable[str]) -> list[str]:
    """Topic names as a list; a single string is refused."""
    if isinstance(topics, str):
        raise MisuseError(f"topics must be a list of names: write subscribe([{topics!r}])")
    names = list(topics)
    if not all(names):
        raise MisuseError("a topic's name must not be empty")
    return names


def topic_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """A regular expression, compiled or not."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from error


def checked_listener(listener: RebalanceListener | None) -> RebalanceListener | None:
    """A RebalanceListener or None; other objects are refused."""
    if listener is not None and not isinstance(listener, RebalanceListener):
        raise MisuseError("the listener must be a RebalanceListener: derive your class from it")
    return listener
