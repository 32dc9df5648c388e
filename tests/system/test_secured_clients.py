"""kafka-python and aiokafka on a broker that made itself secure: TLS and SCRAM."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest

from millstream import Admin, EmbeddedBroker
from tests.waiting import SECONDS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=True) as started:
        with Admin(started.client_settings) as admin:
            admin.create_topic("kafka-python")
            admin.create_topic("aiokafka")
        yield started


def settings(broker: EmbeddedBroker) -> dict[str, Any]:
    given = broker.client_settings
    return {
        "bootstrap_servers": given["bootstrap.servers"],
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=given["ssl.ca.location"]),
        "sasl_mechanism": given["sasl.mechanism"],
        "sasl_plain_username": given["sasl.username"],
        "sasl_plain_password": given["sasl.password"],
    }


def test_kafka_python(broker: EmbeddedBroker) -> None:
    producer = kafka.KafkaProducer(**settings(broker))
    try:
        producer.send("kafka-python", b"hello").get(SECONDS)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python",
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(SECONDS * 1000),
        **settings(broker),
    )
    try:
        assert next(consumer).value == b"hello"
    finally:
        consumer.close()


def test_aiokafka(broker: EmbeddedBroker) -> None:
    async def exchange() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings(broker)) as producer:
            await producer.send_and_wait("aiokafka", b"hello")
        async with aiokafka.AIOKafkaConsumer(
            "aiokafka", group_id="readers", auto_offset_reset="earliest", **settings(broker)
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), SECONDS)
            value: bytes = record.value
            return value

    assert asyncio.run(exchange()) == b"hello"
