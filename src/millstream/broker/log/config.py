"""The settings of topics, with Kafka's names, defaults and units: each is one field of LogConfig."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Any, Final, get_type_hints

from millstream.errors import ConfigError
from millstream.model import TimestampType
from millstream.settings import (
    INT_MAX,
    LONG_MAX,
    Choice,
    Flag,
    Int,
    Integer,
    Long,
    PositiveInt,
    dotted,
    read_flag,
    read_names,
    read_text,
)
from millstream.suggestions import did_you_mean
from millstream.wire.records.codecs import CODECS, Codec, CompressionLevels

_DAY_MS: Final = 24 * 60 * 60 * 1000
_LocalLimit = Annotated[int, Integer(-2, LONG_MAX)]
_NO_TIERS: Final = "Accepted for compatibility: there is no tiered storage."
_NO_REPLICAS: Final = "Accepted for compatibility: one broker has nothing to replicate."


def topic_setting(default: Any, broker_name: str | None, meaning: str) -> Any:
    """Declare a setting of topics; ``broker_name`` is the broker setting of its default, if there is one."""
    return field(default=default, metadata={"meaning": meaning, "broker_name": broker_name})


def _read_ratio(value: object) -> float:
    try:
        ratio = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError("must be a number from 0 to 1")
    return ratio


def _read_policy(value: object) -> tuple[str, ...]:
    """Read the policies. With neither of them, a log is kept for ever as it is."""
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


def write_value(value: object) -> str:
    """Return a value as Kafka writes it; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if type(value) is tuple else str(value)  # an Address is a tuple, too


@dataclass(frozen=True, kw_only=True)
class LogConfig(CompressionLevels):
    """How one partition's log behaves: each field is a setting of topics. -1 is without limit."""

    cleanup_policy: Annotated[tuple[str, ...], _read_policy] = topic_setting(
        ("delete",),
        "log.cleanup.policy",
        "delete: old segments go by age and size. compact: the latest record of each key stays. Or both.",
    )
    compression_type: Annotated[str, Choice(("producer", "uncompressed", *CODECS[1:]))] = topic_setting(
        "producer",
        "compression.type",
        "The codec that batches are stored in; producer stores them as they come, at no cost to the broker.",
    )
    delete_retention_ms: Long = topic_setting(
        _DAY_MS,
        "log.cleaner.delete.retention.ms",
        "How long a compacted log keeps a tombstone after its first cleaning, so that every reader sees it.",
    )
    file_delete_delay_ms: Long = topic_setting(
        60_000,
        "log.segment.delete.delay.ms",
        "Accepted for compatibility: a deleted file stays readable to those who have it open.",
    )
    flush_messages: Annotated[int, Integer(1, LONG_MAX)] = topic_setting(
        LONG_MAX,
        "log.flush.interval.messages",
        "Accepted for compatibility: acks=all is answered when the data is on the disk.",
    )
    flush_ms: Long = topic_setting(
        LONG_MAX,
        "log.flush.interval.ms",
        "Accepted for compatibility: acks=all is answered when the data is on the disk.",
    )
    follower_replication_throttled_replicas: Annotated[tuple[str, ...], _read_replicas] = topic_setting(
        (), None, _NO_REPLICAS
    )
    index_interval_bytes: Int = topic_setting(
        4096,
        "log.index.interval.bytes",
        "How many bytes of log one entry of the offset and time index covers.",
    )
    leader_replication_throttled_replicas: Annotated[tuple[str, ...], _read_replicas] = topic_setting(
        (), None, _NO_REPLICAS
    )
    local_retention_bytes: _LocalLimit = topic_setting(-2, "log.local.retention.bytes", _NO_TIERS)
    local_retention_ms: _LocalLimit = topic_setting(-2, "log.local.retention.ms", _NO_TIERS)
    max_compaction_lag_ms: Annotated[int, Integer(1, LONG_MAX)] = topic_setting(
        LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "After this time a record is compacted even if min.cleanable.dirty.ratio is not reached.",
    )
    max_message_bytes: Int = topic_setting(
        1_048_588, "message.max.bytes", "The largest record batch that is accepted."
    )
    message_timestamp_after_max_ms: Long = topic_setting(
        3_600_000,
        "log.message.timestamp.after.max.ms",
        "How far ahead of the broker's clock a record's timestamp may be, with CreateTime.",
    )
    message_timestamp_before_max_ms: Long = topic_setting(
        LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far behind the broker's clock a record's timestamp may be, with CreateTime.",
    )
    message_timestamp_type: Annotated[str, Choice(("CreateTime", "LogAppendTime"))] = topic_setting(
        "CreateTime",
        "log.message.timestamp.type",
        "Who sets timestamps: the producer, or the broker as it appends.",
    )
    min_cleanable_dirty_ratio: Annotated[float, _read_ratio] = topic_setting(
        0.5,
        "log.cleaner.min.cleanable.ratio",
        "How much of a log, by size, must be new since the last compaction before it is compacted again.",
    )
    min_compaction_lag_ms: Long = topic_setting(
        0, "log.cleaner.min.compaction.lag.ms", "How long a record stays uncompacted at least."
    )
    min_insync_replicas: PositiveInt = topic_setting(
        1, "min.insync.replicas", "Accepted for compatibility: one broker is one replica."
    )
    preallocate: Flag = topic_setting(
        False, "log.preallocate", "Accepted for compatibility: files grow as they are written."
    )
    remote_storage_enable: Annotated[bool, _read_no_remote] = topic_setting(
        False, None, "Whether old segments move to other storage: there is none."
    )
    retention_bytes: Annotated[int, Integer(-1, LONG_MAX)] = topic_setting(
        -1,
        "log.retention.bytes",
        "How large a partition may grow before its oldest segments are deleted; -1 is without limit.",
    )
    retention_ms: Annotated[int, Integer(-1, LONG_MAX)] = topic_setting(
        7 * _DAY_MS,
        "log.retention.ms",
        "How long records are kept before their segment is deleted; -1 is without limit.",
    )
    segment_bytes: Annotated[int, Integer(14, INT_MAX)] = topic_setting(
        1 << 30, "log.segment.bytes", "The size of one file of the log, the unit of deletion."
    )
    segment_index_bytes: Annotated[int, Integer(4, INT_MAX)] = topic_setting(
        10 << 20, "log.index.size.max.bytes", "Accepted for compatibility: indexes grow as they need."
    )
    segment_jitter_ms: Long = topic_setting(
        0, "log.roll.jitter.ms", "Accepted for compatibility: rolling a file is cheap."
    )
    segment_ms: Annotated[int, Integer(1, LONG_MAX)] = topic_setting(
        7 * _DAY_MS, "log.roll.ms", "After this time a new file is begun, even if the old one is not full."
    )
    unclean_leader_election_enable: Flag = topic_setting(
        False, "unclean.leader.election.enable", "Accepted for compatibility: one broker elects no leaders."
    )

    producer_id_expiration_ms: int = _DAY_MS
    """How long an idle idempotent producer is remembered. A setting of the broker, not of topics."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Read a topic's own settings over ``defaults``. Raises ConfigError, which says what was expected."""
        values = {name.replace(".", "_"): _read(name, value) for name, value in properties.items()}
        config = replace(defaults or cls(), **values)
        if config.max_compaction_lag_ms < config.min_compaction_lag_ms:
            raise ConfigError(
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms}) is less than "
                f"min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            )
        return config

    def property_of(self, name: str) -> str:
        """Return a value as Kafka writes it, by its dotted name."""
        return write_value(getattr(self, name.replace(".", "_")))

    @cached_property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
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
        """The codec that batches are stored in; None for the producer's."""
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
class TopicSetting:
    """What a field of LogConfig declares."""

    name: str
    type: ConfigType
    read: Callable[[object], Any]
    default: str
    """As Kafka writes it."""
    broker_name: str | None
    """The broker setting that gives topics their default, if there is one."""
    meaning: str

    @property
    def shown(self) -> str:
        """The default as the documentation shows it."""
        return "no limit" if self.default == str(LONG_MAX) else self.default or "not set"


def _declared() -> Iterator[TopicSetting]:
    hints = get_type_hints(LogConfig, include_extras=True)
    for each in sorted(fields(LogConfig), key=lambda field: field.name):
        if each.metadata:
            name, hint = dotted(each.name), hints[each.name]
            read = hint.__metadata__[0]
            default = write_value(each.default)
            broker_name = each.metadata.get("broker_name", name)
            yield TopicSetting(
                name, _type_of(hint, read), read, default, broker_name, each.metadata["meaning"]
            )


def _type_of(hint: Any, read: object) -> ConfigType:
    plain = hint.__origin__
    if plain is int:
        is_long = isinstance(read, Integer) and read.maximum > INT_MAX
        return ConfigType.LONG if is_long else ConfigType.INT
    types = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING, float: ConfigType.DOUBLE}
    return types.get(plain, ConfigType.LIST)


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {each.name: each for each in _declared()}
"""Every setting of topics by its dotted name, in the order of the names."""


def _read(name: str, value: object) -> Any:
    """Read one setting by its dotted name. Raises ConfigError; for an unknown name it suggests another."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        hint = did_you_mean(name, TOPIC_SETTINGS)
        raise ConfigError(f"unknown topic setting {name}" + (f": {hint}" if hint else ""), setting=name)
    try:
        return setting.read(value)
    except ValueError as error:
        raise ConfigError(f"{name} is {value!r}: it {error}", setting=name) from None
