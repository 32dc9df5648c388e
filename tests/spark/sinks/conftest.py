"""What the tests of sinks share: a real PostgreSQL for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.postgresql import postgresql


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgresql() as url:
        yield url
