"""Deserializers by name and by callable; bytes that they cannot read are named, and can be passed."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from millstream.consumer import Consumer
from millstream.errors import DeserializationError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import read
from tests.waiting import SECONDS, until


def in_avro(value: dict[str, object]) -> bytes:
    """An object container, which brings its schema."""
    schema = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
    container = io.BytesIO()
    fastavro.writer(container, fastavro.parse_schema(schema), [value])
    return container.getvalue()


@pytest.fixture
def partition(new_topic: NewTopic) -> TopicPartition:
    return TopicPartition(new_topic(), 0)


def consumer_of(servers: str, partition: TopicPartition, **settings: Any) -> Consumer:
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings)
    consumer.assign([partition])
    return consumer


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("bytes", b"\xff", b"\xff"),
        ("string", "Grüße".encode(), "Grüße"),
        ("short", struct.pack(">h", -2), -2),
        ("int", struct.pack(">i", 42), 42),
        ("long", struct.pack(">q", -(2**40)), -(2**40)),
        ("float", struct.pack(">f", 0.5), 0.5),
        ("double", struct.pack(">d", 0.1), 0.1),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("avro", in_avro({"id": 7}), {"id": 7}),
        (lambda raw: raw.decode().upper(), b"mine", "MINE"),
    ],
)
def test_by_name_or_callable(
    bootstrap_servers: str,
    producer: Producer,
    partition: TopicPartition,
    name: object,
    raw: bytes,
    value: object,
) -> None:
    producer.send(partition.topic, raw, raw).result(SECONDS)
    producer.send(partition.topic, None, None, partition=0).result(SECONDS)
    with consumer_of(
        bootstrap_servers, partition, key_deserializer=name, value_deserializer=name
    ) as consumer:
        first, second = read(consumer, 2)
    assert (first.key, first.value) == (value, value)
    assert (second.key, second.value) == (None, None), "null reaches no deserializer"


@pytest.mark.parametrize("part", ["key", "value"])
def test_bad_bytes_in_the_middle_of_a_batch(
    bootstrap_servers: str, partition: TopicPartition, part: str
) -> None:
    """Those before it come first; then it is named, again and again; one seek goes past it."""
    good, bad = json.dumps("good").encode(), b"\xffnot json"
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=100) as batching:
        for number in range(10):
            raw = bad if number == 4 else good
            key, value = (raw, good) if part == "key" else (good, raw)
            batching.send(partition.topic, value, key, partition=0)
    settings = {"key_deserializer": "json", "value_deserializer": "json"}
    with consumer_of(bootstrap_servers, partition, **settings) as consumer:
        assert [record.offset for record in read(consumer, 4)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(DeserializationError, match=part) as error:
                consumer.poll(SECONDS)
            found = error.value
            assert (found.topic, found.partition, found.offset, found.raw) == (partition.topic, 0, 4, bad)
            assert partition.topic in str(found) and "4" in str(found)
            assert consumer.position(partition) == 4, "the position stays before it"
        assert isinstance(error.value.__cause__, ValueError)
        consumer.seek(partition, found.offset + 1)
        assert [record.offset for record in read(consumer, 5)] == [5, 6, 7, 8, 9]


def test_a_commit_before_bad_bytes_covers_what_came_before(
    bootstrap_servers: str, producer: Producer, partition: TopicPartition, group: str
) -> None:
    for raw in (b"1", b"2", b"bad"):
        producer.send(partition.topic, raw).result(SECONDS)
    with consumer_of(bootstrap_servers, partition, group_id=group, value_deserializer="json") as consumer:
        assert [record.value for record in read(consumer, 2)] == [1, 2]
        with pytest.raises(DeserializationError):
            consumer.poll(SECONDS)
        consumer.commit()
        stored = consumer.committed([partition])[partition]
        assert stored is not None and stored.offset == 2


def test_other_partitions_go_on(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    """One that cannot be read does not hold up the rest."""
    topic = new_topic(partitions=2)
    bad, fine = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer.send(topic, b"bad", partition=0).result(SECONDS)
    for number in range(3):
        producer.send(topic, b"%d" % number, partition=1).result(SECONDS)
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer="json"
    ) as consumer:
        consumer.assign([bad, fine])
        values: list[int] = []
        errors: list[DeserializationError] = []

        def poll() -> bool:
            try:
                values.extend(record.value for record in consumer.poll(0.1))
            except DeserializationError as error:
                errors.append(error)
            return len(values) == 3 and len(errors) > 0

        until(poll, "three records and an error")
        assert values == [0, 1, 2]
        assert {(error.partition, error.offset) for error in errors} == {(0, 0)}


def test_any_error_of_a_callable_is_told(
    bootstrap_servers: str, producer: Producer, partition: TopicPartition
) -> None:
    def fails(raw: bytes) -> object:
        raise KeyError(raw)

    producer.send(partition.topic, b"v").result(SECONDS)
    with consumer_of(bootstrap_servers, partition, value_deserializer=fails) as consumer:
        with pytest.raises(DeserializationError, match="value") as error:
            consumer.poll(SECONDS)
        assert isinstance(error.value.__cause__, KeyError)
