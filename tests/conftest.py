"""What all tests share: the address of a broker."""

from __future__ import annotations

import pytest

from millstream.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def bootstrap_servers(millstream_broker: EmbeddedBroker) -> str:
    """Where the broker of this session listens."""
    return millstream_broker.bootstrap_servers
