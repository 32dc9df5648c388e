"""The options of the writer: what is passed on, what is refused with a remedy, and what is only warned of."""

from __future__ import annotations

import pytest

from millstream.errors import ConfigError
from millstream.spark.writer.options import read_writer_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def refused(**given: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read_writer_options({**SERVERS, **{name.replace("__", "."): value for name, value in given.items()}})
    return str(raised.value)


def test_topic_and_settings() -> None:
    found = read_writer_options({**SERVERS, "Topic": " orders ", "kafka.Compression.type": "lz4"})
    assert found.topic == "orders" and found.ignored == ()
    assert found.settings == {"bootstrap.servers": "localhost:9092", "compression.type": "lz4"}
    assert read_writer_options(SERVERS).topic is None


def test_secrets_are_not_shown() -> None:
    found = read_writer_options(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "hidden-word",
        }
    )
    assert found.settings["sasl.password"] == "hidden-word"
    assert "hidden-word" not in repr(found)


def test_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        read_writer_options({"topic": "orders"})
    assert "name a topic" in refused(topic="  ")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kafka.key.serializer", "cast or encode the column"),
        ("kafka.value.serializer", "cast or encode the column"),
        ("kafka.partitioner.class", "column partition"),
        ("kafka.interceptor.classes", "transform the data frame"),
        ("kafka.transactional.id", "at least once"),
        ("kafka.compresion.type", "did you mean compression.type?"),
        ("kafka.acks", "must be all, 1 or 0"),
        ("compression.type", "use kafka.compression.type"),
        ("topics", "did you mean topic?"),
        ("bootstrap.servers", "use kafka.bootstrap.servers"),
    ],
)
def test_refused_with_a_remedy(name: str, remedy: str) -> None:
    assert remedy in refused(**{name: "x"})


def test_without_effect_and_named() -> None:
    """Kafka's client takes them, too, and says that they are not used."""
    given = {
        "kafka.metric.reporters": "com.example.Reporter",
        "kafka.group.id": "shared with a reader",
        "kafka.auto.offset.reset": "earliest",
        "kafka.com.example.ours": "x",
        "path": "/somewhere",
        "mergeSchema": "true",
    }
    found = read_writer_options({**SERVERS, "topic": "orders", **given})
    assert found.ignored == tuple(sorted(name.lower() for name in given))
    assert found.settings == {"bootstrap.servers": "localhost:9092"}


def test_options_of_reads_and_streams_are_no_mistake() -> None:
    given = {
        "subscribe": "a",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "checkpointLocation": "/c",
    }
    assert read_writer_options({**SERVERS, **given}).ignored == ()
