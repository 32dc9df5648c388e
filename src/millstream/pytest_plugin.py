"""Fixtures for tests that need Kafka: a broker for the session, and a fresh topic for each test.

They come with the package: a test only has to name them::

    def test_orders(millstream_broker, millstream_topic):
        producer = Producer(bootstrap_servers=millstream_broker.bootstrap_servers)
        producer.send(millstream_topic, b"hello").result()
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def millstream_broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker that lives as long as the test session, on a free port of this machine."""
    from millstream.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def millstream_topic(millstream_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, named after the test, and deleted after it."""
    from millstream.admin import Admin

    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200] + "-" + uuid.uuid4().hex[:8]
    with Admin(bootstrap_servers=millstream_broker.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=1)
        yield name
        admin.delete_topics([name])
