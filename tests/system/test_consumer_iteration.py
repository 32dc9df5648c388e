"""``for record in consumer``, and ``poll_arrow``: other ways to get the same records."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from millstream.consumer import Consumer, RebalanceListener
from millstream.errors import CommitFailedError, ConfigError, DeserializationError, WakeupError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import QUICK, Member, partitions_of, until_owns
from tests.waiting import SECONDS, until


@pytest.fixture
def partition(new_topic: NewTopic, bootstrap_servers: str) -> TopicPartition:
    """Twenty records in one batch."""
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=100) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0)
    return TopicPartition(topic, 0)


def consumer_of(servers: str, group: str, partition: TopicPartition, **settings: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=settings.pop("enable_auto_commit", False),
        **settings,
    )
    consumer.assign([partition])
    return consumer


def committed(consumer: Consumer, partition: TopicPartition) -> int | None:
    stored = consumer.committed([partition])[partition]
    return None if stored is None else stored.offset


# --- one by one


def test_a_commit_in_the_loop_covers_exactly_what_the_loop_has_seen(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    """More was fetched, but only what came out of the loop counts, the present record included."""
    with consumer_of(bootstrap_servers, group, partition) as consumer:
        for record in consumer:
            assert consumer.position(partition) == record.offset + 1
            if record.offset in (3, 4, 11):
                consumer.commit()
                assert committed(consumer, partition) == record.offset + 1
            if record.offset == 12:
                break
        assert consumer.position(partition) == 13
        assert [record.offset for record in islice(consumer, 2)] == [13, 14], "a new loop goes on"
        rest = until(lambda: consumer.poll(0.1), "the rest")
        assert [record.offset for record in rest] == [15, 16, 17, 18, 19], "and so does poll"


def test_close_commits_what_the_loop_has_seen(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    with consumer_of(bootstrap_servers, group, partition, enable_auto_commit=True) as consumer:
        for record in consumer:
            if record.offset == 6:
                break
    with consumer_of(bootstrap_servers, group, partition) as consumer:
        assert committed(consumer, partition) == 7


def test_a_seek_in_the_loop_takes_effect_at_once(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    with consumer_of(bootstrap_servers, group, partition) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1, 2]:
                consumer.seek(partition, 17)
            if record.offset == 19:
                break
        assert seen == [0, 1, 2, 17, 18, 19]


def test_a_pause_in_the_loop_takes_effect_at_once(
    bootstrap_servers: str, producer: Producer, group: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    for number in range(20):
        producer.send(topic, b"v", partition=number % 2).result(SECONDS)
    first: TopicPartition | None = None
    seen = []
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        for record in consumer:
            seen.append(record.topic_partition)
            if first is None:
                first = record.topic_partition
                consumer.pause(first)
            if len(seen) == 11:
                break
        assert first is not None and seen.count(first) == 1
        consumer.resume(first)
        rest = [record for record in islice(consumer, 9)]  # noqa: C416 - the loop is what is tested
        assert [(record.topic_partition, record.offset) for record in rest] == [
            (first, n) for n in range(1, 10)
        ]


def test_the_loop_waits_for_more_and_wakeup_ends_it(
    bootstrap_servers: str, producer: Producer, group: str, partition: TopicPartition
) -> None:
    seen = []
    with consumer_of(bootstrap_servers, group, partition) as consumer:
        timer = threading.Timer(0.3, lambda: producer.send(partition.topic, b"late"))
        timer.start()

        def loop() -> None:
            for record in consumer:
                seen.append(record.value)
                if record.value == b"late":
                    consumer.wakeup()

        with pytest.raises(WakeupError):
            loop()
    assert len(seen) == 21


def test_close_in_the_loop_ends_it(bootstrap_servers: str, group: str, partition: TopicPartition) -> None:
    consumer = consumer_of(bootstrap_servers, group, partition)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 2:
            consumer.close()
    assert seen == [0, 1, 2]


def test_lag_and_position_in_the_loop(bootstrap_servers: str, group: str, partition: TopicPartition) -> None:
    with consumer_of(bootstrap_servers, group, partition) as consumer:
        for record in consumer:
            assert consumer.lag(partition) == 19 - record.offset
            if record.offset == 5:
                break


def test_records_of_lost_partitions_do_not_come_out_of_the_loop(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    """The body took too long, and another member owns the partition: on_lost comes before anything else."""
    lost = threading.Event()
    seen: list[int] = []

    class Listener(RebalanceListener):
        def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            lost.set()

    settings = {**QUICK, "max_poll_interval_ms": 3000, "enable_auto_commit": False}
    with Consumer({**settings, "bootstrap_servers": bootstrap_servers, "group_id": group}) as consumer:
        consumer.subscribe([partition.topic], listener=Listener())
        for record in consumer:
            if lost.is_set():
                break
            seen.append(record.offset)
            if record.offset == 3:
                with Member(bootstrap_servers, group, [partition.topic], enable_auto_commit=False) as other:
                    until_owns(other, partitions_of(partition.topic, 0))
                    with pytest.raises(CommitFailedError, match="max_poll_records"):
                        consumer.commit()
        assert seen == [0, 1, 2, 3]
        assert record.offset == 0, "it starts anew, from the committed offset"


def test_bad_bytes_in_the_loop(
    bootstrap_servers: str, producer: Producer, group: str, new_topic: NewTopic
) -> None:
    partition = TopicPartition(new_topic(), 0)
    for raw in (b"1", b"bad", b"3"):
        producer.send(partition.topic, raw).result(SECONDS)
    values: list[int] = []
    with consumer_of(bootstrap_servers, group, partition, value_deserializer="json") as consumer:
        while len(values) < 2:
            try:
                for record in consumer:
                    values.append(record.value)
                    if len(values) == 2:
                        break
            except DeserializationError as error:
                consumer.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
    assert values == [1, 3]


# --- columns


def test_poll_arrow(bootstrap_servers: str, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        producer.send(
            topic, b"v%d" % number, b"k", partition=number, timestamp=1000 + number, headers=[("h", b"x")]
        ).result(SECONDS)
    producer.send(topic, None, None, partition=0, timestamp=5000).result(SECONDS)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        batches: list[pa.RecordBatch] = []

        def poll() -> bool:
            batches.append(consumer.poll_arrow(0.1, headers=True))
            return sum(len(batch) for batch in batches) == 3

        until(poll, "three rows")
    assert batches[0].schema == pa.schema(
        [
            ("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestamp_type", pa.int8()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    rows = sorted(
        (row for batch in batches for row in batch.to_pylist()), key=lambda r: (r["partition"], r["offset"])
    )
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        (topic, 0, 0, b"k", b"v0"),
        (topic, 0, 1, None, None),
        (topic, 1, 0, b"k", b"v1"),
    ]
    assert [row["timestamp"].timestamp() for row in rows] == [1.0, 5.0, 1.001]
    assert [row["headers"] for row in rows] == [
        [{"key": "h", "value": b"x"}],
        [],
        [{"key": "h", "value": b"x"}],
    ]


def test_poll_arrow_moves_the_position_as_poll_does(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    settings = {"value_deserializer": "string", "max_poll_records": 2}
    with consumer_of(bootstrap_servers, group, partition, **settings) as consumer:
        batch = until(lambda: (b := consumer.poll_arrow(0.1, max_records=5)).num_rows and b, "five rows")
        assert batch.column("offset").to_pylist() == [0, 1, 2, 3, 4]
        assert batch.schema.field("value").type == pa.string()
        consumer.commit()
        assert committed(consumer, partition) == 5
        batch = until(lambda: (b := consumer.poll_arrow(0.1)).num_rows and b, "the rest")
        assert batch.num_rows == 15, "all that is ready, whatever max_poll_records says"
        empty = consumer.poll_arrow(0.05)
        assert (empty.num_rows, empty.schema) == (0, batch.schema)


@pytest.mark.parametrize(
    ("name", "kind", "raw", "value"),
    [
        ("int", pa.int32(), b"\0\0\0\7", 7),
        ("long", pa.int64(), b"\0\0\0\0\0\0\0\7", 7),
        ("double", pa.float64(), b"\x3f\xe0\0\0\0\0\0\0", 0.5),
        ("string", pa.string(), b"seven", "seven"),
    ],
)
def test_poll_arrow_types(
    bootstrap_servers: str,
    producer: Producer,
    group: str,
    new_topic: NewTopic,
    name: str,
    kind: pa.DataType,
    raw: bytes,
    value: object,
) -> None:
    partition = TopicPartition(new_topic(), 0)
    for each in (raw, None):
        producer.send(partition.topic, each).result(SECONDS)
    with consumer_of(bootstrap_servers, group, partition, value_deserializer=name) as consumer:
        rows: list[object] = []

        def poll() -> bool:
            column = consumer.poll_arrow(0.1).column("value")
            assert column.type == kind
            rows.extend(column.to_pylist())
            return len(rows) == 2

        until(poll, "two rows")
    assert rows == [value, None]


def test_poll_arrow_refuses_what_has_no_column(
    bootstrap_servers: str, group: str, partition: TopicPartition
) -> None:
    for refused in ("json", lambda raw: raw):
        with (
            consumer_of(bootstrap_servers, group, partition, value_deserializer=refused) as consumer,
            pytest.raises(ConfigError, match="value_deserializer"),
        ):
            consumer.poll_arrow(0.1)
