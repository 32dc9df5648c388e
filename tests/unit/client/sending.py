"""A client of scripted brokers, and the smallest request to send with it: ListGroups."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from millstream.client.client import DEFAULT_MAX_IN_FLIGHT, Client
from millstream.config import AdminConfig
from millstream.wire.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import SECONDS


@contextmanager
def client_of(
    *brokers: FakeBroker, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT, **settings: object
) -> Iterator[Client]:
    """A client that is quick to try again, and closed in the end."""
    servers = ",".join(broker.address for broker in brokers)
    config = AdminConfig.from_settings(
        {"bootstrap_servers": servers, "reconnect_backoff_ms": 5, "retry_backoff_ms": 5, **settings}
    )
    client = Client(config, max_in_flight=max_in_flight)
    try:
        yield client
    except BaseException:
        client.close(SECONDS)
        raise
    assert client.close(SECONDS), "the I/O thread has not ended"


def no_groups(throttle_ms: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=0, groups=[], throttle_time_ms=throttle_ms)


def list_groups(version: int) -> ListGroupsRequest:
    return ListGroupsRequest()


def send(client: Client, node_id: int | None = None, **options: Any) -> Future[Any]:
    """Send ListGroups on the I/O thread, once; the future is the response or the error."""
    outcome: Future[Any] = Future()
    client.submit(
        lambda: client.send(
            node_id, ListGroupsRequest, list_groups, outcome.set_result, outcome.set_exception, **options
        )
    )
    return outcome
