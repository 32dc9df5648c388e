"""pytest fixtures for tests that need Kafka: a broker per session, a topic per test, and a waiting reader.

They are installed with the package: a test only has to name them::

    def test_orders(millstream_broker, millstream_topic, millstream_records):
        with Producer(bootstrap_servers=millstream_broker.bootstrap_servers) as producer:
            producer.send(millstream_topic, b"hello")
        assert [record.value for record in millstream_records(millstream_topic, 1)] == [b"hello"]
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millstream.consumer import Record
    from millstream.embedded import EmbeddedBroker


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "millstream_topic(partitions=1, configs=None): the topic that the fixture creates",
    )


@pytest.fixture(scope="session")
def millstream_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker for the test session, on a free port of this machine."""
    from millstream.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def millstream_secure_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker with TLS, a login and ACLs, for the test session.

    ``millstream_secure_broker.client_settings`` has what a client needs to log in as ``admin``; other users
    and their ACLs are made with ``Admin``, or with any other Kafka client.
    """
    from millstream.embedded import EmbeddedBroker

    with EmbeddedBroker(security=True) as broker:
        yield broker


@pytest.fixture
def millstream_topic(millstream_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic, named after the test, and deleted after it.

    It has one partition, or what ``@pytest.mark.millstream_topic(partitions=4, configs={…})`` sets.
    """
    from millstream.admin import Admin

    marker = request.node.get_closest_marker("millstream_topic")
    shape: dict[str, Any] = {"partitions": 1, **(marker.kwargs if marker else {})}
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200] + "-" + uuid.uuid4().hex[:8]
    with Admin(bootstrap_servers=millstream_broker.bootstrap_servers) as admin:
        admin.create_topic(name, **shape)
        yield name
        admin.delete_topics([name])


@pytest.fixture
def millstream_records(millstream_broker: EmbeddedBroker) -> Callable[..., list[Record]]:
    """Wait for records: ``millstream_records(topic, count, timeout=10.0, **consumer_settings)``.

    Reads the topic from its beginning, without a group, until ``count`` records were read, and returns all
    that were read, by partition and offset. After ``timeout`` seconds the test fails, with the last records
    that were read and the consumer's diagnosis.
    """

    def wait(topic: str, count: int, *, timeout: float = 10.0, **settings: Any) -> list[Record]:
        __tracebackhide__ = True
        from millstream.consumer import Consumer

        deadline = time.monotonic() + timeout
        records: list[Record] = []
        with Consumer(
            bootstrap_servers=millstream_broker.bootstrap_servers, auto_offset_reset="earliest", **settings
        ) as consumer:
            consumer.assign(consumer.partitions_for(topic))
            while len(records) < count and (left := deadline - time.monotonic()) > 0:
                records += consumer.poll(timeout=left)
            if len(records) < count:
                pytest.fail(
                    f"{len(records)} of {count} records in {topic} after {timeout:g} s: "
                    f"{[record.value for record in records[-5:]]} are the last. {consumer.diagnose()}"
                )
        return sorted(records, key=lambda record: (record.partition, record.offset))

    return wait
