"""Open transactions, on Apache Kafka: what read_committed sees of their lag."""

from __future__ import annotations

import uuid

import confluent_kafka
import pytest

from millstream import Admin, Consumer, TopicPartition
from tests.kafka.brokers import apache_kafka_address
from tests.system.members import poll_until


@pytest.mark.parametrize(("isolation", "lag"), [("read_committed", 2), ("read_uncommitted", 5)])
def test_lag_ends_at_the_first_open_transaction(isolation: str, lag: int) -> None:
    servers, topic = apache_kafka_address(), f"open-{uuid.uuid4().hex[:8]}"
    where = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        plain = confluent_kafka.Producer({"bootstrap.servers": servers})
        for _ in range(2):
            plain.produce(topic, b"v")
        plain.flush(30)
        writer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
        writer.init_transactions(30)
        writer.begin_transaction()
        for _ in range(3):
            writer.produce(topic, b"v")
        writer.flush(30)
        with Consumer(
            bootstrap_servers=servers, isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([where])
            assert consumer.lag(where) == lag, "looked up"
            consumer.poll(30, max_records=1)
            assert consumer.lag(where) == lag - 1, "as fetched"
            consumer.seek_to_end(where)
            poll_until(consumer, lambda: consumer.lag(where) == 0, "the end")
        (open_one,) = admin.describe_producers(topic)[where]
        assert open_one.transaction_start == 2
        writer.abort_transaction(30)
        admin.delete_topics(topic)
