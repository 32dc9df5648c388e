"""A consumer's settings among the options: which the source refuses, and which it has no use for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.config import ConsumerConfig
from millstream.spark.options.kafka_settings import read_settings, refuse

# Settings that Spark's own source reserves, and what to use instead.
_RESERVED: Final = {
    "auto.offset.reset": "use startingOffsets, and failOnDataLoss for offsets that are gone",
    "enable.auto.commit": "commitOffsets=true commits after each durable batch",
    "key.deserializer": "keys are binary: cast or decode the column",
    "value.deserializer": "values are binary: cast or decode the column",
    "interceptor.classes": "transform the data frame instead",
}

# Settings of Java's consumer that the source has no use for: it is not a member of a group, and not on a JVM.
_WITHOUT_USE: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "config.providers",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.leave.group.on.close",
        "max.poll.interval.ms",
        "max.poll.records",
        "metric.reporters",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "share.acknowledgement.mode",
    }
)


def read_kafka_settings(kafka: Mapping[str, str]) -> tuple[dict[str, str], str | None, tuple[str, ...]]:
    """The settings for a consumer without its group, the group, and the names that have no effect.

    ``kafka`` has names without the prefix. Raises ConfigError for a reserved, missing or misspelled setting.
    """
    refuse(kafka, _RESERVED)
    used, config, ignored = read_settings(kafka, ConsumerConfig, _WITHOUT_USE)
    used.pop("group.id", None)
    return used, config.group_id, ignored
