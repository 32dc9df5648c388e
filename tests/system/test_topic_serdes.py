"""Serializers and deserializers that take topic and headers, as those of schema registries do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import kafka.serializer
import pyarrow
import pytest

from millstream import AsyncConsumer, Consumer, Producer, TopicPartition
from millstream.errors import DeserializationError, SerializationError
from millstream.model import Header
from tests.conftest import NewTopic
from tests.system.members import read


class Versioned:
    """JSON whose version is a header, and which belongs to a topic: wrong without either."""

    def serialize(self, topic: str, headers: list[Header], value: Any) -> bytes:
        if value == "bad":
            raise ValueError("it is bad")
        headers.append(("version", b"2"))
        return json.dumps([topic, value]).encode()

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> Any:
        version = dict(headers)["version"]
        written_for, value = json.loads(data)
        if written_for != topic:
            raise ValueError(f"it was written for {written_for}")
        return version, value


class Both(Versioned):
    """Can be called, too: the method counts."""

    def __call__(self, data: Any) -> Any:
        raise AssertionError("the method counts")


def consumer_of(servers: str, topic: str, **serdes: Any) -> Consumer:
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **serdes)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


@pytest.mark.parametrize("serde", [Versioned(), Both()], ids=["method", "method and call"])
def test_topic_and_headers_reach_both_sides(bootstrap_servers: str, new_topic: NewTopic, serde: Any) -> None:
    topic = new_topic()
    with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer=serde, value_serializer=serde
    ) as producer:
        producer.send(topic, {"n": 1}, key="k", headers=[("mine", b"x")])
        producer.send(topic, None, key="k")
        producer.send(topic, 2)
    with consumer_of(bootstrap_servers, topic, key_deserializer=serde, value_deserializer=serde) as consumer:
        first, second, third = read(consumer, 3)
    assert (first.key, first.value) == ((b"2", "k"), (b"2", {"n": 1}))
    assert first.headers == (("mine", b"x"), ("version", b"2"), ("version", b"2"))
    assert (second.key, second.value, third.key, third.value) == ((b"2", "k"), None, None, (b"2", 2))


def test_one_of_each_form(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer="string", value_serializer=Versioned()
    ) as producer:
        producer.send(topic, 1, key="k")
    with consumer_of(
        bootstrap_servers, topic, key_deserializer=bytes.decode, value_deserializer=Versioned()
    ) as consumer:
        (record,) = read(consumer, 1)
    assert (record.key, record.value) == ("k", (b"2", 1))


def test_what_they_raise(bootstrap_servers: str, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic()
    with (
        Producer(bootstrap_servers=bootstrap_servers, value_serializer=Versioned()) as ours,
        pytest.raises(SerializationError, match=f"{topic} cannot be serialized: it is bad"),
    ):
        ours.send(topic, "bad")
    headers = [("version", b"2")]
    producer.send(topic, json.dumps([topic, 1]).encode(), headers=headers).result()
    producer.send(topic, json.dumps(["other", 2]).encode(), headers=headers).result()
    producer.send(topic, json.dumps([topic, 3]).encode(), headers=headers).result()
    with consumer_of(bootstrap_servers, topic, value_deserializer=Versioned()) as consumer:
        assert [record.value for record in read(consumer, 1)] == [(b"2", 1)]
        with pytest.raises(DeserializationError, match="written for other") as raised:
            read(consumer, 1)
        assert (raised.value.offset, raised.value.raw) == (1, b'["other", 2]')
        consumer.seek(TopicPartition(topic, 0), 2)
        assert [record.value for record in read(consumer, 1)] == [(b"2", 3)]


def test_rows_of_arrow_get_their_headers(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    rows = pyarrow.RecordBatch.from_pylist(
        [{"value": 1, "headers": [("mine", b"x")]}, {"value": 2, "headers": None}],
        schema=pyarrow.schema(
            [("value", pyarrow.int64()), ("headers", pyarrow.map_(pyarrow.string(), pyarrow.binary()))]
        ),
    )
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer=Versioned()) as producer:
        producer.send_arrow(topic, rows).result()
        producer.send_arrow(topic, rows.select(["value"])).result()
    with consumer_of(bootstrap_servers, topic, value_deserializer=Versioned()) as consumer:
        found = [(record.value[1], record.headers) for record in read(consumer, 4)]
    version = ("version", b"2")
    assert found == [(1, (("mine", b"x"), version)), (2, (version,)), (1, (version,)), (2, (version,))]


def test_those_of_kafka_python_plug_in(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic, serde = new_topic(), kafka.serializer.JsonSerializer()
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer=serde) as producer:
        producer.send(topic, {"n": 1})

    async def consume() -> Any:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer=serde
        ) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            return await anext(aiter(consumer))

    assert asyncio.run(consume()).value == {"n": 1}
