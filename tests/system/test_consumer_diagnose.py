"""``diagnose()``: why am I not getting records? Each situation in the words that help."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.errors import AuthenticationError, DeserializationError, NoOffsetForPartitionError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.wire.messages.api_versions import ApiVersionsRequest
from millstream.wire.messages.sasl import SaslHandshakeRequest
from tests.conftest import NewTopic
from tests.system.members import QUICK, Member, partitions_of, until_owns
from tests.system.secured import make_certificates, secured_broker
from tests.unit.client.fake_broker import FakeBroker, HangUp
from tests.waiting import SECONDS, until


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


def until_says(consumer: Consumer, *words: str) -> str:
    """Poll until the diagnosis has all these words."""

    def look() -> str | None:
        consumer.poll(0.05)
        said = consumer.diagnose()
        return said if all(each in said for each in words) else None

    try:
        return until(look, f"the diagnosis says {words}")
    except AssertionError:
        raise AssertionError(f"it says: {consumer.diagnose()}") from None


def test_no_broker(topic: str) -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe([topic])
        until_says(
            consumer,
            "No broker has answered yet at 127.0.0.1:1",
            "check the address",
            "Group g: the group's coordinator has not been found",
        )
        consumer.close(timeout=0.1)


def test_a_tls_port_and_a_client_without_tls(tmp_path: Path) -> None:
    with (
        secured_broker(make_certificates(tmp_path), "SSL://127.0.0.1:0") as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer,
    ):
        consumer.subscribe(["t"])
        with pytest.raises(AuthenticationError, match="it requires TLS on this port"):
            until_says(consumer, "this is raised before")
        until(
            lambda: "it requires TLS on this port: set security.protocol to SSL" in consumer.diagnose(),
            "the diagnosis names TLS",
        )
        consumer.close(timeout=0.1)


def test_a_peer_that_hangs_up() -> None:
    """Nothing tells what it is: the words name both mistakes."""
    with FakeBroker() as peer:
        peer.handlers[ApiVersionsRequest] = peer.handlers[SaslHandshakeRequest] = _hang_up
        with Consumer(bootstrap_servers=peer.address, group_id="g") as consumer:
            consumer.subscribe(["t"])
            until_says(consumer, "the connection was closed: not a Kafka broker, or it requires TLS")
            consumer.close(timeout=0.1)


def _hang_up(request: object) -> None:
    raise HangUp


def test_nothing_subscribed(bootstrap_servers: str, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        assert "Nothing is subscribed or assigned: call subscribe() or assign()." in consumer.diagnose()


def test_poll_was_not_called(bootstrap_servers: str, topic: str, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert "poll() must be called" in consumer.diagnose()


def test_paused(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.pause(TopicPartition(topic, 0))
        assert f"{topic}-0: paused: call resume()." in consumer.diagnose()
        for _ in range(2):
            producer.send(topic, b"v").result(SECONDS)
        consumer.resume(TopicPartition(topic, 0))
        assert until(lambda: consumer.poll(0.1, max_records=1), "the first record")
        until(lambda: "records are there from offset 1 on" in consumer.diagnose(), "the second is fetched")
        consumer.pause(TopicPartition(topic, 0))
        until_says(consumer, "paused: call resume(), records are waiting")


def test_caught_up(bootstrap_servers: str, producer: Producer, topic: str, group: str) -> None:
    producer.send(topic, b"v").result(SECONDS)
    with Consumer({**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1), "the record")
        said = until_says(consumer, f"{topic}-0: caught up: nothing was written after offset 1 for")
        assert f"Group {group}: the group is settled" in said


def test_records_are_there(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    for _ in range(2):
        producer.send(topic, b"v").result(SECONDS)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        until(lambda: consumer.poll(0.1, max_records=1), "the first record")
        until(
            lambda: "records are there from offset 1 on: call poll()" in consumer.diagnose(),
            "the second record is fetched",
        )


def test_no_partitions_for_this_member(bootstrap_servers: str, topic: str, group: str) -> None:
    with Member(bootstrap_servers, group, [topic], client_id="a") as member:
        until_owns(member, partitions_of(topic, 0))
        settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}
        with Consumer({**settings, "client_id": "b"}) as consumer:
            consumer.subscribe([topic])
            until_says(consumer, "this member has no partitions", "as many other members as partitions")


def test_no_topic_matches(bootstrap_servers: str, group: str) -> None:
    with Consumer({**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}) as consumer:
        consumer.subscribe(pattern=f"{group}-no-such-topic-.*")
        until_says(consumer, f"No topic matches the pattern '{group}-no-such-topic-.*' yet.")


def test_no_such_topic(bootstrap_servers: str, group: str) -> None:
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, allow_auto_create_topics=False
    ) as consumer:
        consumer.subscribe([f"{group}-missing"])
        said = until_says(consumer, f"Topic {group}-missing: The broker has no such topic")
        assert "check the name.\n" in said


def test_no_such_partition(bootstrap_servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 77)])
        until_says(consumer, f"{topic}-77: no broker leads the partition", "does not exist")


def test_waiting_for_fetch_min_bytes(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    producer.send(topic, b"v").result(SECONDS)
    settings: dict[str, Any] = {
        "fetch_min_bytes": 1000,
        "fetch_max_wait_ms": 30_000,
        "auto_offset_reset": "earliest",
    }
    with Consumer(bootstrap_servers=bootstrap_servers, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        until_says(consumer, "fetch_min_bytes (1000)", "fetch_max_wait_ms (30000)")


def test_the_group_waits_for_another_member(bootstrap_servers: str, topic: str, group: str) -> None:
    go_on = threading.Event()
    with Member(bootstrap_servers, group, [topic]) as busy:
        until_owns(busy, partitions_of(topic, 0))
        working = busy.begin(lambda _: go_on.wait(SECONDS))
        with Consumer({**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group}) as consumer:
            consumer.subscribe([topic])
            until_says(consumer, "the coordinator waits for the other members to join")
            go_on.set()
            working.result(SECONDS)
            until_says(consumer, "the group is settled")


def test_an_error_that_poll_raises(bootstrap_servers: str, admin: Admin, topic: str, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(SECONDS)
        until(lambda: "raises NoOffsetForPartitionError" in consumer.diagnose(), "the next raises it too")


def test_bad_bytes(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    producer.send(topic, b"bad").result(SECONDS)
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", value_deserializer="json"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(DeserializationError):
            consumer.poll(SECONDS)
        assert "records are there from offset 0 on" in consumer.diagnose()
