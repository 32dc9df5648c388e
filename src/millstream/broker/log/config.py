"""The settings of a topic's log: Kafka's names, defaults and units.

``CONFIG_DEFINITIONS`` is the whole list, in the order of their names; DescribeConfigs shows it. ``LogConfig``
holds the values, under the same names in snake_case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

from millstream.errors import ConfigError
from millstream.model import TimestampType
from millstream.settings import INT_MAX, LONG_MAX, Choice, Integer, read_flag, read_names, read_text
from millstream.suggestions import did_you_mean
from millstream.wire.records.codecs import CODECS, Codec, CompressionLevels

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class LogConfig(CompressionLevels):
    """How one partition's log behaves. Times are milliseconds; -1 is no limit where Kafka has it so."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    producer_id_expiration_ms: int = _DAY_MS
    """How long an idle idempotent producer is remembered. The broker's setting, not the topic's."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Read a topic's own settings, over ``defaults``. Raises ConfigError, saying what was expected."""
        values = {name.replace(".", "_"): read_value(name, value) for name, value in properties.items()}
        config = replace(defaults or cls(), **values)
        if config.max_compaction_lag_ms < config.min_compaction_lag_ms:
            raise ConfigError(
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms}) is less than "
                f"min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            )
        return config

    def property_of(self, name: str) -> str:
        """A value as Kafka writes it, by its dotted name."""
        return _write(getattr(self, DEFINITIONS_BY_NAME[name].attribute))

    @cached_property
    def deletes(self) -> bool:
        """Whether old segments go by time and size."""
        return "delete" in self.cleanup_policy

    @cached_property
    def compacts(self) -> bool:
        """Whether only the latest record of each key stays."""
        return "compact" in self.cleanup_policy

    @cached_property
    def timestamp_type(self) -> TimestampType:
        append_time = self.message_timestamp_type == "LogAppendTime"
        return TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME

    @cached_property
    def codec(self) -> Codec | None:
        """The codec that batches are kept in; None keeps the producer's."""
        if self.compression_type == "producer":
            return None
        return Codec.NONE if self.compression_type == "uncompressed" else Codec[self.compression_type.upper()]

    @cached_property
    def compression_level(self) -> int | None:
        """The level for ``codec``; None for its default."""
        return None if self.codec is None else self.level_of(self.codec)


class ConfigType(IntEnum):
    """The type of a setting, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One setting. ``broker_name`` is the broker's setting that gives topics their default, if any."""

    name: str
    type: ConfigType
    read: Callable[[object], Any]
    broker_name: str | None
    documentation: str

    @property
    def attribute(self) -> str:
        """The name in LogConfig."""
        return self.name.replace(".", "_")

    @property
    def default(self) -> str:
        """The default, as Kafka writes it."""
        return LogConfig().property_of(self.name)


def read_value(name: str, value: object) -> Any:
    """Read one setting by its dotted name; raises ConfigError, which names the nearest for an unknown one."""
    definition = DEFINITIONS_BY_NAME.get(name)
    if definition is None:
        hint = did_you_mean(name, DEFINITIONS_BY_NAME)
        raise ConfigError(f"unknown topic setting {name}" + (f": {hint}" if hint else ""), setting=name)
    try:
        return definition.read(value)
    except ValueError as error:
        raise ConfigError(f"{name} is {value!r}: it {error}", setting=name) from None


def _write(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _read_ratio(value: object) -> float:
    try:
        ratio = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError("must be a number from 0 to 1")
    return ratio


def _read_policy(value: object) -> tuple[str, ...]:
    """With neither of them, a log is kept for ever, as it is."""
    words = tuple(dict.fromkeys(str(word) for word in read_names(value)))
    if not set(words) <= {"compact", "delete"}:
        raise ValueError("must be delete, compact, or both separated by a comma")
    return words


def _read_no_remote(value: object) -> bool:
    if read_flag(value):
        raise ValueError("must be false: there is no tiered storage")
    return False


def _read_replicas(value: object) -> tuple[str, ...]:
    return tuple(map(str, read_names(read_text(value))))


def _int(name: str, low: int, broker_name: str | None, doc: str) -> ConfigDefinition:
    return ConfigDefinition(name, ConfigType.INT, Integer(low, INT_MAX), broker_name, doc)


def _long(name: str, low: int, broker_name: str | None, doc: str) -> ConfigDefinition:
    return ConfigDefinition(name, ConfigType.LONG, Integer(low, LONG_MAX), broker_name, doc)


def _replicas(name: str) -> ConfigDefinition:
    documentation = "Accepted for compatibility: one broker has nothing to replicate."
    return ConfigDefinition(name, ConfigType.LIST, _read_replicas, None, documentation)


def _level(codec: Codec) -> ConfigDefinition:
    name = f"compression.{codec.label}.level"
    assert codec.levels is not None, f"{codec.label} has no levels"
    documentation = f"The level when compression.type is {codec.label}."
    return ConfigDefinition(name, ConfigType.INT, codec.levels, name, documentation)


_CODECS = Choice(("producer", "uncompressed", *CODECS[1:]))

_DEFINITIONS: tuple[ConfigDefinition, ...] = (
    ConfigDefinition(
        "cleanup.policy", ConfigType.LIST, _read_policy, "log.cleanup.policy",
        "delete: old segments go by age and size. compact: the latest record of each key stays. Or both.",
    ),
    *(_level(codec) for codec in Codec if codec.levels),
    ConfigDefinition(
        "compression.type", ConfigType.STRING, _CODECS, "compression.type",
        "The codec that batches are kept in; producer keeps them as they come, at no cost to the broker.",
    ),
    _long(
        "delete.retention.ms", 0, "log.cleaner.delete.retention.ms",
        "How long a compacted log keeps a tombstone after its first cleaning, so that every reader sees it.",
    ),
    _long(
        "file.delete.delay.ms", 0, "log.segment.delete.delay.ms",
        "Accepted for compatibility: a deleted file stays readable to those who have it open.",
    ),
    _long(
        "flush.messages", 1, "log.flush.interval.messages",
        "Accepted for compatibility: acks=all is answered when the data is on the disk.",
    ),
    _long(
        "flush.ms", 0, "log.flush.interval.ms",
        "Accepted for compatibility: acks=all is answered when the data is on the disk.",
    ),
    _replicas("follower.replication.throttled.replicas"),
    _int(
        "index.interval.bytes", 0, "log.index.interval.bytes",
        "How many bytes of log one entry of the offset and time index covers.",
    ),
    _replicas("leader.replication.throttled.replicas"),
    _long(
        "max.compaction.lag.ms", 1, "log.cleaner.max.compaction.lag.ms",
        "After this time a record is compacted even where min.cleanable.dirty.ratio is not reached.",
    ),
    _int("max.message.bytes", 0, "message.max.bytes", "The largest record batch that is accepted."),
    _long(
        "message.timestamp.after.max.ms", 0, "log.message.timestamp.after.max.ms",
        "How far ahead of the broker's clock a record's timestamp may be, with CreateTime.",
    ),
    _long(
        "message.timestamp.before.max.ms", 0, "log.message.timestamp.before.max.ms",
        "How far behind the broker's clock a record's timestamp may be, with CreateTime.",
    ),
    ConfigDefinition(
        "message.timestamp.type", ConfigType.STRING, Choice(("CreateTime", "LogAppendTime")),
        "log.message.timestamp.type", "Who sets timestamps: the producer, or the broker as it appends.",
    ),
    ConfigDefinition(
        "min.cleanable.dirty.ratio", ConfigType.DOUBLE, _read_ratio, "log.cleaner.min.cleanable.ratio",
        "How much of a log, by size, must be new since the last compaction before it is compacted again.",
    ),
    _long(
        "min.compaction.lag.ms", 0, "log.cleaner.min.compaction.lag.ms",
        "How long a record stays uncompacted at least.",
    ),
    _int(
        "min.insync.replicas", 1, "min.insync.replicas",
        "Accepted for compatibility: one broker is one replica.",
    ),
    ConfigDefinition(
        "preallocate", ConfigType.BOOLEAN, read_flag, "log.preallocate",
        "Accepted for compatibility: files grow as they are written.",
    ),
    ConfigDefinition(
        "remote.storage.enable", ConfigType.BOOLEAN, _read_no_remote, None,
        "Whether old segments move to other storage: there is none.",
    ),
    _long(
        "retention.bytes", -1, "log.retention.bytes",
        "How large a partition may grow before its oldest segments are deleted; -1 is without limit.",
    ),
    _long(
        "retention.ms", -1, "log.retention.ms",
        "How long records are kept before their segment is deleted; -1 is without limit.",
    ),
    _int("segment.bytes", 14, "log.segment.bytes", "The size of one file of the log, the unit of deletion."),
    _int(
        "segment.index.bytes", 4, "log.index.size.max.bytes",
        "Accepted for compatibility: indexes grow as they need.",
    ),
    _long(
        "segment.jitter.ms", 0, "log.roll.jitter.ms",
        "Accepted for compatibility: rolling a file is cheap.",
    ),
    _long(
        "segment.ms", 1, "log.roll.ms",
        "After this time a new file is begun, even if the old one is not full.",
    ),
    ConfigDefinition(
        "unclean.leader.election.enable", ConfigType.BOOLEAN, read_flag, "unclean.leader.election.enable",
        "Accepted for compatibility: one broker elects nobody.",
    ),
)  # fmt: skip
CONFIG_DEFINITIONS = tuple(sorted(_DEFINITIONS, key=lambda definition: definition.name))
"""Every setting of a topic, in the order of the names."""

DEFINITIONS_BY_NAME: dict[str, ConfigDefinition] = {each.name: each for each in CONFIG_DEFINITIONS}
assert {each.attribute for each in CONFIG_DEFINITIONS} | {"producer_id_expiration_ms"} == {
    field.name for field in fields(LogConfig)
}
