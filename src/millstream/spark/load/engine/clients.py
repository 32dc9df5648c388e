"""The settings of a load's clients: its group member, its admin client, the consumers of its tasks."""

from __future__ import annotations

from typing import Any, Final

from millstream.config import AdminConfig, ConsumerConfig
from millstream.errors import ConfigError
from millstream.spark.load.settings import CLIENT_SETTINGS, LoadSettings

_MEMBER_DEFAULTS: Final[dict[str, object]] = {
    # A driver that was killed is removed after 10 s instead of 45, so that the next one waits less.
    "session.timeout.ms": 10_000,
    # New partitions should be noticed soon.
    "metadata.max.age.ms": 30_000,
    "partition.assignment.strategy": "cooperative-sticky",
}
_MEMBER_ALWAYS: Final[dict[str, object]] = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
}


class ClientSettings:
    """Settings for each kind of client, from those of a load."""

    def __init__(self, settings: LoadSettings) -> None:
        given = {name.replace("_", "."): value for name, value in (settings.properties or {}).items()}
        for name in given:
            if name in CLIENT_SETTINGS:
                own = CLIENT_SETTINGS[name]
                raise ConfigError(f"{name} is not a property of a load: use {own} instead", setting=own)
            if name == "enable.auto.commit":
                raise ConfigError(f"{name} is not a property of a load: a load commits by itself")
        self._given = given
        self._own: dict[str, object] = {"bootstrap.servers": settings.servers}
        self._group: dict[str, object] = {"group.id": settings.group_id}
        if settings.instance_id is not None:
            self._group["group.instance.id"] = settings.instance_id
        config = ConsumerConfig.from_settings(self.member)
        self.give_up_seconds: float = config.max_poll_interval_ms / 1000 / 2
        """How long revoked partitions may be kept until a cycle ends."""
        self.retry_seconds: float = config.default_api_timeout_ms / 1000
        """How long a load retries what is temporarily unavailable."""
        self.read_committed: bool = config.isolation_level == "read_committed"
        """Whether only committed transactions are read."""

    @property
    def member(self) -> dict[str, Any]:
        """For the consumer that is the group's member."""
        name = {"client.id": "millstream-load"}
        return {**_MEMBER_DEFAULTS, **name, **self._given, **_MEMBER_ALWAYS, **self._group, **self._own}

    @property
    def admin(self) -> dict[str, Any]:
        """For the admin client."""
        known = {name: value for name, value in self._given.items() if AdminConfig.knows(name)}
        return {"client.id": "millstream-load", **known, **self._own}

    @property
    def tasks(self) -> dict[str, Any]:
        """For the consumers inside the tasks, which are in no group."""
        return {"client.id": "millstream-load-task", **self._given, **self._own}
