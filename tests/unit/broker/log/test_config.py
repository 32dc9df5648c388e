"""Topic settings: Kafka's names and defaults, and errors that help."""

from __future__ import annotations

import pytest

from millstream.broker.log.config import TOPIC_SETTINGS, ConfigType, LogConfig
from millstream.errors import ConfigError
from millstream.model import TimestampType
from millstream.wire.records.codecs import Codec

KAFKA_4_1_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_defaults_are_kafkas() -> None:
    assert {each.name: each.default for each in TOPIC_SETTINGS.values()} == KAFKA_4_1_DEFAULTS
    assert LogConfig.from_properties({}) == LogConfig()


def test_the_table_is_sorted_typed_and_explained() -> None:
    names = [each.name for each in TOPIC_SETTINGS.values()]
    assert names == sorted(names)
    assert all(each.meaning.endswith(".") for each in TOPIC_SETTINGS.values())
    assert TOPIC_SETTINGS["retention.ms"].type is ConfigType.LONG
    assert TOPIC_SETTINGS["segment.bytes"].broker_name == "log.segment.bytes"


def test_what_is_written_can_be_read() -> None:
    for definition in TOPIC_SETTINGS.values():
        text = {definition.name: definition.default}
        assert LogConfig.from_properties(text).property_of(definition.name) == definition.default


def test_a_topics_settings_lie_over_the_brokers() -> None:
    broker = LogConfig(retention_ms=5, segment_bytes=99)
    config = LogConfig.from_properties({"retention.ms": "-1", "cleanup.policy": "compact, delete"}, broker)
    assert (config.retention_ms, config.segment_bytes) == (-1, 99)
    assert config.compacts and config.deletes
    assert config.property_of("cleanup.policy") == "compact,delete"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.ms", "-2", "must be at least -1"),
        ("retention.ms", "soon", "must be a whole number"),
        ("segment.bytes", "13", "must be at least 14"),
        ("segment.bytes", "2147483648", "must be at most 2147483647"),
        ("cleanup.policy", "compress", "must be delete, compact, or both"),
        ("compression.type", "none", "must be producer or uncompressed"),
        ("compression.gzip.level", "0", "must be 1 to 9"),
        ("message.timestamp.type", "createtime", "must be CreateTime or LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "must be a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "must be a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "must be a number from 0 to 1"),
        ("remote.storage.enable", "true", "there is no tiered storage"),
        ("preallocate", "maybe", "must be true or false"),
    ],
)
def test_wrong_values(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")) as caught:
        LogConfig.from_properties({name: value})
    assert expected in str(caught.value)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown topic setting retentoin.ms: did you mean retention.ms"):
        LogConfig.from_properties({"retentoin.ms": "1"})
    with pytest.raises(ConfigError, match="unknown topic setting zzz"):
        LogConfig.from_properties({"zzz": "1"})


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="less than"):
        LogConfig.from_properties({"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"})


def test_derived_values() -> None:
    assert LogConfig().codec is None
    assert LogConfig(compression_type="uncompressed").codec is Codec.NONE
    assert LogConfig(compression_type="zstd").codec is Codec.ZSTD
    assert LogConfig(compression_type="zstd").compression_level == 3
    assert LogConfig(compression_type="lz4").compression_level is None
    assert LogConfig(compression_type="lz4", compression_lz4_level=5).compression_level == 5
    assert LogConfig(compression_type="gzip", compression_gzip_level=4).compression_level == 4
    assert LogConfig(message_timestamp_type="LogAppendTime").timestamp_type is TimestampType.LOG_APPEND_TIME
