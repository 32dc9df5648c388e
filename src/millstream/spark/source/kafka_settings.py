"""The options that begin with ``kafka.``: which are passed on, which refused, and which ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig
from millstream.errors import ConfigError
from millstream.suggestions import nearest

PREFIX: Final = "kafka."

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

SLIP: Final = 0.8
"""An unknown name that is as near as this to a known one is taken for a slip, and refused."""


def read_kafka_settings(kafka: Mapping[str, str]) -> tuple[dict[str, str], str | None, tuple[str, ...]]:
    """The settings for a consumer without its group, the group, and the names that have no effect.

    ``kafka`` has names without the prefix. Raises ConfigError for a reserved, missing or misspelled setting.
    """
    for name, instead in _RESERVED.items():
        if name in kafka:
            raise ConfigError(f"{PREFIX}{name} cannot be set: {instead}")
    if "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: name a broker, as host:port")
    ignored = tuple(f"{PREFIX}{name}" for name in kafka if has_no_effect(name, ConsumerConfig, _WITHOUT_USE))
    used = {name: text for name, text in kafka.items() if f"{PREFIX}{name}" not in ignored}
    try:
        group_id = ConsumerConfig.from_settings(used, {}).group_id
    except ConfigError as error:
        raise ConfigError(f"in the options that begin with kafka.: {error}") from error
    used.pop("group.id", None)
    return used, group_id, ignored


def has_no_effect(
    name: str, config: type[ConsumerConfig] | type[ProducerConfig], without_use: frozenset[str]
) -> bool:
    """Whether a client has no use for this setting; not if it is a slip, or if safety depends on it.

    ``config`` has the settings of that client, ``without_use`` are those of Java's that it does not need.
    """
    if name in without_use:
        return True
    if config.knows(name) or name.startswith(("sasl.", "ssl.", "security.")):
        return False
    if any(each.knows(name) for each in (ConsumerConfig, ProducerConfig, AdminConfig)):
        return True
    known = [each.replace("_", ".") for each in config.names()]
    return not nearest(name, known, cutoff=SLIP)
