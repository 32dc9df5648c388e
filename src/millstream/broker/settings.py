"""The broker's settings, with Kafka's names and, except for two in GroupSettings, Kafka's defaults.

Kafka's broker settings that are only defaults of topics (``log.retention.ms``, ``message.max.bytes``, ...)
are declared with the settings of topics, in ``log.config``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final

from millstream.broker.access.settings import AccessSettings
from millstream.broker.connections.limits import read_overrides
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.log.config import TOPIC_SETTINGS, LogConfig, write_value
from millstream.broker.quotas.settings import QuotaSettings
from millstream.broker.security.listeners import Listener, read_listeners
from millstream.broker.security.settings import ListenerSettings, split_overrides
from millstream.errors import ConfigError
from millstream.settings import (
    INT_MAX,
    Flag,
    Int,
    Integer,
    Long,
    Names,
    PositiveInt,
    Text,
    dotted,
    read_text,
    setting,
)
from millstream.suggestions import did_you_mean

log = logging.getLogger("millstream.broker")

_TOPIC_NAMES: Final = {each.broker_name: each.name for each in TOPIC_SETTINGS.values() if each.broker_name}
"""The broker settings that are defaults of topics, with the topic setting of each."""

_COARSE_TIMES: Final = (
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
)
"""Kafka's older settings in minutes and hours. The one in milliseconds wins if both are given."""


def _read_overrides(value: object) -> str:
    text = read_text(value)
    read_overrides(text)
    return text


_ONE_BROKER: Final = {
    "default_replication_factor": ({"1"}, "there is one broker"),
    "offsets_topic_replication_factor": ({"1"}, "there is one broker"),
    "process_roles": ({"broker", "broker,controller"}, "this process is the broker"),
    "remote_log_storage_system_enable": ({"false"}, "there is no tiered storage"),
}
"""Kafka's settings that are ignored only with these values, and why."""

_IGNORED: Final = """
    auto_leader_rebalance_enable background_threads broker_heartbeat_interval_ms broker_session_timeout_ms
    config_providers* confluent_* control_plane_listener_name controller_* group_consumer_*
    group_coordinator_* group_share_*
    initial_broker_registration_timeout_ms inter_broker_* leader_imbalance_* log_cleaner_dedupe_buffer_size
    log_cleaner_io_* log_cleaner_threads log_flush_offset_checkpoint_interval_ms
    log_flush_scheduler_interval_ms log_flush_start_offset_checkpoint_interval_ms metadata_log_*
    metric_reporters metrics_* num_io_threads num_network_threads num_recovery_threads_per_data_dir
    num_replica_* offsets_commit_timeout_ms offsets_load_buffer_size queued_max_requests remote_log_*
    replica_* replication_quota_* share_coordinator_* socket_listen_backlog_size socket_receive_buffer_bytes
    security_inter_broker_protocol
    socket_send_buffer_bytes transaction_* transactional_id_expiration_ms zookeeper_*
"""
"""Kafka's settings, and families of them, that mean nothing to one broker, or to a broker of this design."""


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(GroupSettings, AccessSettings, QuotaSettings, ListenerSettings):
    """What ``millstream broker --set`` and ``EmbeddedBroker(settings=...)`` accept, but topic settings."""

    node_id: Int = setting(1, "The broker's number, by which clients know it.")
    broker_rack: Text = setting("", "The rack that clients see for the broker.")
    listeners: Text = setting(
        "",
        "Where the broker listens, as `NAME://host:port`, separated by commas; instead of `--listen`.",
    )
    advertised_listeners: Text = setting(
        "",
        "The addresses that clients use, as `NAME://host:port`. "
        "Without it, each uses the address by which it reached the broker.",
    )
    listener_security_protocol_map: Text = setting(
        "", "The security protocol of each listener whose name is not one, as `NAME:PROTOCOL`."
    )
    controller_listener_names: Names = setting(
        (), "Listeners of controllers, which this broker does not need: they are left out of `listeners`."
    )
    num_partitions: PositiveInt = setting(1, "The partitions of a topic that is created without a number.")
    auto_create_topics_enable: Flag = setting(
        True, "Whether a missing topic is created when a client names it."
    )
    delete_topic_enable: Flag = setting(True, "Whether topics may be deleted.")
    socket_request_max_bytes: PositiveInt = setting(104_857_600, "The largest request.")
    max_connections_per_ip: Int = setting(INT_MAX, "The most open connections from one address.")
    max_connections_per_ip_overrides: Annotated[str, _read_overrides] = setting(
        "", "Other limits for some addresses, as `127.0.0.1:200`, separated by commas."
    )
    connections_max_idle_ms: Long = setting(600_000, "A connection without requests for this time is closed.")
    queued_max_request_bytes: Annotated[int, Integer(1, 2**40)] = setting(
        268_435_456,
        "The memory for incomplete requests of all clients. When it is used up, the largest is closed.",
    )
    fetch_max_bytes: Annotated[int, Integer(1024, INT_MAX)] = setting(
        57_671_680, "The most that one fetch returns, even if the client's own limit is larger."
    )
    max_incremental_fetch_session_cache_slots: Int = setting(
        1000, "How many fetch sessions are kept (KIP-227)."
    )
    log_retention_check_interval_ms: PositiveInt = setting(
        300_000, "How often expired segments are looked for."
    )
    log_cleaner_enable: Flag = setting(True, "Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: Long = setting(15_000, "How often topics to compact are looked for.")
    producer_id_expiration_ms: PositiveInt = setting(
        86_400_000, "How long the sequence of an idle idempotent producer is kept."
    )
    offsets_topic_num_partitions: PositiveInt = setting(
        50, "The partitions of `__consumer_offsets`, when it is created."
    )
    offsets_topic_segment_bytes: PositiveInt = setting(
        104_857_600, "The size of one file of `__consumer_offsets`."
    )

    REFUSED: ClassVar = {
        "log_dir*": "say where the data is with --data, in a file for --config, or EmbeddedBroker(data=...)",
        "broker_id": "use node.id",
        **ListenerSettings.REFUSED,
    }
    WITHOUT_EFFECT: ClassVar = frozenset({*_ONE_BROKER, *_IGNORED.split(), *ListenerSettings.WITHOUT_EFFECT})

    topic_defaults: Any = field(default_factory=LogConfig)
    """The defaults of topics: a LogConfig."""
    topic_properties: Any = field(default_factory=dict)
    """The topic defaults that were given, by the names of the topic settings, as strings."""
    listener_properties: Any = field(default_factory=dict, repr=False)
    """What ``listener.name.NAME.…`` sets, by the listener's name."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | None = None) -> BrokerSettings:
        """Read Kafka's broker settings by their dotted names. Raises ConfigError."""
        own: dict[str, object] = {}
        topic: dict[str, str] = {}
        given = _spell_out_times(dict(properties or {}))
        overrides = split_overrides(given)
        for name, value in given.items():
            if name in _TOPIC_NAMES:
                topic[_TOPIC_NAMES[name]] = write_value(value)
            else:
                own[name] = value
        if ignored := [
            name for name, value in own.items() if value is not None and cls._ignores(name, value)
        ]:
            log.info("ignored, as this broker runs alone: %s", ", ".join(ignored))
        settings = cls.from_settings(own)
        defaults = LogConfig.from_properties(
            topic, LogConfig(producer_id_expiration_ms=settings.producer_id_expiration_ms)
        )
        object.__setattr__(settings, "topic_defaults", defaults)
        object.__setattr__(settings, "topic_properties", topic)
        object.__setattr__(settings, "listener_properties", overrides)
        if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
        return settings

    def served_listeners(self, listen: str) -> tuple[Listener, ...]:
        """Return where to listen: ``listeners``, or else ``listen``. Raises ConfigError."""
        return read_listeners(
            self.listeners or listen,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            map(str, self.controller_listener_names),
        )

    def of_listener(self, name: str) -> ListenerSettings:
        """Return the settings of one listener: its own go before those of all. Raises ConfigError."""
        common = {each.name: getattr(self, each.name) for each in fields(ListenerSettings)}
        try:
            own = ListenerSettings.from_settings(self.listener_properties.get(name, {}))
        except ConfigError as error:
            raise ConfigError(f"listener.name.{name.lower()}: {error}", setting=error.setting) from None
        given = {spelling.replace(".", "_") for spelling in self.listener_properties.get(name, {})}
        return ListenerSettings(**common | {each: getattr(own, each) for each in given & common.keys()})

    @classmethod
    def _ignores(cls, spelling: str, value: object) -> bool:
        """Raise ConfigError for what one broker contradicts. Of ``NAME:PROTOCOL`` the protocol counts."""
        name = spelling.replace(".", "_")
        allowed, reason = _ONE_BROKER.get(name, (None, ""))
        words = {part.rpartition(":")[2].strip() for part in write_value(value).split(",")}
        if allowed and ",".join(sorted(words)) not in allowed:
            raise ConfigError(
                f"{spelling} is {value!r}: it must be {' or '.join(sorted(allowed))}, as {reason}"
            )
        return not cls._is_known(name, spelling)

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        hint = did_you_mean(spelling, [*map(dotted, cls.names()), *_TOPIC_NAMES])
        return f"{spelling} is not a setting of the embedded broker" + (f": {hint}" if hint else "")

    def properties(self) -> dict[str, str]:
        """Return every setting as Kafka writes it: the broker's own, and the defaults of topics."""
        own = {
            dotted(each.name): write_value(getattr(self, each.name))
            for each in fields(self)
            if each.metadata and not each.metadata["secret"]
        }
        topics = {name: self.topic_defaults.property_of(topic) for name, topic in _TOPIC_NAMES.items()}
        return own | topics


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
