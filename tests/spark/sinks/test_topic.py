"""A topic passes the suite of all sinks, as far as a topic can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.sinks.conformance import SinkConformance
from tests.spark.sinks.topic_site import TopicSite


class TestTopic(SinkConformance):
    can_replace = False
    can_evolve = False

    @pytest.fixture
    def site(self, bootstrap_servers: str) -> Iterator[TopicSite]:
        site = TopicSite(bootstrap_servers)
        yield site
        site.close()
