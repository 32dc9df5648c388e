"""The producer on both brokers: what is sent is there as it was sent, within the limits that are set."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import (
    BufferExhaustedError,
    InvalidTopicError,
    MessageTooLargeError,
    MillstreamError,
    MisuseError,
    NoBrokersAvailableError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from millstream.model import RecordMetadata
from millstream.producer import Producer
from tests.system.producing import make_topic
from tests.system.proxy import Proxy
from tests.system.reading import read_topic
from tests.waiting import SECONDS, until


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    return make_topic(admin, 3)


@pytest.fixture
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


# -- records


def test_a_record_comes_back_as_it_was_sent(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", b"2"), ("null", None), ("ключ", b"")]
    sent = producer.send(topic, b"value", b"key", headers=headers, partition=1, timestamp=1_700_000_000_123)
    assert sent.result(SECONDS) == RecordMetadata(topic, 1, 0, 1_700_000_000_123)
    (record,) = read_topic(bootstrap_servers, topic)[1]
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_123)
    assert list(record.headers) == headers


def test_nulls_and_empty_things(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    for value, key in ((None, b"tombstone"), (b"", b""), (b"v", None), (None, None)):
        producer.send(topic, value, key, partition=0)
    producer.flush(SECONDS)
    records = read_topic(bootstrap_servers, topic)[0]
    assert [(record.value, record.key) for record in records] == [
        (None, b"tombstone"),
        (b"", b""),
        (b"v", None),
        (None, None),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_order_within_a_partition(bootstrap_servers: str, topic: str, codec: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        futures = [producer.send(topic, b"value %d" % n, b"%d" % (n % 7)) for n in range(5000)]
    assert all(future.exception(0) is None for future in futures)
    partitions = read_topic(bootstrap_servers, topic)
    assert sum(map(len, partitions)) == 5000
    for records in partitions:
        numbers = [int((record.value or b"").split()[1]) for record in records]
        assert numbers == sorted(numbers)
    for n, future in enumerate(futures):
        placed = future.result(0)
        assert partitions[placed.partition][placed.offset].value == b"value %d" % n


def test_compression_levels(bootstrap_servers: str, topic: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": "gzip",
        "compression.gzip.level": 9,
    }
    with Producer(settings) as producer:
        producer.send(topic, b"x" * 10_000).result(SECONDS)
        assert producer.metrics()["batch_bytes"] < 1000


def test_keys_go_where_javas_producer_puts_them(producer: Producer, admin: Admin) -> None:
    topic = make_topic(admin, 7)
    for key, partition in ((b"foobar", 0), (b"a", 5), (b"abc", 4), (b"key-123456789", 3)):
        assert producer.send(topic, b"v", key).result(SECONDS).partition == partition


def test_records_without_keys_spread_over_all_partitions(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=1000) as producer:
        for n in range(2000):
            producer.send(topic, b"%0100d" % n)
    assert all(len(records) > 100 for records in read_topic(bootstrap_servers, topic))


def test_timestamps_are_now_or_the_brokers(producer: Producer, admin: Admin) -> None:
    before = int(time.time() * 1000)
    ours = producer.send(make_topic(admin, 1), b"v").result(SECONDS)
    theirs = producer.send(
        make_topic(admin, 1, message_timestamp_type="LogAppendTime"), b"v", timestamp=1
    ).result(SECONDS)
    after = int(time.time() * 1000)
    assert before <= ours.timestamp <= after
    assert before <= theirs.timestamp <= after


def test_serializers(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers,
        key_serializer="long",
        value_serializer=lambda value: value.upper().encode(),
    ) as producer:
        producer.send(topic, "text", 1, partition=0).result(SECONDS)
        with pytest.raises(SerializationError, match=f"the key of a record for {topic}"):
            producer.send(topic, "text", "no number")
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer="json") as producer:
        producer.send(topic, {"a": [1, None]}, partition=0).result(SECONDS)
    first, second = read_topic(bootstrap_servers, topic)[0]
    assert (first.key, first.value) == (b"\0\0\0\0\0\0\0\1", b"TEXT")
    assert second.value == b'{"a":[1,null]}'


def test_bytes_are_what_is_sent_without_a_serializer(
    producer: Producer, bootstrap_servers: str, topic: str
) -> None:
    with pytest.raises(SerializationError, match="'string'"):
        producer.send(topic, "text")
    producer.send(topic, bytearray(b"a"), memoryview(b"b"), partition=0).result(SECONDS)
    (record,) = read_topic(bootstrap_servers, topic)[0]
    assert (record.value, record.key) == (b"a", b"b")


@pytest.mark.parametrize("headers", [[("a", "text")], [(b"a", b"b")], [("a",)], "ab"])
def test_wrong_headers_are_refused_at_once(producer: Producer, topic: str, headers: Any) -> None:
    with pytest.raises(SerializationError, match="header"):
        producer.send(topic, b"v", headers=headers)


def test_wrong_timestamps_and_topics_are_refused_at_once(producer: Producer, topic: str) -> None:
    for timestamp in (-1, 1.5, 1 << 63, datetime.now(UTC)):
        with pytest.raises(MisuseError, match="milliseconds since 1970"):
            producer.send(topic, b"v", timestamp=timestamp)  # type: ignore[arg-type]
    for name in ("", None, 5):
        with pytest.raises(MisuseError, match="not the name of a topic"):
            producer.send(name, b"v")  # type: ignore[arg-type]


# -- topics


def test_a_new_topic_is_made_by_sending(producer: Producer, bootstrap_servers: str) -> None:
    name = f"auto-{uuid.uuid4().hex[:10]}"
    assert producer.send(name, b"v").result(SECONDS).offset == 0
    assert sum(map(len, read_topic(bootstrap_servers, name))) == 1


def test_illegal_topics_and_unknown_partitions(producer: Producer, topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        producer.send("no/such*name", b"v")
    with pytest.raises(UnknownTopicOrPartitionError, match="has the partitions 0 to 2, not 3"):
        producer.send(topic, b"v", partition=3)
    with pytest.raises(UnknownTopicOrPartitionError, match="not -1"):
        producer.send(topic, b"v", partition=-1)


def test_an_unknown_topic_is_waited_for() -> None:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        impatient = Producer(bootstrap_servers=servers, max_block_ms=3000)
        with pytest.raises(UnknownTopicOrPartitionError, match=r"max_block_ms \(3000\)"):
            impatient.send("later", b"v")
        impatient.close()
        with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
            timer = threading.Timer(0.3, admin.create_topic, ("later",))
            timer.start()
            assert producer.send("later", b"v").result(SECONDS).offset == 0
            timer.join()


def test_topics_grow_under_the_producer(admin: Admin, bootstrap_servers: str) -> None:
    name = make_topic(admin, 1)
    with Producer(bootstrap_servers=bootstrap_servers, metadata_max_age_ms=100) as producer:
        assert [one.partition for one in producer.partitions_for(name)] == [0]
        producer.send(name, b"v").result(SECONDS)
        admin.create_partitions(name, 4)
        assert producer.send(name, b"v", partition=3).result(SECONDS).partition == 3
        until(lambda: len(producer.partitions_for(name)) == 4, "the producer sees four partitions")


def test_partitions_for(producer: Producer, topic: str) -> None:
    found = producer.partitions_for(topic)
    assert [(one.topic, one.partition) for one in found] == [(topic, 0), (topic, 1), (topic, 2)]
    assert all(one.leader is not None and one.replicas for one in found)


# -- limits


def test_records_that_are_too_large(producer: Producer, admin: Admin) -> None:
    with pytest.raises(RecordTooLargeError, match=r"max_request_size \(1048576\)"):
        producer.send("any", b"x" * 1_048_577)
    name = make_topic(admin, 1, max_message_bytes=2000)
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        producer.send(name, b"x" * 5000).result(SECONDS)


def test_batches_that_are_too_large_are_split_in_order(bootstrap_servers: str, admin: Admin) -> None:
    name = make_topic(admin, 1, max_message_bytes=2000)
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1000) as producer:
        futures = [producer.send(name, b"%0100d" % n) for n in range(100)]
        producer.flush(SECONDS)
        assert [future.result(0).offset for future in futures] == list(range(100))
        assert producer.metrics()["batch_splits"] > 0
    (records,) = read_topic(bootstrap_servers, name)
    assert [record.value for record in records] == [b"%0100d" % n for n in range(100)]


def test_a_full_buffer_holds_senders_up_until_there_is_room(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=64 * 1024, batch_size=4096, linger_ms=10_000
    ) as producer:
        futures = [producer.send(topic, b"x" * 1000) for _ in range(2000)]
        producer.flush(SECONDS)
        assert all(future.exception(0) is None for future in futures)
        assert producer.metrics()["buffer_free_bytes"] == 64 * 1024


def test_a_full_buffer_gives_up_in_time() -> None:
    with (
        Proxy() as proxy,
        EmbeddedBroker(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker,
    ):
        proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{proxy.port}",
            buffer_memory=20_000,
            batch_size=10_000,
            max_block_ms=200,
            request_timeout_ms=1000,
        )
        # It waits for the topic, which may take longer than that on a busy machine.
        until(lambda: producer.send("t", b"v").result(SECONDS), "a first record", or_error=MillstreamError)
        broker.kill()

        def send_much() -> None:
            for _ in range(100):
                producer.send("t", b"x" * 1000)

        with pytest.raises(BufferExhaustedError, match=r"max_block_ms \(200\).*buffer_memory"):
            send_much()
        producer.close(0.1)


def test_linger_zero_is_prompt_and_batches_of_nothing_work(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0, batch_size=0) as producer:
        for n in range(50):
            assert producer.send(topic, b"v", partition=0).result(SECONDS).offset == n


def test_max_block_without_any_broker() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=200)
    with pytest.raises(NoBrokersAvailableError, match=r"no broker answered at 127\.0\.0\.1:1"):
        producer.send("t", b"v")
    producer.close()
