"""Records arrive once and in order, whatever happens to the network and the broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import MillstreamError, MillstreamTimeoutError
from millstream.producer import Producer
from millstream.producer.compiled_encoder import background as background_encoder
from tests.system.producing import make_topic
from tests.system.proxy import proxied_broker
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


# -- acknowledgements


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap_servers: str, topic: str, acks: int | str) -> None:
    # With acks=0 nothing is sent again, and Kafka tells of a topic before it accepts records: a read waits
    # until each partition is led.
    assert read_topic(bootstrap_servers, topic) == [[], [], []]
    with Producer(bootstrap_servers=bootstrap_servers, acks=acks) as producer:
        placed = [producer.send(topic, b"%d" % n, partition=0).result(SECONDS) for n in range(10)]
    assert [one.offset for one in placed] == ([-1] * 10 if acks == 0 else list(range(10)))
    if acks == 0:  # it says nothing about when the broker writes the records
        until(lambda: len(read_topic(bootstrap_servers, topic)[0]) == 10, "all ten records")
    assert [record.value for record in read_topic(bootstrap_servers, topic)[0]] == [
        b"%d" % n for n in range(10)
    ]


def test_without_idempotence_no_id_is_asked_for(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, enable_idempotence=False) as producer:
        producer.send(topic, b"v").result(SECONDS)
        assert "request_latency_ms.InitProducerId.count" not in producer.metrics()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, b"v").result(SECONDS)
        assert producer.metrics()["request_latency_ms.InitProducerId.count"] >= 1


def test_delivery_times_out(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            request_timeout_ms=200,
            delivery_timeout_ms=500,
            linger_ms=0,
        )
        # The topic is made by it, which may take longer than that on a busy machine.
        until(lambda: producer.send("t", b"v").exception(SECONDS) is None, "a first record")
        broker.kill()
        with pytest.raises(MillstreamTimeoutError, match=r"1 record for t-0 could not be delivered.*\(500\)"):
            producer.send("t", b"v").result(SECONDS)
        # It recovers by itself once the broker is back.
        broker.start()
        until(lambda: producer.send("t", b"again").exception(SECONDS) is None, "the producer has recovered")
        producer.close(SECONDS)
        values = [record.value for record in read_topic(broker.bootstrap_servers, "t")[0]]
    assert values[0] == b"v"
    assert values[-1] == b"again"


# -- trouble


def test_every_record_once_through_a_network_that_breaks(tmp_path: Path) -> None:
    futures: list[Any] = []
    with proxied_broker(tmp_path) as proxy:
        with Producer(
            bootstrap_servers=proxy.address,
            batch_size=500,
            linger_ms=1,
            reconnect_backoff_ms=1,
            retry_backoff_ms=1,
        ) as producer:
            producer.send("t", b"first").result(SECONDS)

            def send_more() -> bool:
                """Until something was lost on the way: a network may break between two batches."""
                start = len(futures)
                futures.extend(producer.send("t", b"%d" % n) for n in range(start, start + 3000))
                return producer.metrics()["batch_retries"] > 0

            with proxy.breaking():
                until(send_more, "a batch was sent again")
                with contextlib.suppress(MillstreamTimeoutError):
                    producer.flush(5)
            producer.flush(SECONDS)
            assert producer.metrics()["batch_retries"] > 0
        (records,) = read_topic(proxy.address, "t")
    assert [record.value for record in records] == [b"first", *(b"%d" % n for n in range(len(futures)))]
    offsets = [future.result(0).offset for future in futures]
    # A broker that recognises a batch without remembering its place gives no offset, and rightly so.
    assert all(offset in (-1, n + 1) for n, offset in enumerate(offsets))


def test_every_record_once_over_crashes_of_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        servers = broker.bootstrap_servers
        futures = []
        with Producer(
            bootstrap_servers=servers, batch_size=2000, linger_ms=1, retry_backoff_ms=10
        ) as producer:
            producer.send("t", b"first").result(SECONDS)
            for crash in range(3):
                futures += [producer.send("t", b"%d" % n) for n in range(crash * 2000, crash * 2000 + 2000)]
                broker.kill()
                broker.start()
            producer.flush(SECONDS)
        (records,) = read_topic(servers, "t")
    assert [record.value for record in records] == [b"first", *(b"%d" % n for n in range(6000))]
    assert all(future.exception(0) is None for future in futures)


def test_records_deleted_under_an_idempotent_producer(producer: Producer, admin: Admin) -> None:
    name = make_topic(admin, 1)
    for n in range(3):
        producer.send(name, b"%d" % n).result(SECONDS)
    admin.delete_records({(name, 0): -1})  # type: ignore[dict-item]
    assert producer.send(name, b"after").result(SECONDS).offset == 3


def test_a_topic_made_anew_under_the_producer(producer: Producer, admin: Admin) -> None:
    name = make_topic(admin, 1)
    for n in range(5):
        producer.send(name, b"%d" % n).result(SECONDS)
    admin.delete_topics(name)
    admin.create_topic(name, 1)
    assert producer.send(name, b"anew").result(SECONDS).offset == 0


def test_a_batch_that_cannot_be_encoded_fails_alone(bootstrap_servers: str, admin: Admin) -> None:
    """The compiled encoder takes the batches of a request together."""
    name = make_topic(admin, 8)
    assert background_encoder.wait(SECONDS) is not None
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=10_000) as producer:
        producer.send(name, b"first", partition=0)
        producer.flush(SECONDS)
        futures = [producer.send(name, b"%d" % n, partition=n) for n in range(8)]
        (batch,) = (one for one in producer._driver.accumulator.incomplete if one.queue.partition == 3)
        batch.values[0] = 5  # type: ignore[call-overload]
        producer.flush(SECONDS)
        assert [future.exception(0) is None for future in futures] == [n != 3 for n in range(8)]
        with pytest.raises(MillstreamError, match=f"a batch for {name}-3 cannot be encoded"):
            futures[3].result(0)
