"""Malformed batches: refused as by Apache Kafka, or read by every client without failure."""

from __future__ import annotations

from typing import Final

import confluent_kafka
import kafka

from millstream import Consumer, EmbeddedBroker
from millstream.errors import CorruptBatch, ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    read_header,
)
from millstream.wire.records.batches import decode_batch
from tests.kafka.brokers import apache_kafka_address
from tests.kafka.malformed import mutated
from tests.system.raw_client import RawClient
from tests.waiting import SECONDS

SEEDS: Final = range(600)
TOPIC: Final = "malformed"

_OTHER_WORDS: Final = {
    (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR),  # Kafka fails over it
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),  # an unknown codec
    (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP),  # a timestamp of more than 64 bits
    (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),  # an old format with a length of that format
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD),
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE),
}
"""The codes with which both refuse a batch, ours first, where they differ."""


def test_they_are_refused_or_everybody_reads_them(millstream_broker: EmbeddedBroker) -> None:
    """The topic has all that was not refused: a client that stumbles over one batch never gets behind it."""
    servers = millstream_broker.bootstrap_servers
    with RawClient(servers) as client:
        client.create_topic(TOPIC)
        answers = [_produce(client, mutated(seed)) for seed in SEEDS]
        end = client.fetch(TOPIC).high_watermark
    refused = sum(answer.error_code != 0 for answer in answers)
    assert 200 < refused < 500, "the damage is neither too light nor too heavy to show anything"
    assert _read_by_millstream(servers) == list(range(end))
    assert _read_by_confluent(servers, end) == list(range(end))
    assert _read_by_kafka_python(servers, end) == list(range(end))


def test_apache_kafka_refuses_the_same(millstream_broker: EmbeddedBroker) -> None:
    """Ours refuses more: what Kafka stores although a consumer fails over it."""
    with RawClient(millstream_broker.bootstrap_servers) as ours, RawClient(apache_kafka_address()) as theirs:
        for client in (ours, theirs):
            client.create_topic(f"{TOPIC}-twice")
        for seed in SEEDS:
            batch = mutated(seed)
            codes = tuple(
                ErrorCode(_produce(client, batch, f"{TOPIC}-twice").error_code) for client in (ours, theirs)
            )
            if codes[0] == codes[1] or codes in _OTHER_WORDS:
                continue
            assert codes == (ErrorCode.INVALID_RECORD, 0) or codes[0] == ErrorCode.INVALID_TIMESTAMP, seed
            assert not codes[1], seed
            assert not _is_readable(batch), f"seed {seed}: {codes}"


def _produce(client: RawClient, batch: bytes, topic: str = TOPIC) -> PartitionProduceResponse:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
    return client.call(request, 9, ProduceResponse).responses[0].partition_responses[0]


def _is_readable(batch: bytes) -> bool:
    """Whether every client can read the batch, and the broker's own bits are left to the broker."""
    header = read_header(batch)
    if len(batch) < BATCH_OVERHEAD or header.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT):
        return False
    try:
        records = decode_batch(batch, max_decompressed_bytes=1 << 20, for_all_clients=True)
    except CorruptBatch:
        return False
    has_epoch = header.producer_id < 0 or header.producer_epoch >= 0
    return has_epoch and [record.offset for record in records] == list(range(len(records)))


def _read_by_millstream(servers: str) -> list[int]:
    offsets: list[int] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        end = consumer.end_offsets([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)]
        while len(offsets) < end:
            records = consumer.poll(SECONDS)
            assert len(records), "the reader stands still"
            for record in records:
                _ = record.headers
                offsets.append(record.offset)
    return offsets


def _read_by_confluent(servers: str, end: int) -> list[int]:
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "malformed", "check.crcs": True}
    )
    reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    offsets: list[int] = []
    try:
        while len(offsets) < end:
            messages = reader.consume(500, SECONDS)
            assert messages, "the reader stands still"
            for message in messages:
                assert message.error() is None, message.error()
                message.headers()
                offsets.append(int(message.offset() or 0))
    finally:
        reader.close()
    return offsets


def _read_by_kafka_python(servers: str, end: int) -> list[int]:
    reader = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", check_crcs=True)
    reader.assign([kafka.TopicPartition(TOPIC, 0)])
    offsets: list[int] = []
    try:
        while len(offsets) < end:
            found = reader.poll(SECONDS * 1000)
            assert found, "the reader stands still"
            offsets += [record.offset for records in found.values() for record in records]
    finally:
        reader.close()
    return offsets
