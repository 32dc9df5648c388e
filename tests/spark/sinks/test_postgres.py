"""PostgreSQL passes the suite of all sinks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.sinks.conformance import SinkConformance
from tests.spark.sinks.postgres_site import PostgresSite


class TestPostgres(SinkConformance):
    @pytest.fixture
    def site(self, postgres_url: str) -> Iterator[PostgresSite]:
        site = PostgresSite(postgres_url)
        yield site
        site.close()
