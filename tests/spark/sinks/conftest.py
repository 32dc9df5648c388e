"""What the tests of sinks share: a real PostgreSQL and an S3 for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.sinks.s3 import S3, moto
from tests.system.postgresql import postgresql


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with moto() as server:
        yield server
