"""Other people's clients against the embedded broker: what they write, they read back, also after a restart.

Each client speaks its own dialect of the protocol: other versions, other batch layouts, other codecs. The
matrix below produces with one and reads with every one.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from millstream.embedded import EmbeddedBroker
from tests.kafka.clients import toolchains
from tests.waiting import SECONDS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Sample(NamedTuple):
    """One record as every client can express it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


SAMPLES = [
    Sample(b"key", b"value", (("trace", b"1"), ("empty", b""), ("trace", b"2"))),
    Sample(None, b"no key"),
    Sample(b"tombstone", None),
    Sample(b"", b"empty key"),
    Sample(b"empty value", b""),
    Sample("ключ".encode(), "値".encode() * 100),
    Sample(b"large", bytes(range(256)) * 3900),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return create_topic(broker, partitions=1)


def create_topic(broker: EmbeddedBroker, partitions: int, **configs: str) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    futures = admin.create_topics([NewTopic(name, partitions, 1, config=configs)], operation_timeout=SECONDS)
    futures[name].result(SECONDS)
    return name


# --- producing, one function per client: (servers, topic, codec, samples)


def produce_confluent(servers: str, topic: str, codec: str, samples: list[Sample]) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "acks": "all"}
    )
    for sample in samples:
        producer.produce(
            topic,
            key=sample.key,
            value=sample.value,
            headers=list(sample.headers),
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(SECONDS) == 0
    assert not errors


def produce_kafka_python(servers: str, topic: str, codec: str, samples: list[Sample]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec, acks="all"
    )
    try:
        sent = [
            producer.send(topic, key=sample.key, value=sample.value, headers=list(sample.headers))
            for sample in samples
        ]
        producer.flush(SECONDS)
        for future in sent:
            future.get(SECONDS)
    finally:
        producer.close()


def produce_aiokafka(servers: str, topic: str, codec: str, samples: list[Sample]) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        try:
            for sample in samples:
                await producer.send_and_wait(
                    topic, key=sample.key, value=sample.value, headers=list(sample.headers)
                )
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


# --- reading all of partition 0, one function per client: (servers, topic, count)


def read_confluent(servers: str, topic: str, count: int) -> list[Sample]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Sample] = []
    deadline = time.monotonic() + SECONDS
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None, message.error()
                headers: Any = message.headers() or ()
                found.append(Sample(message.key(), message.value(), tuple(map(tuple, headers))))
    finally:
        consumer.close()
    return found


def read_kafka_python(servers: str, topic: str, count: int) -> list[Sample]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, check_crcs=True)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[Sample] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            records = consumer.poll(timeout_ms=1000).get(partition, ())
            found += [Sample(each.key, each.value, tuple(map(tuple, each.headers))) for each in records]
        return found
    finally:
        consumer.close()


def read_aiokafka(servers: str, topic: str, count: int) -> list[Sample]:
    async def run() -> list[Sample]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found: list[Sample] = []
            while len(found) < count:
                record = await consumer.getone()
                found.append(Sample(record.key, record.value, tuple(map(tuple, record.headers))))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(run(), SECONDS))


PRODUCERS = {
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
READERS = {"confluent-kafka": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", PRODUCERS)
def test_what_one_client_writes_all_read(broker: EmbeddedBroker, topic: str, client: str, codec: str) -> None:
    PRODUCERS[client](broker.bootstrap_servers, topic, codec, SAMPLES)
    for name, read in READERS.items():
        assert read(broker.bootstrap_servers, topic, len(SAMPLES)) == SAMPLES, f"read by {name}"


def test_everything_is_there_after_a_restart(broker: EmbeddedBroker, topic: str) -> None:
    produce_confluent(broker.bootstrap_servers, topic, "lz4", SAMPLES)
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        for name, read in READERS.items():
            assert read(broker.bootstrap_servers, topic, len(SAMPLES)) == SAMPLES, (
                f"{name} after {end.__name__}"
            )
    produce_kafka_python(broker.bootstrap_servers, topic, "none", SAMPLES)
    assert read_aiokafka(broker.bootstrap_servers, topic, 2 * len(SAMPLES)) == SAMPLES * 2


@dataclass
class Timed:
    """Ten records, one a second, from this moment on."""

    topic: str
    first_ms: int = 1_700_000_000_000
    count: int = 10

    def timestamp(self, offset: int) -> int:
        return self.first_ms + 1000 * offset


@pytest.fixture
def timed(broker: EmbeddedBroker, topic: str) -> Timed:
    made = Timed(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for offset in range(made.count):
        producer.produce(topic, b"x", timestamp=made.timestamp(offset))
        producer.flush(SECONDS)
    return made


def test_offsets_by_time(broker: EmbeddedBroker, timed: Timed) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    partition = kafka.TopicPartition(timed.topic, 0)
    try:
        for after_ms, expected in ((-5000, 0), (0, 0), (1, 1), (3000, 3), (8999, 9), (9000, 9)):
            found = consumer.offsets_for_times({partition: timed.first_ms + after_ms})[partition]
            assert (found.offset, found.timestamp) == (expected, timed.timestamp(expected))
        assert consumer.offsets_for_times({partition: timed.first_ms + 9001})[partition] is None
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: timed.count}
    finally:
        consumer.close()


def test_the_record_with_the_largest_timestamp(broker: EmbeddedBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for timestamp in (1000, 5000, 3000):
        producer.produce(topic, b"x", timestamp=1_700_000_000_000 + timestamp)
    producer.flush(SECONDS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    partition = confluent_kafka.TopicPartition(topic, 0)
    spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    result = admin.list_offsets({partition: spec}, request_timeout=SECONDS)[partition].result(SECONDS)
    assert (result.offset, result.timestamp) == (1, 1_700_000_005_000)


def test_topics_by_admin(broker: EmbeddedBroker) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    name = create_topic(broker, partitions=3, **{"retention.ms": "1234567"})
    try:
        assert name in admin.list_topics()
        other = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        described = other.list_topics(name, SECONDS)
        assert sorted(described.topics[name].partitions) == [0, 1, 2]
        resource = ConfigResource("topic", name)
        configs = other.describe_configs([resource])
        assert configs[resource].result(SECONDS)["retention.ms"].value == "1234567"
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


@pytest.mark.parametrize("codec", CODECS)
def test_kcat(broker: EmbeddedBroker, topic: str, codec: str) -> None:
    toolchains.kcat()
    lines = "".join(f"key{n}:value {n}\n" for n in range(1000))
    base = ["kcat", "-q", "-b", broker.bootstrap_servers, "-t", topic]
    subprocess.run([*base, "-P", "-K:", "-z", codec], input=lines, text=True, check=True, timeout=SECONDS)
    read = subprocess.run(
        [*base, "-C", "-e", "-o", "beginning", "-K:"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert read.stdout == lines
