"""Our classic member inside a group of the newer protocol (KIP-848), which Apache Kafka lets it join.

The group is made by a member with ``group.protocol=consumer``, so the broker assigns the partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from tests.kafka.brokers import apache_kafka_address
from tests.waiting import until

PARTITIONS = 4
RECORDS = 40


@pytest.fixture(scope="module")
def servers() -> str:
    return apache_kafka_address()


@pytest.fixture
def topic(servers: str) -> Iterator[str]:
    name = f"newer-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
        yield name
        admin.delete_topics([name])


@pytest.fixture
def newer(servers: str, topic: str) -> Iterator[confluent_kafka.Consumer]:
    """A member of the newer protocol, with the group to itself."""
    config = {
        "bootstrap.servers": servers,
        "group.id": topic,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    until(lambda: len(_owned(consumer)) == PARTITIONS, "the first member has all partitions")
    yield consumer
    consumer.close()


def _owned(consumer: confluent_kafka.Consumer) -> set[int]:
    """The partitions after a short poll, which lets the member take part in its group."""
    message = consumer.poll(0.05)
    assert message is None or message.error() is None, message and message.error()
    return {each.partition for each in consumer.assignment()}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_it_joins_reads_commits_and_leaves(
    servers: str, topic: str, newer: confluent_kafka.Consumer, strategy: str
) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        ours = Consumer(
            bootstrap_servers=servers,
            group_id=topic,
            partition_assignment_strategy=strategy,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        seen: list[tuple[int, int]] = []
        with ours:
            ours.subscribe([topic])

            def shared() -> bool:
                seen.extend((record.partition, record.offset) for record in ours.poll(0.05))
                mine = {each.partition for each in ours.assignment()}
                theirs = _owned(newer)
                return len(mine) == len(theirs) == PARTITIONS // 2 and not mine & theirs

            until(shared, "each has its half", 60)
            listed = {each.group_id: each.type for each in admin.list_groups()}
            assert listed[topic].lower() == "consumer", "the group is of the newer protocol"
            mine = sorted(each.partition for each in ours.assignment())
            with Producer(bootstrap_servers=servers) as producer:
                for number in range(RECORDS):
                    producer.send(topic, b"x", partition=number % PARTITIONS)
            expected = [(partition, offset) for partition in mine for offset in range(RECORDS // PARTITIONS)]

            def read_all() -> bool:
                seen.extend((record.partition, record.offset) for record in ours.poll(0.05))
                _owned(newer)
                return len(seen) >= len(expected)

            until(read_all, lambda: f"all records of {mine}: {seen}", 60)
            assert sorted(seen) == expected, "the records of its own partitions, each once"
            ours.commit()
            committed = admin.group_offsets(topic)
            offsets = {each.partition: found.offset for each, found in committed.items()}
            assert offsets == dict.fromkeys(mine, RECORDS // PARTITIONS)
            assert ours.committed([TopicPartition(topic, mine[0])])
        until(lambda: len(_owned(newer)) == PARTITIONS, "the first member has all partitions again", 60)
