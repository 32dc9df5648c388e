"""The options of the writer: ``topic``, and a producer's settings that begin with ``kafka.``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.config import ProducerConfig
from millstream.errors import ConfigError
from millstream.spark.options.kafka_settings import PREFIX, SLIP, read_settings, refuse
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
# Options of every stream.
_OF_STREAMS: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options that were read and checked."""

    topic: str | None
    """The topic of all rows; None if the column ``topic`` names it."""
    settings: Mapping[str, str] = field(repr=False)
    """A producer's settings under Kafka's names, as they were given."""
    ignored: tuple[str, ...]
    """Options without effect, which deserve a warning."""


def read_writer_options(given: Mapping[str, str], of_reads: Iterable[str] = ()) -> WriterOptions:
    """Read and check all options. Raises ConfigError that says what to do.

    ``of_reads`` are options of the source: jobs share them between reading and writing.
    """
    lower = {name.lower(): value for name, value in given.items()}
    expected = {TOPIC, *_OF_STREAMS, *(name.lower() for name in of_reads)}
    ignored = [name for name in lower if not name.startswith(PREFIX) and name not in expected]
    for name in ignored:
        _check_unknown(name)
    kafka = {name.removeprefix(PREFIX): value for name, value in lower.items() if name.startswith(PREFIX)}
    refuse(kafka, _REFUSED)
    used, _, without_effect = read_settings(kafka, ProducerConfig, _JAVA_ONLY)
    topic = lower.get(TOPIC)
    if topic is not None and not topic.strip():
        raise ConfigError("the option topic is empty: name a topic, or leave it out and add a column topic")
    return WriterOptions(
        None if topic is None else topic.strip(), used, tuple(sorted([*ignored, *without_effect]))
    )


def _check_unknown(name: str) -> None:
    """Raise ConfigError for an unknown option where a slip is likely."""
    if ProducerConfig.knows(name):
        raise ConfigError(f"unknown option {name}: Kafka's settings begin with kafka., use {PREFIX}{name}")
    hint = did_you_mean(name, [TOPIC, f"{PREFIX}bootstrap.servers"], cutoff=SLIP)
    if hint:
        raise ConfigError(f"unknown option {name}: {hint}")
