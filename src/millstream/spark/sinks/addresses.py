"""What ``--to`` means: an address of a table or a topic, and the sink that writes there.

| address | sink |
|-|-|
| ``delta:DIR`` | a Delta table in a directory |
| ``postgresql://USER@HOST/DATABASE?table=NAME`` | a table of PostgreSQL; without ``table`` the topic's name |
| ``topic:NAME`` | a topic of the brokers that are read from |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import ConfigError
from millstream.extras import require
from millstream.spark.sinks.base import Sink

_KNOWN: Final = "delta:DIR, postgresql://USER@HOST/DATABASE?table=NAME or topic:NAME"


def sink_for(
    address: str, topics: Sequence[str], settings: Mapping[str, object], target_file_size: int | None = None
) -> Sink:
    """The sink at an address; ``topics`` are those that are loaded, ``settings`` those of their brokers.

    ``target_file_size`` is for sinks with files. Raises ConfigError for an address that means nothing, and
    says which would.
    """
    kind, colon, rest = address.partition(":")
    make = _SINKS.get(kind.lower()) if colon else None
    if make is None:
        raise ConfigError(f"{_shown(address)} is no place to load to: give {_KNOWN}")
    return make(_Place(address, rest, topics, settings, target_file_size))


@dataclass(frozen=True, slots=True)
class _Place:
    """An address in parts, and what is around it."""

    address: str
    rest: str
    topics: Sequence[str]
    settings: Mapping[str, object]
    target_file_size: int | None


def _shown(address: str) -> str:
    """It may be a URL of something else, with a password."""
    scheme, separator, rest = address.partition("://")
    return repr(f"{scheme}://{rest.rpartition('@')[2]}" if separator else address)


def _delta(place: _Place) -> Sink:
    if not place.rest:
        raise ConfigError("delta: needs a directory: delta:lake/orders")
    require("deltalake", "spark")
    from millstream.spark.sinks.delta.sink import DeltaSink

    if place.target_file_size is None:
        return DeltaSink(place.rest)
    return DeltaSink(place.rest, target_file_size=place.target_file_size)


def _refuse_file_size(place: _Place, kind: str) -> None:
    if place.target_file_size is not None:
        raise ConfigError(f"target_file_size is for sinks with files, and {kind} has none: leave it out")


def _postgres(place: _Place) -> Sink:
    _refuse_file_size(place, "PostgreSQL")
    address, topics = place.address, place.topics
    require("psycopg", "postgres")
    from millstream.spark.sinks.postgres.names import with_default_table
    from millstream.spark.sinks.postgres.sink import PostgresSink

    return PostgresSink(with_default_table(address, topics[0]) if len(topics) == 1 else address)


def _topic(place: _Place) -> Sink:
    _refuse_file_size(place, "a topic")
    from millstream.spark.sinks.topic.sink import TopicSink

    if place.rest in place.topics:
        raise ConfigError(f"topic:{place.rest} would load the topic into itself: choose another name")
    return TopicSink(place.rest, settings=place.settings)


_SINKS: Final[dict[str, Callable[[_Place], Sink]]] = {
    "delta": _delta,
    "postgres": _postgres,
    "postgresql": _postgres,
    "topic": _topic,
}
