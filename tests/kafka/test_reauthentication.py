"""Sessions that end are renewed under load, and a password can be renewed without a restart (KIP-368)."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from millstream import Admin, Consumer, Producer
from millstream.errors import AuthenticationError
from tests.kafka.brokers import apache_kafka_listeners
from tests.kafka.secured import PASSWORD, SCRAM_PASSWORD, USER
from tests.waiting import until


def settings_for(mechanism: str, password: str) -> dict[str, Any]:
    listeners, certificates = apache_kafka_listeners()
    return {
        "bootstrap.servers": listeners["SHORT"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def new_topic(settings: dict[str, Any], partitions: int = 1) -> str:
    topic = f"renewed-{uuid.uuid4().hex[:8]}"
    with Admin(settings) as admin:
        admin.create_topics({topic: partitions})
    return topic


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_no_request_fails_while_sessions_are_renewed(mechanism: str) -> None:
    """Several requests are in flight at any time, and fetches wait at the broker."""
    password = PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD
    settings = settings_for(mechanism, password)
    topic = new_topic(settings, 2)
    sent = 0
    read: list[bytes] = []
    with (
        Producer({**settings, "linger.ms": 0, "batch.size": 200}) as producer,
        Consumer(settings) as consumer,
    ):
        consumer.assign(consumer.partitions_for(topic))
        consumer.seek_to_beginning()

        def both_renewed() -> bool:
            nonlocal sent
            for _ in range(20):
                producer.send(topic, str(sent).encode())
                sent += 1
            read.extend(record.value for record in consumer.poll(timeout=0.05))
            return (
                producer.metrics()["reauthentications"] >= 3 and consumer.metrics()["reauthentications"] >= 3
            )

        until(both_renewed, "both clients have renewed their sessions three times")
        producer.flush()

        def all_read() -> bool:
            read.extend(record.value for record in consumer.poll(timeout=0.2))
            return len(read) >= sent

        until(all_read, "all records are read")
        assert sorted(map(int, read)) == list(range(sent))
        for client in (producer, consumer):
            assert client.metrics()["requests_failed"] == 0, "no connection was lost"


def test_a_renewed_password_is_used_without_a_restart(tmp_path: Path) -> None:
    kept = tmp_path / "password"
    kept.write_text(SCRAM_PASSWORD)
    settings = settings_for("SCRAM-SHA-256", f"${{dir:{tmp_path}:password}}")
    topic = new_topic(settings)
    told: list[str] = []
    with Consumer(settings) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        consumer.poll(timeout=0)
        kept.write_text("wrong-secret")

        def refused() -> bool:
            try:
                consumer.poll(timeout=0.1)
            except AuthenticationError as error:
                told.append(str(error))
            return bool(told)

        until(refused, "the old session has ended")
        assert "did not accept the user 'alice'" in told[0]
        assert "wrong-secret" not in told[0]
        kept.write_text(SCRAM_PASSWORD)
        with Producer(settings) as producer:
            producer.send(topic, b"after")

        def read_again() -> bool:
            try:
                return [record.value for record in consumer.poll(timeout=0.1)] == [b"after"]
            except AuthenticationError:
                return False

        until(read_again, "the consumer was let in again")
