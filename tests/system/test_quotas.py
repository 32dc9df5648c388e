"""Quotas of clients: stored, found, and kept to, with the pauses that Apache Kafka asks for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from millstream.admin import QuotaEntity
from millstream.errors import ErrorCode, InvalidRequestError, MisuseError
from millstream.wire.messages.fetch import FetchResponse
from millstream.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.wire.messages.produce import ProduceResponse
from millstream.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.conftest import NewTopic
from tests.system.cli_process import Cli
from tests.system.raw_client import RawClient, fetch_request, produce_request
from tests.waiting import SECONDS, until

VALUE = b"x" * 900_000
LIMIT = 100_000
BURST_MS = 10_000
"""What may come at once, with Kafka's eleven windows of a second: ten seconds' worth."""


@pytest.fixture
def client_id() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"


def limit(admin: Admin, client_id: str, **quotas: float) -> None:
    entity = QuotaEntity(client_id=client_id)
    admin.alter_client_quotas(entity, quotas)
    until(lambda: admin.describe_client_quotas().get(entity) == quotas, "the quota")


def test_quotas_are_set_found_and_removed(admin: Admin, client_id: str) -> None:
    both = QuotaEntity(user=f"user-{client_id}", client_id=client_id)
    own, every = (
        QuotaEntity(client_id=client_id),
        QuotaEntity(user=f"user-{client_id}", client_id="<default>"),
    )
    admin.alter_client_quotas(both, {"producer_byte_rate": 1000, "request_percentage": 12.5})
    admin.alter_client_quotas(own, {"consumer_byte_rate": 10})
    admin.alter_client_quotas(every, {"producer_byte_rate": 5})

    def found() -> dict[QuotaEntity, dict[str, float]]:
        quotas = admin.describe_client_quotas()
        return {entity: quotas[entity] for entity in (both, own, every) if entity in quotas}

    stored = {
        both: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        own: {"consumer_byte_rate": 10.0},
        every: {"producer_byte_rate": 5.0},
    }
    until(lambda: found() == stored, "the quotas")
    admin.alter_client_quotas(both, {"producer_byte_rate": None, "request_percentage": 20})
    admin.alter_client_quotas(own, {"consumer_byte_rate": None})
    admin.alter_client_quotas(every, {"producer_byte_rate": None, "consumer_byte_rate": None})
    until(lambda: found() == {both: {"request_percentage": 20.0}}, "the changes")
    admin.alter_client_quotas(both, {"request_percentage": None})


def test_wrong_quotas_are_refused(admin: Admin, client_id: str) -> None:
    entity = QuotaEntity(client_id=client_id)
    for wrong in ({"producer_byte_rate": 0}, {"producer_byte_rate": 1.5}, {"bytes": 1}):
        with pytest.raises(InvalidRequestError):
            admin.alter_client_quotas(entity, wrong)
    with pytest.raises(InvalidRequestError):
        admin.alter_client_quotas(entity, {"connection_creation_rate": 5})
    with pytest.raises(InvalidRequestError):
        admin.alter_client_quotas(QuotaEntity(ip="10.0.0.1"), {"producer_byte_rate": 5})
    with pytest.raises(MisuseError, match="name one in the QuotaEntity"):
        admin.alter_client_quotas(QuotaEntity(), {"producer_byte_rate": 1})
    assert entity not in admin.describe_client_quotas()


def test_a_producer_over_its_quota_is_told_how_long_to_pause(
    bootstrap_servers: str, admin: Admin, client_id: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    limit(admin, client_id, producer_byte_rate=LIMIT)
    request = produce_request(topic, [VALUE])
    with RawClient(bootstrap_servers, client_id=client_id) as client:
        began = time.monotonic()
        assert client.call(request, 9, ProduceResponse).throttle_time_ms == 0
        throttled = client.call(request, 9, ProduceResponse)
        elapsed_ms = (time.monotonic() - began) * 1000
    (partition,) = throttled.responses[0].partition_responses
    assert partition.error_code == 0 and partition.base_offset == 1, "it is written all the same"
    expected_ms = 2 * len(VALUE) / LIMIT * 1000 - BURST_MS
    assert expected_ms - elapsed_ms - 10 <= throttled.throttle_time_ms <= expected_ms + 100
    with RawClient(bootstrap_servers, client_id=f"other-{client_id}") as other:
        assert other.call(request, 9, ProduceResponse).throttle_time_ms == 0


def test_a_consumer_over_its_quota_gets_an_empty_answer(
    bootstrap_servers: str, admin: Admin, client_id: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    limit(admin, client_id, consumer_byte_rate=LIMIT)
    with RawClient(bootstrap_servers) as writer:
        assert writer.produce(topic, VALUE).error_code == 0
    request = fetch_request(topic, 0, max_wait_ms=10_000)
    with RawClient(bootstrap_servers, client_id=client_id) as client:
        began = time.monotonic()
        first = client.call(request, 12, FetchResponse)
        assert first.throttle_time_ms == 0
        assert len(first.responses[0].partitions[0].records or b"") > len(VALUE)
        second = client.call(request, 12, FetchResponse)
        elapsed_ms = (time.monotonic() - began) * 1000
    assert second.responses == [] and second.session_id == 0
    expected_ms = 2 * len(VALUE) / LIMIT * 1000 - BURST_MS
    assert expected_ms - elapsed_ms - 10 <= second.throttle_time_ms <= expected_ms + 100


def creating(topic: str, partitions: int) -> CreateTopicsRequest:
    new = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[new], timeout_ms=10_000)


def test_changes_of_topics_over_their_rate_are_refused(
    bootstrap_servers: str, admin: Admin, client_id: str
) -> None:
    """A full bucket holds eleven seconds' worth, and what was taken too much must come back (KIP-599)."""
    limit(admin, client_id, controller_mutation_rate=1)
    with RawClient(bootstrap_servers, client_id=client_id) as client:
        began = time.monotonic()
        first = client.call(creating(f"{client_id}-a", 20), 7, CreateTopicsResponse)
        assert first.topics[0].error_code == 0 and first.throttle_time_ms == 0, "it had not been used up"
        second = client.call(creating(f"{client_id}-b", 1), 7, CreateTopicsResponse)
        elapsed_ms = (time.monotonic() - began) * 1000
    assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 9000 - elapsed_ms - 10 <= second.throttle_time_ms <= 9000
    with RawClient(bootstrap_servers, client_id=client_id) as client:
        older = client.call(creating(f"{client_id}-c", 1), 5, CreateTopicsResponse)
    assert older.topics[0].error_code == 0 and older.throttle_time_ms > 0, (
        "who does not know the error pauses"
    )
    limit(admin, client_id, controller_mutation_rate=1000)
    with RawClient(bootstrap_servers, client_id=client_id) as client:

        def is_made() -> bool:
            answer = client.call(creating(f"{client_id}-d", 1), 7, CreateTopicsResponse)
            return answer.topics[0].error_code == 0

        until(is_made, "what was taken too much comes back in milliseconds")
    admin.delete_topics([f"{client_id}-{name}" for name in "acd"])


# --- a broker with two windows, so that little may come at once


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"quota.window.num": 2}) as started:
        yield started


@pytest.fixture(scope="module")
def owner(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


def test_the_broker_reads_nothing_while_a_client_must_pause(
    broker: EmbeddedBroker, owner: Admin, client_id: str
) -> None:
    limit(owner, client_id, producer_byte_rate=LIMIT)
    owner.create_topic(client_id)
    with RawClient(broker.bootstrap_servers, client_id=client_id) as client:
        began = time.monotonic()
        answer = client.call(produce_request(client_id, [VALUE[:200_000]]), 9, ProduceResponse)
        assert 900 < answer.throttle_time_ms <= 1100
        client.call(MetadataRequest(topics=[]), 12, MetadataResponse)
        assert (time.monotonic() - began) * 1000 >= answer.throttle_time_ms


def test_requests_over_their_share_are_throttled(
    broker: EmbeddedBroker, owner: Admin, client_id: str
) -> None:
    limit(owner, client_id, request_percentage=0.001)
    with RawClient(broker.bootstrap_servers, client_id=client_id) as client:
        answer = client.call(MetadataRequest(topics=[]), 12, MetadataResponse)
        assert 0 < answer.throttle_time_ms <= 1000


@pytest.mark.parametrize("kind", ["millstream", "confluent-kafka"])
def test_clients_keep_to_their_quotas(
    broker: EmbeddedBroker, owner: Admin, client_id: str, kind: str
) -> None:
    """A million bytes at 250,000 a second: what may come at once is less than two seconds' worth."""
    rate, values = 250_000, [bytes([number]) * 20_000 for number in range(50)]
    limit(owner, client_id, producer_byte_rate=rate, consumer_byte_rate=rate)
    topic = client_id
    owner.create_topic(topic)
    common: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id}
    reading = {"group.id": client_id, "auto.offset.reset": "earliest"}
    least_seconds = len(b"".join(values)) / rate - 2
    began = time.monotonic()
    if kind == "millstream":
        with Producer({**common, "batch.size": 50_000}) as producer:
            for value in values:
                producer.send(topic, value)
            producer.flush(SECONDS)
            assert producer.metrics()["throttle_ms"] > 0
    else:
        told: list[float] = []
        writer = confluent_kafka.Producer(
            {**common, "batch.size": 50_000, "throttle_cb": lambda event: told.append(event.throttle_time)}
        )
        for value in values:
            writer.produce(topic, value)
        assert writer.flush(SECONDS) == 0
        assert sum(told) > 0
    assert time.monotonic() - began >= least_seconds
    began, read = time.monotonic(), 0
    if kind == "millstream":
        with Consumer({**common, **reading}) as consumer:
            consumer.subscribe([topic])
            while read < len(values):
                read += len(consumer.poll(timeout=SECONDS))
            assert consumer.metrics()["throttle_ms"] > 0
    else:
        reader = confluent_kafka.Consumer({**common, **reading})
        reader.subscribe([topic])
        while read < len(values):
            message = reader.poll(SECONDS)
            assert message is not None and message.error() is None
            read += 1
        reader.close()
    assert read == len(values)
    assert time.monotonic() - began >= least_seconds


def connects(broker: EmbeddedBroker) -> bool:
    with RawClient(broker.bootstrap_servers) as client:
        try:
            client.call(MetadataRequest(topics=[]), 12, MetadataResponse)
        except ConnectionError:
            return False
        return True


def test_an_address_that_connects_too_often_is_refused(broker: EmbeddedBroker, owner: Admin) -> None:
    everyone, this = QuotaEntity(ip="<default>"), QuotaEntity(ip="127.0.0.1")
    owner.alter_client_quotas(everyone, {"connection_creation_rate": 5})
    assert [connects(broker) for _ in range(6)] == [True] * 5 + [False]
    owner.alter_client_quotas(this, {"connection_creation_rate": 1000})
    assert all(connects(broker) for _ in range(50)), "its own quota counts"
    assert owner.describe_client_quotas()[this] == {"connection_creation_rate": 1000.0}
    for entity in (everyone, this):
        owner.alter_client_quotas(entity, {"connection_creation_rate": None})


def test_connections_over_the_rate_of_the_broker_wait(tmp_path: Path) -> None:
    """Five may come at once, and ten more take two seconds; none is refused."""
    settings = {"quota.window.num": 2, "max.connection.creation.rate": 5}
    with EmbeddedBroker(tmp_path, settings=settings) as started:
        began = time.monotonic()
        assert all(connects(started) for _ in range(15))
        assert time.monotonic() - began >= 1


def test_quotas_survive_a_restart(tmp_path: Path, client_id: str) -> None:
    entity = QuotaEntity(user="<default>", client_id=client_id)
    with EmbeddedBroker(tmp_path) as started:
        with Admin(bootstrap_servers=started.bootstrap_servers) as admin:
            admin.alter_client_quotas(entity, {"producer_byte_rate": 7})
        started.kill()
        started.start()
        with Admin(bootstrap_servers=started.bootstrap_servers) as admin:
            assert admin.describe_client_quotas() == {entity: {"producer_byte_rate": 7.0}}


def test_the_command_line(broker: EmbeddedBroker, client_id: str) -> None:
    cli = Cli(broker.bootstrap_servers)
    cli.ok("quota", "set", "--user", client_id, "--client-id", "<default>", "--producer-byte-rate", "1000000")
    cli.ok("quota", "set", "--user", client_id, "--client-id", "<default>", "--request-percentage", "12.5")
    (found,) = [each for each in cli.ok("quota", "list", "--json").json if each["user"] == client_id]
    assert found == {
        "user": client_id,
        "client_id": "<default>",
        "ip": None,
        "producer_byte_rate": 1000000.0,
        "request_percentage": 12.5,
    }
    assert "1000000" in cli.ok("quota", "list").out
    assert "--user USER" in cli.fails("quota", "set", "--producer-byte-rate", "1", code=2)
    assert "no limit is given" in cli.fails("quota", "set", "--user", "ann", code=2)
    cli.ok("quota", "set", "--ip", "10.9.8.7", "--connection-creation-rate", "3")
    assert "10.9.8.7" in cli.ok("quota", "list").out
    cli.ok("quota", "delete", "--ip", "10.9.8.7")
    assert "10.9.8.7" not in cli.ok("quota", "list").out
    cli.ok("quota", "delete", "--user", client_id, "--client-id", "<default>")
    assert client_id not in cli.ok("quota", "list").out
