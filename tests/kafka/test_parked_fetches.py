"""A consumer whose fetch waits at the broker for data is answered at once when it asks for anything else.

The fetches here wait for longer than any call: what came behind one would fail. A proxy sees what is asked
for, and on how many connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.groups import HEARTBEAT, FindCoordinatorRequest
from millstream.wire.schema import Request
from tests.kafka import brokers
from tests.kafka.frame_proxy import FrameProxy
from tests.kafka.refusals import Refusal
from tests.waiting import SECONDS, until

WAIT_MS: Final = int(SECONDS * 1000) * 5


@pytest.fixture(scope="module", params=[brokers.EMBEDDED, brokers.APACHE_KAFKA])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with brokers.without_delay(request.param) as address:
        yield address


@pytest.fixture
def proxy(servers: str) -> Iterator[FrameProxy]:
    with FrameProxy(watches=True) as proxy:
        proxy.target = int(servers.rpartition(":")[2])
        yield proxy


@pytest.fixture
def partition(servers: str) -> Iterator[TopicPartition]:
    """Of a topic that is empty."""
    topic = f"parked-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        yield TopicPartition(topic, 0)
        admin.delete_topics(topic)


def consumer_of(proxy: FrameProxy, name: str, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=proxy.address, client_id=name, fetch_max_wait_ms=WAIT_MS, **settings)


def requests_of(proxy: FrameProxy, name: str, request_type: type[Request]) -> list[Request]:
    return [each.request for each in proxy.seen(name) if isinstance(each.request, request_type)]


def park_a_fetch(consumer: Consumer, proxy: FrameProxy, name: str) -> None:
    def is_parked() -> bool:
        assert not consumer.poll(0.05)
        return bool(requests_of(proxy, name, FetchRequest))

    until(is_parked, "a fetch waits for data")


def test_questions_are_answered(servers: str, proxy: FrameProxy, partition: TopicPartition) -> None:
    name = f"questions-{uuid.uuid4().hex}"
    with consumer_of(proxy, name, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])  # without a seek: a fetch from elsewhere could be parked already
        park_a_fetch(consumer, proxy, name)
        assert proxy.connections == 1
        assert consumer.end_offsets([partition], SECONDS) == {partition: 0}
        assert consumer.beginning_offsets([partition], SECONDS) == {partition: 0}
        assert consumer.offsets_for_times({partition: 0}, SECONDS) == {partition: None}
        assert partition.topic in consumer.topics(SECONDS)
        assert len(consumer.partitions_for(partition.topic, SECONDS) or ()) == 1
        consumer.seek_to_end(partition)
        assert consumer.position(partition, SECONDS) == 0
        assert proxy.connections == 2, "one more for all of these"
        with Producer(bootstrap_servers=servers) as producer:
            producer.send(partition.topic, b"x").result(SECONDS)
        until(lambda: len(consumer.poll(1)), "the fetch brings what was written")


def test_a_lost_coordinator_is_found_again(proxy: FrameProxy, partition: TopicPartition) -> None:
    name = f"coordinator-{uuid.uuid4().hex}"
    settings = {"group_id": name, "heartbeat_interval_ms": 50, "auto_offset_reset": "earliest"}
    with consumer_of(proxy, name, **settings) as consumer:
        consumer.subscribe([partition.topic])
        park_a_fetch(consumer, proxy, name)
        lookups = len(requests_of(proxy, name, FindCoordinatorRequest))
        refusal = proxy.refusal = Refusal(HEARTBEAT, ErrorCode.NOT_COORDINATOR, name)
        assert refusal.done.wait(SECONDS), "no heartbeat was refused"
        until(
            lambda: len(requests_of(proxy, name, FindCoordinatorRequest)) > lookups, "it was looked up again"
        )
        consumer.commit({partition: 0}, SECONDS)
        found = consumer.committed([partition], SECONDS)[partition]
        assert found is not None
        assert found.offset == 0
