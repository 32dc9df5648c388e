"""The broker's settings: Kafka's names and defaults, checked at the door.

Two defaults differ from Kafka's, because this broker is for one machine: short sessions are accepted, and a
new group's first rebalance waits little. Kafka's broker settings that are only the defaults of topics
(``log.retention.ms``, ``message.max.bytes``, ...) are kept apart, as the topics' own settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final

from millstream.broker.groups.settings import GroupSettings
from millstream.broker.log.config import CONFIG_DEFINITIONS, LogConfig
from millstream.errors import ConfigError
from millstream.settings import (
    INT_MAX,
    Address,
    Flag,
    Int,
    Integer,
    Long,
    PositiveInt,
    Settings,
    Text,
    dotted,
)
from millstream.settings import parse_address as parse_listener
from millstream.suggestions import did_you_mean

_TOPIC_NAMES: Final = {each.broker_name: each.name for each in CONFIG_DEFINITIONS if each.broker_name}
"""Broker settings that are defaults of topics, with the topic's name for each."""

_COARSE_TIMES: Final = (
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
)
"""Kafka's older settings in minutes and hours; each gives way to the finer one that stands beside it."""


def _read_listener(value: object) -> Address | None:
    return parse_listener(str(value)) if value else None


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(Settings):
    """Everything ``millstream broker --set`` and ``EmbeddedBroker(settings=...)`` take, less the topics'."""

    node_id: Int = 1
    broker_rack: Text = ""
    advertised_listeners: Annotated[Address | None, _read_listener] = None
    num_partitions: PositiveInt = 1
    auto_create_topics_enable: Flag = True
    delete_topic_enable: Flag = True
    socket_request_max_bytes: PositiveInt = 104_857_600
    max_connections: Int = INT_MAX
    connections_max_idle_ms: Long = 600_000
    queued_max_request_bytes: Annotated[int, Integer(1, 2**40)] = 268_435_456
    fetch_max_bytes: Annotated[int, Integer(1024, INT_MAX)] = 57_671_680
    max_incremental_fetch_session_cache_slots: Int = 1000
    log_retention_check_interval_ms: PositiveInt = 300_000
    log_cleaner_enable: Flag = True
    log_cleaner_backoff_ms: Long = 15_000
    producer_id_expiration_ms: PositiveInt = 86_400_000
    group_min_session_timeout_ms: Int = 1_000
    group_max_session_timeout_ms: Int = 1_800_000
    group_initial_rebalance_delay_ms: Int = 100
    group_max_size: PositiveInt = INT_MAX
    offset_metadata_max_bytes: Int = 4_096
    offsets_retention_minutes: PositiveInt = 10_080
    offsets_retention_check_interval_ms: PositiveInt = 600_000
    offsets_topic_num_partitions: PositiveInt = 50
    offsets_topic_segment_bytes: PositiveInt = 104_857_600

    topic_defaults: Any = field(default_factory=LogConfig)
    """What a topic's setting is where the topic does not say: a LogConfig."""
    topic_properties: Any = field(default_factory=dict)
    """The topic defaults that were given, under the topic's names, as texts."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> BrokerSettings:
        """Read Kafka's broker settings by their dotted names; raises ConfigError that says what to change."""
        own: dict[str, object] = {}
        topic: dict[str, str] = {}
        for name, value in _spell_out_times(dict(properties or {})).items():
            if name in _TOPIC_NAMES:
                topic[_TOPIC_NAMES[name]] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                own[name] = value
        settings = cls.from_settings(own)
        defaults = LogConfig.from_properties(
            topic, LogConfig(producer_id_expiration_ms=settings.producer_id_expiration_ms)
        )
        object.__setattr__(settings, "topic_defaults", defaults)
        object.__setattr__(settings, "topic_properties", topic)
        if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
        return settings

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        hint = did_you_mean(spelling, [*map(dotted, cls.names()), *_TOPIC_NAMES])
        return f"{spelling} is not a setting of the embedded broker" + (f": {hint}" if hint else "")

    @property
    def groups(self) -> GroupSettings:
        """The coordinator's part."""
        return GroupSettings(
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_max_size=self.group_max_size,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
        )

    def properties(self) -> dict[str, str]:
        """Every setting as Kafka writes it: the broker's own, and the defaults of topics."""
        own = {
            dotted(each.name): _text(getattr(self, each.name))
            for each in fields(self)
            if not each.name.startswith("topic_")
        }
        topics = {name: self.topic_defaults.property_of(topic) for name, topic in _TOPIC_NAMES.items()}
        return own | topics


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spell_out_times(given: dict[str, object]) -> dict[str, object]:
    for coarse, fine, factor in _COARSE_TIMES:
        value = given.pop(coarse, None)
        if value is None or fine in given:
            continue
        try:
            number = Integer(-1, INT_MAX)(value)
        except ValueError as error:
            raise ConfigError(f"{coarse} is {value!r}: it {error}") from None
        given[fine] = str(number * factor if number >= 0 else -1)
    return given
