"""The options that begin with ``kafka.``: settings of a consumer or a producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig
from millstream.errors import ConfigError
from millstream.suggestions import nearest

PREFIX: Final = "kafka."

SLIP: Final = 0.8
"""An unknown name that is as near as this to a known one is taken for a slip, and refused."""

Config = TypeVar("Config", ConsumerConfig, ProducerConfig)


def refuse(kafka: Mapping[str, str], instead: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting among ``instead``, which says what to use. Names are without prefix."""
    for name, remedy in instead.items():
        if name in kafka:
            raise ConfigError(f"{PREFIX}{name} cannot be set: {remedy}")


def read_settings(
    kafka: Mapping[str, str], config: type[Config], without_use: frozenset[str]
) -> tuple[dict[str, str], Config, tuple[str, ...]]:
    """The settings that a client uses, what it reads from them, and the options that have no effect.

    ``config`` has the settings of that client, ``without_use`` are those of Java's that it does not need.
    Raises ConfigError for a missing, misspelled or wrong setting.
    """
    if "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: name a broker, as host:port")
    ignored = {name for name in kafka if _has_no_effect(name, config, without_use)}
    used = {name: text for name, text in kafka.items() if name not in ignored}
    try:
        read = config.from_settings(used, {})
    except ConfigError as error:
        raise ConfigError(f"in the options that begin with kafka.: {error}") from error
    return used, read, tuple(f"{PREFIX}{name}" for name in kafka if name in ignored)


def _has_no_effect(
    name: str, config: type[ConsumerConfig] | type[ProducerConfig], without_use: frozenset[str]
) -> bool:
    """Whether a client has no use for this setting; not if it is a slip, or if safety depends on it."""
    if name in without_use:
        return True
    if config.knows(name) or name.startswith(("sasl.", "ssl.", "security.")):
        return False
    if any(each.knows(name) for each in (ConsumerConfig, ProducerConfig, AdminConfig)):
        return True
    known = [each.replace("_", ".") for each in config.names()]
    return not nearest(name, known, cutoff=SLIP)
