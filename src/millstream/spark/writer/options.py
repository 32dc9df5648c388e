"""The options of the writer: ``topic``, and a producer's settings that begin with ``kafka.``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.config import ProducerConfig
from millstream.errors import ConfigError
from millstream.spark.source.kafka_settings import PREFIX, SLIP, has_no_effect
from millstream.spark.source.options import NAMES as SOURCE_OPTIONS
from millstream.suggestions import did_you_mean

TOPIC: Final = "topic"

# Producer settings that change what rows become, and what to use instead.
_REFUSED: Final = {
    "interceptor.classes": "transform the data frame instead",
    "key.serializer": "keys are written as they are: cast or encode the column",
    "partitioner.class": "choose partitions with a column partition INT",
    "partitioner.ignore.keys": "choose partitions with a column partition INT",
    "transactional.id": "the writer has no transactions, and writes each row at least once",
    "value.serializer": "values are written as they are: cast or encode the column",
}
# Settings of Kafka's Java client that have no counterpart here, and need none.
_JAVA_ONLY: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "metric.reporters",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "transaction.timeout.ms",
    }
)
# Options of the source and of every stream: jobs share them between reading and writing.
_SHARED: Final = frozenset({*(name.lower() for name in SOURCE_OPTIONS), "checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options that were read and checked."""

    topic: str | None
    """The topic of all rows; None if the column ``topic`` names it."""
    settings: Mapping[str, str] = field(repr=False)
    """A producer's settings under Kafka's names, as they were given."""
    ignored: tuple[str, ...]
    """Options without effect, which deserve a warning."""


def read_writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Read and check all options. Raises ConfigError that says what to do."""
    lower = {name.lower(): value for name, value in given.items()}
    ignored = [name for name in lower if not name.startswith(PREFIX) and _is_ignored(name)]
    kafka: dict[str, str] = {}
    for name, value in lower.items():
        if name.startswith(PREFIX):
            setting = name.removeprefix(PREFIX)
            if _has_no_effect(setting):
                ignored.append(name)
            else:
                kafka[setting] = value
    if "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: name a broker, as host:port")
    try:
        ProducerConfig.from_settings(kafka)
    except ConfigError as error:
        raise ConfigError(f"in the options that begin with kafka.: {error}") from error
    topic = lower.get(TOPIC)
    if topic is not None and not topic.strip():
        raise ConfigError("the option topic is empty: name a topic, or leave it out and add a column topic")
    return WriterOptions(None if topic is None else topic.strip(), kafka, tuple(sorted(ignored)))


def _is_ignored(name: str) -> bool:
    """Whether an option is unknown. Raises ConfigError where a slip is likely."""
    if name == TOPIC or name in _SHARED:
        return False
    if ProducerConfig.knows(name):
        raise ConfigError(f"unknown option {name}: Kafka's settings begin with kafka., use {PREFIX}{name}")
    hint = did_you_mean(name, [TOPIC, f"{PREFIX}bootstrap.servers"], cutoff=SLIP)
    if hint:
        raise ConfigError(f"unknown option {name}: {hint}")
    return True


def _has_no_effect(setting: str) -> bool:
    """Whether a producer has no use for this setting. Raises ConfigError for one that would change rows."""
    instead = _REFUSED.get(setting)
    if instead is not None:
        raise ConfigError(f"{PREFIX}{setting} cannot be set: {instead}")
    return has_no_effect(setting, ProducerConfig, _JAVA_ONLY)
