"""Reading: what a record carries, how many come at a time, and how the limits of a fetch do what they say."""

from __future__ import annotations

import time
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer, Record, Records
from millstream.model import TimestampType, TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.kafka.frame_proxy import FrameProxy
from tests.system.members import read, read_offsets
from tests.waiting import SECONDS, until

EARLIEST = {"auto_offset_reset": "earliest"}
ONE_AT_THE_END: dict[str, Any] = {**EARLIEST, "fetch_max_wait_ms": 60_000}
"""However long it takes to look: at the end of a topic there is one fetch, and no second one after it."""


def send(producer: Producer, topic: str, *values: bytes | None, partition: int = 0) -> None:
    """Each in a batch of its own."""
    for value in values:
        producer.send(topic, value, partition=partition).result(SECONDS)


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


# --- records


def test_the_example_of_the_documents(
    bootstrap_servers: str, producer: Producer, topic: str, group: str
) -> None:
    """Kafka's own names for settings, a group, string deserializers; counting customers by country."""
    for customer, country in (("1", "DE"), ("2", "FR"), ("3", "DE")):
        producer.send(topic, country.encode(), customer.encode()).result(SECONDS)
    counts: dict[str, int] = {}
    with Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "client.id": "country-counter",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "auto.offset.reset": "earliest",
        }
    ) as consumer:
        consumer.subscribe([topic])
        for record in read(consumer, 3):
            counts[record.value] = counts.get(record.value, 0) + 1
        assert consumer.group_metadata().member_id.startswith("country-counter-")
    assert counts == {"DE": 2, "FR": 1}


def test_every_field_of_a_record(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    producer.send(
        topic, b"value", b"key", headers=[("a", b"1"), ("a", None)], partition=0, timestamp=1_700_000_000_123
    ).result(SECONDS)
    producer.send(topic, None, None, partition=0).result(SECONDS)
    now_ms = time.time() * 1000
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first, second = read(consumer, 2)
    assert first == Record(
        topic=topic,
        partition=0,
        offset=0,
        timestamp=1_700_000_000_123,
        timestamp_type=TimestampType.CREATE_TIME,
        key=b"key",
        value=b"value",
        headers=(("a", b"1"), ("a", None)),
        leader_epoch=first.leader_epoch,
    )
    assert first.topic_partition == TopicPartition(topic, 0)
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())
    assert abs(second.timestamp - now_ms) < 60_000


def test_log_append_time(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    producer.send(topic, b"v", timestamp=1_000).result(SECONDS)
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = read(consumer, 1)
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert abs(record.timestamp - time.time() * 1000) < 60_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(bootstrap_servers: str, topic: str, codec: str) -> None:
    values = [b"%d" % number * 50 for number in range(500)]
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec, linger_ms=50) as producer:
        for value in values:
            producer.send(topic, value)
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in read(consumer, 500)] == values


def test_records_by_partition(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    for number in range(3):
        send(producer, topic, b"a", b"b", partition=number)
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        parts: dict[TopicPartition, list[bytes]] = {}

        def take(records: Records) -> bool:
            for partition, part in records.by_partition().items():
                assert {record.topic_partition for record in part} == {partition}
                parts.setdefault(partition, []).extend(record.value for record in part)
            return sum(map(len, parts.values())) >= 6

        until(lambda: take(consumer.poll(0.1)), "all six")
    assert parts == {TopicPartition(topic, number): [b"a", b"b"] for number in range(3)}


# --- how many


def test_max_poll_records(bootstrap_servers: str, producer: Producer, topic: str, group: str) -> None:
    """The setting, the call that overrides it, and commits that cover what was handed out and no more."""
    send(producer, topic, *(b"%d" % number for number in range(30)))
    partition = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, max_poll_records=7, **EARLIEST
    ) as consumer:
        consumer.assign([partition])
        sizes = [len(until(lambda: consumer.poll(0.1), "records")) for _ in range(2)]
        assert max(sizes) <= 7
        at = consumer.position(partition)
        assert at == sum(sizes)
        consumer.commit()
        assert (stored := consumer.committed([partition])[partition]) is not None and stored.offset == at
        assert [record.offset for record in until(lambda: consumer.poll(0.1, max_records=1), "one")] == [at]
        assert read_offsets(consumer, 29 - at) == list(range(at + 1, 30))


def test_a_poll_without_time_returns_at_once(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    send(producer, topic, b"v")
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        began = time.monotonic()
        first = consumer.poll(0)
        assert time.monotonic() - began < 20
        assert first or until(lambda: consumer.poll(0), "polls without time make progress as well")


def test_all_partitions_have_their_turn(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic
) -> None:
    """A partition with a lot to read does not starve the others."""
    topic = new_topic(partitions=3)
    send(producer, topic, *(b"x" * 1000 for _ in range(60)), partition=0)
    for number in (1, 2):
        send(producer, topic, b"y", partition=number)
    with Consumer(
        bootstrap_servers=bootstrap_servers, max_partition_fetch_bytes=5000, max_poll_records=5, **EARLIEST
    ) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        seen: list[int] = []

        def poll() -> bool:
            seen.extend(record.partition for record in consumer.poll(0.1))
            return {1, 2} <= set(seen)

        until(poll, "all partitions are read")
        assert seen.count(0) < 60


# --- the limits of a fetch


def test_fetch_min_bytes_waits_until_there_is_enough(
    bootstrap_servers: str, producer: Producer, topic: str
) -> None:
    with Consumer(
        bootstrap_servers=bootstrap_servers, fetch_min_bytes=5000, fetch_max_wait_ms=60_000, **EARLIEST
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        send(producer, topic, b"a little")
        until(lambda: "fetch_min_bytes (5000)" in consumer.diagnose(), "the fetch is under way")
        assert not consumer.poll(1.0), "the fetch waits for more"
        assert "fetch_min_bytes (5000)" in consumer.diagnose()
        send(producer, topic, b"x" * 6000)
        assert [len(record.value) for record in consumer.poll(SECONDS)] == [8, 6000]


def test_fetch_max_wait_ms_ends_the_wait(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    send(producer, topic, b"a little")
    with Consumer(
        bootstrap_servers=bootstrap_servers, fetch_min_bytes=5000, fetch_max_wait_ms=1000, **EARLIEST
    ) as consumer:
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in consumer.poll(SECONDS)] == [b"a little"]
        assert 0.9 < time.monotonic() - began < 20


def fetches_needed(consumer: Consumer, count: int) -> int:
    read(consumer, count)
    return int(consumer.metrics()["request_latency_ms.Fetch.count"])


def test_max_partition_fetch_bytes(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    """40 batches of a good 1,000 bytes, 5,000 at a time, or all at once."""
    send(producer, topic, *(b"x" * 1000 for _ in range(40)))
    for limit, least, most in ((5000, 8, 40), (1_000_000, 1, 4)):
        with Consumer(
            bootstrap_servers=bootstrap_servers, max_partition_fetch_bytes=limit, **ONE_AT_THE_END
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert least <= fetches_needed(consumer, 40) <= most, limit


def test_fetch_max_bytes(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    """The same over four partitions, of which each alone is below its own limit."""
    topic = new_topic(partitions=4)
    for number in range(4):
        send(producer, topic, *(b"x" * 1000 for _ in range(10)), partition=number)
    for limit, least, most in ((5000, 8, 40), (1_000_000, 1, 7)):
        with Consumer(
            bootstrap_servers=bootstrap_servers, fetch_max_bytes=limit, **ONE_AT_THE_END
        ) as consumer:
            consumer.assign(consumer.partitions_for(topic))
            assert least <= fetches_needed(consumer, 40) <= most, limit


def test_a_record_larger_than_all_limits_is_delivered(
    bootstrap_servers: str, producer: Producer, topic: str
) -> None:
    send(producer, topic, b"small", b"x" * 500_000, b"small again")
    with Consumer(
        bootstrap_servers=bootstrap_servers, fetch_max_bytes=1000, max_partition_fetch_bytes=100, **EARLIEST
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [len(record.value) for record in read(consumer, 3)] == [5, 500_000, 11]


def test_socket_buffers(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    """Small ones slow down, and change nothing."""
    send(producer, topic, b"x" * 900_000)
    with Consumer(
        bootstrap_servers=bootstrap_servers, receive_buffer_bytes=4096, send_buffer_bytes=4096, **EARLIEST
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [len(record.value) for record in read(consumer, 1)] == [900_000]


def test_all_that_is_there_comes_at_once(bootstrap_servers: str, topic: str) -> None:
    """Aggressive batching: 20,000 records in a handful of fetches, and as many records a poll as allowed."""
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20, batch_size=100_000) as producer:
        for number in range(20_000):
            producer.send(topic, b"%d" % number, partition=0)
    with Consumer(bootstrap_servers=bootstrap_servers, max_poll_records=10_000, **ONE_AT_THE_END) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        polls = 0
        total = 0
        while total < 20_000:
            records = consumer.poll(SECONDS)
            polls, total = polls + 1, total + len(records)
        assert polls < 10
        assert consumer.metrics()["request_latency_ms.Fetch.count"] < 10


# --- flow


def test_pause_and_resume(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    paused, open_ = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=bootstrap_servers, **EARLIEST) as consumer:
        consumer.assign([paused, open_])
        consumer.pause(paused)
        assert consumer.paused() == {paused}
        for number in range(2):
            send(producer, topic, b"v", partition=number)
        assert [record.topic_partition for record in read(consumer, 1)] == [open_]
        assert not consumer.poll(0.5), "nothing comes of a paused partition"
        consumer.resume(paused)
        assert consumer.paused() == frozenset()
        assert [record.topic_partition for record in read(consumer, 1)] == [paused]


def test_what_was_fetched_before_a_pause_is_kept_back(
    bootstrap_servers: str, producer: Producer, topic: str
) -> None:
    send(producer, topic, *(b"%d" % number for number in range(10)))
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, max_poll_records=3, **EARLIEST) as consumer:
        consumer.assign([partition])
        assert len(until(lambda: consumer.poll(0.1), "the first")) <= 3
        consumer.pause(partition)
        assert not consumer.poll(0.3)
        consumer.resume(partition)
        assert read(consumer, 7)[-1].offset == 9


# --- topics


def test_partitions_for_and_topics(bootstrap_servers: str, admin: Admin, new_topic: NewTopic) -> None:
    """A consumer without a group: new partitions are its own business."""
    topic = new_topic(partitions=2)
    with Consumer(bootstrap_servers=bootstrap_servers, allow_auto_create_topics=False) as consumer:
        assert consumer.partitions_for(topic) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert topic in consumer.topics()
        assert consumer.partitions_for(f"{topic}-missing") == []
        consumer.assign(consumer.partitions_for(topic))
        admin.create_partitions(topic, 3)
        assert len(consumer.assignment()) == 2
        until(lambda: len(consumer.partitions_for(topic)) == 3, "the new partition is seen when asked for")
        assert len(consumer.assignment()) == 2


def test_without_a_group_nothing_of_a_group_is_touched(
    bootstrap_servers: str, producer: Producer, topic: str
) -> None:
    send(producer, topic, b"v")
    with FrameProxy(watches=True) as proxy:
        proxy.target = int(bootstrap_servers.rpartition(":")[2])
        with Consumer(bootstrap_servers=proxy.address, client_id=topic, **EARLIEST) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            read(consumer, 1)
        asked = {each.request.api.name for each in proxy.seen(topic)}
    assert asked == {"ApiVersions", "Metadata", "ListOffsets", "Fetch"}
