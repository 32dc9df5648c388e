"""The scripted broker that most tests of the client talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.wire.messages.group_admin import ListGroupsRequest
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.sending import no_groups


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.handlers[ListGroupsRequest] = lambda request: no_groups()
        yield fake
