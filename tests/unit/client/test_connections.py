"""Connections to scripted brokers: versions first, then requests; silence, garbage, brokers that are gone."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any

import pytest

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.connections import Channel
from millstream.config import AdminConfig
from millstream.errors import (
    ErrorCode,
    MillstreamError,
    NetworkError,
    NoBrokersAvailableError,
    UnsupportedVersionError,
)
from millstream.wire.frames import encode_response
from millstream.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from millstream.wire.messages.metadata import MetadataRequest
from tests.unit.client.fake_broker import FakeBroker, HangUp, all_versions
from tests.unit.client.sending import client_of, no_groups, send
from tests.waiting import SECONDS, until


def test_versions_come_first_and_say_who_asks(broker: FakeBroker) -> None:
    with client_of(broker, client_id="me") as client:
        send(client).result(SECONDS)
    (first, hello), (second, _) = broker.requests[:2]
    assert isinstance(hello, ApiVersionsRequest)
    assert (hello.client_software_name, first.client_id) == ("millstream", "me")
    assert hello.client_software_version
    assert second.version == ListGroupsRequest.versions[1]


def test_an_old_broker_is_asked_again_in_its_version(broker: FakeBroker) -> None:
    asked: list[int] = []

    def versions(request: Any) -> Any:
        header = broker.requests[-1][0]
        asked.append(header.version)
        if header.version > 2:
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
            )
            return b"".join(encode_response(refusal, 0, header.correlation_id))
        return all_versions(ListGroups=1)

    broker.handlers[ApiVersionsRequest] = versions
    with client_of(broker) as client:
        send(client).result(SECONDS)
    assert asked == [4, 2]
    assert broker.requests[-1][0].version == 1


def test_an_api_that_the_broker_lacks(broker: FakeBroker) -> None:
    broker.handlers[ApiVersionsRequest] = lambda request: ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=3, min_version=0, max_version=9)]
    )
    with client_of(broker) as client:
        with pytest.raises(
            UnsupportedVersionError, match=f"127.0.0.1:{broker.port} does not have the API ListGroups"
        ):
            send(client).result(SECONDS)
        # The connection is still good for what the broker does speak.
        BlockingCalls(client).refresh_metadata(None, Deadline(SECONDS))
    assert broker.connections == 1


def test_requests_before_the_connection_is_there_wait_for_it(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        outcomes = [send(client) for _ in range(20)]
        assert all(outcome.result(SECONDS).groups == [] for outcome in outcomes)
        assert client.metrics.requests_sent == 20
    assert broker.connections == 1


def test_at_most_so_many_in_flight() -> None:
    release = threading.Event()

    def slowly(request: Any) -> ListGroupsResponse:
        release.wait(SECONDS)
        return no_groups()

    with FakeBroker() as broker:
        broker.handlers[ListGroupsRequest] = slowly
        config = AdminConfig.from_settings({"bootstrap_servers": broker.address})
        client = Client(config, max_in_flight=2)
        BlockingCalls(client).refresh_metadata((), Deadline(SECONDS))
        assert client.io.run(lambda: client.has_room(1))
        outcomes = [send(client) for _ in range(5)]
        until(lambda: client.metrics.requests_sent >= 3, "two more requests were sent")
        assert not client.io.run(lambda: client.has_room(1))
        assert client.metrics.requests_sent == 3  # metadata, and two of five
        release.set()
        for outcome in outcomes:
            outcome.result(SECONDS)
        assert client.close(SECONDS)


def test_a_request_without_an_answer_in_time_breaks_the_connection(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        send(client).result(SECONDS)  # connected: the times below are for answers alone
        broker.handlers[ListGroupsRequest] = lambda request: None
        late, behind = send(client, timeout_ms=50), send(client, timeout_ms=60_000)
        with pytest.raises(NetworkError, match="did not answer ListGroups"):
            late.result(SECONDS)
        # Answers come in order: nothing behind the lost one can be trusted to come.
        with pytest.raises(NetworkError):
            behind.result(SECONDS)
        broker.handlers[ListGroupsRequest] = lambda request: no_groups()
        send(client).result(SECONDS)
        assert client.metrics.requests_timed_out == 1
    assert broker.connections == 2


def test_a_broker_that_hangs_up(broker: FakeBroker) -> None:
    def hang_up(request: Any) -> None:
        raise HangUp

    broker.handlers[ListGroupsRequest] = hang_up
    with client_of(broker) as client:
        with pytest.raises(NetworkError):
            send(client).result(SECONDS)
        broker.handlers[ListGroupsRequest] = lambda request: no_groups()
        send(client).result(SECONDS)


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(struct.pack(">ii", 4, 999), id="another correlation id"),
        pytest.param(struct.pack(">iih", 6, 2, 0), id="too short"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="not kafka at all"),
    ],
)
def test_garbage_breaks_the_connection_and_nothing_else(broker: FakeBroker, garbage: bytes) -> None:
    broker.handlers[ListGroupsRequest] = lambda request: garbage
    with client_of(broker) as client:
        with pytest.raises(MillstreamError):
            send(client, timeout_ms=2_000).result(SECONDS)
        broker.handlers[ListGroupsRequest] = lambda request: no_groups()
        send(client).result(SECONDS)


def test_a_server_that_never_speaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = AdminConfig.from_settings(
            {"bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}", "request_timeout_ms": 50}
        )
        client = Client(config)
        with pytest.raises(NetworkError):
            send(client, timeout_ms=5_000).result(SECONDS)
        assert client.close(SECONDS)


def test_idle_connections_are_closed_and_opened_again(broker: FakeBroker) -> None:
    with client_of(broker, connections_max_idle_ms=50) as client:
        send(client).result(SECONDS)
        until(lambda: client.metrics.connections_closed == 1, "the idle connection was closed")
        send(client).result(SECONDS)
    assert broker.connections == 2


def test_the_coordinator_has_a_connection_of_its_own(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        BlockingCalls(client).refresh_metadata((), Deadline(SECONDS))
        send(client, 1).result(SECONDS)
        assert broker.connections == 1, "the bootstrap connection is the broker's own"
        send(client, 1, channel=Channel.COORDINATOR).result(SECONDS)
    assert broker.connections == 2


def test_throttled_requests_wait_on_our_side(broker: FakeBroker) -> None:
    broker.handlers[ListGroupsRequest] = lambda request: no_groups(throttle_ms=100)
    with client_of(broker) as client:
        started = time.monotonic()
        send(client).result(SECONDS)
        send(client).result(SECONDS)
        assert time.monotonic() - started >= 0.09
        assert client.metrics.throttle_ms == 200


def test_unknown_brokers_fail_and_ask_for_metadata(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        with pytest.raises(NetworkError, match="broker 9 is not known"):
            send(client, 9).result(SECONDS)
        until(lambda: bool(broker.received(MetadataRequest)), "metadata was asked for")


def test_bootstrap_again_when_all_known_brokers_are_gone() -> None:
    with FakeBroker(node_id=1) as first, FakeBroker(node_id=2) as second, client_of(first, second) as client:
        calls = BlockingCalls(client)
        first.peers = second.peers = [first]
        calls.refresh_metadata((), Deadline(SECONDS))
        assert set(client.cluster.brokers) == {1}
        second.peers = [second]
        first.close()
        cluster = calls.refresh_metadata((), Deadline(SECONDS))
        assert set(cluster.brokers) == {2}


def test_back_off_grows_while_nobody_answers() -> None:
    with socket.socket() as unused:  # bound but not listening: nobody else can listen there
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        config = AdminConfig.from_settings(
            {
                "bootstrap_servers": address,
                "reconnect_backoff_ms": 20,
                "reconnect_backoff_max_ms": 500,
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 1,
            }
        )
        began = time.monotonic()
        client = Client(config)
        with pytest.raises(
            NoBrokersAvailableError, match=f"no broker answered at {address} within 0.6 seconds"
        ):
            BlockingCalls(client).refresh_metadata((), Deadline(0.6))
        until(lambda: client.metrics.connections_failed >= 4, "it goes on trying")
        failed, took_s = client.metrics.connections_failed, time.monotonic() - began
        assert client.close(SECONDS)
    # 20, 40, 80, 160, 320, 500 ms, each a fifth less at the least: a handful of attempts, not hundreds.
    earliest_s = accumulate(0.8 * min(0.02 * 2**failures, 0.5) for failures in range(failed))
    assert failed <= 1 + sum(each <= took_s for each in earliest_s)


@contextmanager
def silent_address(port: int) -> Iterator[str]:
    """An address whose packets are dropped: a listener there has a full backlog."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.2", port))
        listener.listen(0)
        for _ in range(3):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.2", port))
        yield "127.0.0.2"


def test_an_address_that_drops_packets_gives_the_next_its_turn(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_address(broker.port) as silent:
        resolved: list[str] = []

        def both(host: str, port: int, *more: Any, **options: Any) -> list[Any]:
            if threading.current_thread().name != "millstream-listener-check":
                resolved.append(host)
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (silent, "127.0.0.1")
            ]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        timeouts = {"socket_connection_setup_timeout_ms": 50, "socket_connection_setup_timeout_max_ms": 50}
        with client_of(broker, **timeouts) as client:
            until(lambda: send(client).result(SECONDS), "an answer", 20, or_error=MillstreamError)
    assert len(resolved) == 1, "the second attempt continues with the second address"
