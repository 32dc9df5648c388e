"""Questions while a fetch waits for data, or a join for members: answers come in order on a connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.client import connections
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.connections import Channel
from millstream.client.link import LinkPhase
from millstream.client.targets import CoordinatorOf
from millstream.errors import NetworkError, UnsupportedVersionError
from millstream.wire.messages.api_versions import ApiVersionsRequest
from millstream.wire.messages.fetch import FetchRequest, FetchResponse
from millstream.wire.messages.group_admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.wire.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)
from millstream.wire.messages.metadata import MetadataRequest
from tests.unit.client import sending
from tests.unit.client.fake_broker import Answer, FakeBroker, HangUp, all_versions
from tests.waiting import SECONDS, until

TOPIC_ID = bytes(range(16))


class ParkingBroker(FakeBroker):
    """Keeps fetches until ``release`` is set, as a broker does that has no data."""

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.release = threading.Event()
        self.handlers[FetchRequest] = self._park
        self.handlers[ListGroupsRequest] = lambda request: ListGroupsResponse(error_code=0, groups=[])
        self.handlers[DescribeGroupsRequest] = lambda request: DescribeGroupsResponse(groups=[])
        self.handlers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=node_id, host="127.0.0.1", port=self.port)]
        )

    def _park(self, request: Any) -> Answer:
        self.release.wait()  # at the latest until the broker is closed
        return FetchResponse(responses=[])

    def close(self) -> None:
        self.release.set()
        super().close()


@pytest.fixture
def broker() -> Iterator[ParkingBroker]:
    with ParkingBroker() as fake:
        yield fake


@contextmanager
def client_of(*brokers: FakeBroker, **settings: Any) -> Iterator[Client]:
    """A client that knows its brokers, and is closed before they are."""
    with sending.client_of(*brokers, **settings) as client:
        BlockingCalls(client).refresh_metadata((), Deadline(SECONDS))
        yield client


def fetch(client: Client, broker: FakeBroker) -> Future[Any]:
    """Send a fetch, and wait until the broker has it."""
    before = len(broker.received(FetchRequest))
    outcome = send(client, broker.node_id, FetchRequest)
    until(lambda: len(broker.received(FetchRequest)) > before, "the fetch has arrived")
    return outcome


def send(
    client: Client,
    node_id: int | None,
    request_type: Any = ListGroupsRequest,
    request: Any = None,
    **options: Any,
) -> Future[Any]:
    outcome: Future[Any] = Future()

    def build(version: int) -> Any:
        if request_type is FetchRequest:
            return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[])
        return request or request_type()

    client.submit(
        lambda: client.send(
            node_id, request_type, build, outcome.set_result, outcome.set_exception, **options
        )
    )
    return outcome


@pytest.mark.parametrize("node_id", [1, None], ids=["to this broker", "to any"])
def test_a_question_goes_past_a_fetch(broker: ParkingBroker, node_id: int | None) -> None:
    with client_of(broker) as client:
        fetched = fetch(client, broker)
        send(client, node_id).result(SECONDS)
        assert not fetched.done(), "it is still waiting for data"
        send(client, node_id).result(SECONDS)
        assert broker.connections == 2, "one for all questions"
        broker.release.set()
        fetched.result(SECONDS)


def test_offsets_are_fetched_past_a_join_but_not_past_a_commit(broker: ParkingBroker) -> None:
    joined = JoinGroupResponse(error_code=0, protocol_name="range", leader="m", member_id="m", members=[])
    broker.handlers[JoinGroupRequest] = lambda request: joined if broker.release.wait() else None
    broker.handlers[OffsetFetchRequest] = lambda request: OffsetFetchResponse()
    broker.handlers[OffsetCommitRequest] = lambda request: OffsetCommitResponse(topics=[])
    with client_of(broker) as client:

        def ask(request: Any) -> Future[Any]:
            return send(client, 1, type(request), request=request, channel=Channel.COORDINATOR)

        join = ask(
            JoinGroupRequest(
                group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
            )
        )
        until(lambda: broker.received(JoinGroupRequest), "the join has arrived")
        ask(OffsetFetchRequest()).result(20)
        assert not join.done(), "it waits for other members"
        commit = ask(OffsetCommitRequest(group_id="g", member_id="m", topics=[]))
        behind = ask(OffsetFetchRequest())
        send(client, 1).result(SECONDS)
        assert not behind.done(), "it must see what is committed"
        broker.release.set()
        for outcome in (join, commit, behind):
            outcome.result(SECONDS)
        order = [
            type(request) for _, request in broker.requests if not isinstance(request, ListGroupsRequest)
        ]
        assert order[-2:] == [OffsetCommitRequest, OffsetFetchRequest]


def test_metadata_and_coordinators_are_found_past_a_fetch(broker: ParkingBroker) -> None:
    with client_of(broker) as client:
        fetched = fetch(client, broker)
        calls = BlockingCalls(client)
        calls.refresh_metadata(["t"], Deadline(SECONDS))
        calls.call(
            CoordinatorOf("g"),
            DescribeGroupsResponse,
            lambda version: DescribeGroupsRequest(groups=["g"]),
            Deadline(SECONDS),
        )
        assert not fetched.done()
        assert broker.connections == 3, "fetches, questions, and the coordinator's"


def test_no_connection_is_made_while_nothing_is_fetched(broker: ParkingBroker) -> None:
    broker.release.set()
    with client_of(broker) as client:
        for _ in range(3):
            fetch(client, broker).result(SECONDS)
            send(client, 1).result(SECONDS)
            send(client, None).result(SECONDS)
    assert broker.connections == 1


def test_fetches_stay_on_their_connection(broker: ParkingBroker) -> None:
    with client_of(broker) as client:
        first = fetch(client, broker)
        second = send(client, 1, FetchRequest)
        broker.release.set()
        first.result(SECONDS)
        second.result(SECONDS)
    assert broker.connections == 1


def test_a_fetch_that_failed_is_not_under_way(broker: ParkingBroker) -> None:
    """However it ended: refused before it left, out of time in the queue or at the broker, or cut off."""
    with client_of(broker, max_in_flight=1) as client:
        link = client.io.run(lambda: client.connections.link(1))
        with pytest.raises(UnsupportedVersionError):
            send(client, 1, FetchRequest, max_version=-1).result(SECONDS)
        assert not link.requests.has_fetch
        parked = fetch(client, broker)
        with pytest.raises(NetworkError, match="no connection to send"):
            send(client, 1, FetchRequest, timeout_ms=20).result(SECONDS)
        assert link.requests.has_fetch
        broker.drop_connections()
        with pytest.raises(NetworkError):
            parked.result(SECONDS)
        assert not link.requests.has_fetch
        send(client, 1).result(SECONDS)  # connected anew: the time below is for the answer alone
        with pytest.raises(NetworkError, match="did not answer Fetch"):
            send(client, 1, FetchRequest, timeout_ms=100).result(SECONDS)
        assert not link.requests.has_fetch
        broker.release.set()
        fetch(client, broker).result(SECONDS)
        assert not link.requests.has_fetch


def test_what_can_wait_does(broker: ParkingBroker) -> None:
    """Metadata that have grown old: nobody waits for them, so they are not worth a connection."""
    with client_of(broker, metadata_max_age_ms=200) as client:
        fetched = fetch(client, broker)
        until(
            lambda: client.metadata._in_flight is not None, "metadata are requested, and wait for the fetch"
        )
        assert not fetched.done()
        broker.release.set()
        until(lambda: client.metrics.metadata_refreshes >= 2, "they came")
    assert broker.connections == 1


def test_another_broker_without_a_fetch_is_asked() -> None:
    with ParkingBroker(1) as first, ParkingBroker(2) as second:
        first.peers = second.peers = [first, second]
        with client_of(first) as client:
            send(client, 2).result(SECONDS)  # ready from now on
            fetch(client, first)
            for _ in range(5):
                send(client, None).result(SECONDS)
            assert len(second.received(ListGroupsRequest)) == 6
            assert (first.connections, second.connections) == (1, 1)


def test_the_aside_connection_is_used_again_where_all_are_fetched_from() -> None:
    with ParkingBroker(1) as first, ParkingBroker(2) as second:
        first.peers = second.peers = [first, second]
        with client_of(first) as client:
            fetch(client, first)
            fetch(client, second)
            for _ in range(8):
                send(client, None).result(SECONDS)
            assert first.connections + second.connections == 3


def test_questions_leave_before_fetches_when_a_connection_becomes_ready(broker: ParkingBroker) -> None:
    """After a broker was away, all wait for the connection: a fetch that came first is not in the way."""
    greeted = threading.Event()

    def slowly(request: Any) -> Answer:
        assert greeted.wait(SECONDS)
        return all_versions()

    with client_of(broker) as client:
        broker.handlers[ApiVersionsRequest] = slowly
        broker.drop_connections()
        until(lambda: client.metrics.connections_closed == 1, "the connection was lost")
        fetched = send(client, 1, FetchRequest)
        asked = send(client, 1)
        client.io.run(lambda: None)  # both are in the queue
        greeted.set()
        asked.result(SECONDS)
        assert not fetched.done()
    assert broker.connections == 2


def test_where_no_second_connection_can_be_had_questions_wait(broker: ParkingBroker) -> None:
    """A broker may limit connections (max.connections.per.ip): then it is as if there were none aside."""
    with client_of(broker) as client:
        fetched = fetch(client, broker)

        def hang_up(request: Any) -> Answer:
            raise HangUp

        broker.handlers[ApiVersionsRequest] = hang_up
        with pytest.raises(NetworkError):
            send(client, 1).result(SECONDS)
        made = broker.connections
        again = send(client, 1)
        client.io.run(lambda: None)
        assert not again.done()
        broker.release.set()
        fetched.result(SECONDS)
        again.result(SECONDS)
        assert broker.connections == made, "it was not tried again at once"


def test_the_aside_connection_is_closed_soon(broker: ParkingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ASIDE_IDLE_MS", 50)
    with client_of(broker) as client:
        fetched = fetch(client, broker)
        send(client, 1).result(SECONDS)
        until(lambda: client.metrics.connections_closed == 1, "it was closed")
        aside = client.io.run(lambda: client.connections.find(1, Channel.ASIDE))
        assert aside is not None
        assert aside.phase is LinkPhase.IDLE
        assert not fetched.done(), "the other one is in use"
        send(client, 1).result(SECONDS)
        assert broker.connections == 3


def test_a_long_time_for_idle_connections_is_kept_by_the_others(broker: ParkingBroker) -> None:
    with client_of(broker, connections_max_idle_ms=-1) as client:
        assert client.connections._aside_settings.max_idle_ms == -1, "never is never"
    with client_of(broker, connections_max_idle_ms=20) as client:
        assert client.connections._aside_settings.max_idle_ms == 20


def test_metadata_are_asked_past_a_fetch_after_a_failure(broker: ParkingBroker) -> None:
    """Somebody who does not answer may have lost what it led: finding out is urgent."""
    with client_of(broker) as client:
        fetch(client, broker)
        before = len(broker.received(MetadataRequest))
        client.submit(client.metadata.refresh_tracked)
        until(lambda: len(broker.received(MetadataRequest)) > before, "metadata were asked for")
        assert broker.connections == 2
