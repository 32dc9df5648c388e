"""The settings of a schema registry."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config import ConsumerConfig, ProducerConfig
from millstream.errors import ConfigError


def consumer(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.from_settings({"bootstrap.servers": "localhost:9092", **settings})


def producer(**settings: Any) -> ProducerConfig:
    given = {"registry_url": "http://localhost:8081", "value_serializer": "registry", **settings}
    return ProducerConfig.from_settings({"bootstrap.servers": "localhost:9092", **given})


def test_names_of_confluent() -> None:
    config = consumer(
        **{
            "schema.registry.url": "http://one:8081/, https://two/apis/ccompat/v7",
            "basic.auth.user.info": "ann:secret",
        }
    )
    assert config.registry_url == ("http://one:8081", "https://two/apis/ccompat/v7")
    assert "secret" not in repr(config)
    strategy = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"
    writes = producer(
        **{"use.latest.version": "false", "value.subject.name.strategy": strategy},
        registry_value_schema='"string"',
    )
    assert writes.value_subject_name_strategy == "topic-record"


def test_the_latest_version_is_not_registered() -> None:
    assert not producer(use_latest_version=True).auto_register_schemas
    with pytest.raises(ConfigError, match="both true"):
        producer(use_latest_version=True, auto_register_schemas=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value_deserializer": "registry"}, "registry_url is missing"),
        ({"registry_url": "localhost:8081"}, "must be an address such as"),
        ({"registry_url": "http://host:no"}, "must be an address such as"),
        ({"registry_url": "http://ann:secret@host:8081"}, "move it to registry_basic_auth_user_info"),
        (
            {"registry_basic_auth_user_info": "ann:secret", "registry_bearer_auth_token": "secret"},
            "leave one",
        ),
    ],
)
def test_contradictions(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        consumer(**settings)
    assert "secret" not in str(raised.value)


def test_a_schema_is_needed() -> None:
    with pytest.raises(ConfigError, match="registry_value_schema is missing"):
        producer()
    with pytest.raises(ConfigError, match="takes the subject from the schema's name"):
        producer(use_latest_version=True, value_subject_name_strategy="record")
