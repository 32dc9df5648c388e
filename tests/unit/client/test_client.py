"""The client against scripted brokers: connections, time-outs, metadata and coordinators."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.client.blocking import AnyNode, BlockingCalls, CoordinatorOf, Deadline, Node
from millstream.client.client import Client
from millstream.client.connections import Channel
from millstream.config import AdminConfig
from millstream.errors import (
    ClosedError,
    ErrorCode,
    MillstreamError,
    MillstreamTimeoutError,
    MisuseError,
    NetworkError,
    NoBrokersAvailableError,
    UnsupportedVersionError,
)
from millstream.wire.frames import encode_response
from millstream.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from millstream.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.unit.client.fake_broker import FakeBroker, HangUp, all_versions
from tests.waiting import SECONDS, until


@contextmanager
def client_of(*brokers: FakeBroker, **settings: object) -> Iterator[Client]:
    servers = ",".join(broker.address for broker in brokers)
    config = AdminConfig.from_settings(
        {"bootstrap_servers": servers, "reconnect_backoff_ms": 5, "retry_backoff_ms": 5, **settings}
    )
    client = Client(config)
    try:
        yield client
    finally:
        assert client.close(SECONDS), "the I/O thread has not ended"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.handlers[ListGroupsRequest] = lambda request: no_groups()
        yield fake


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


# -- versions


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


# -- connections


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
    broker.handlers[ListGroupsRequest] = lambda request: None
    with client_of(broker) as client:
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
    with client_of(broker, request_timeout_ms=2_000) as client:
        with pytest.raises(MillstreamError):
            send(client).result(SECONDS)
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    config = AdminConfig.from_settings(
        {
            "bootstrap_servers": f"127.0.0.1:{port}",
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 500,
        }
    )
    client = Client(config)
    with pytest.raises(
        NoBrokersAvailableError, match=f"no broker answered at 127.0.0.1:{port} within 0.6 seconds"
    ):
        BlockingCalls(client).refresh_metadata((), Deadline(0.6))
    # 20, 40, 80, 160, 320 ms with jitter: a handful of attempts, not hundreds.
    assert 3 <= client.metrics.connections_failed <= 8
    assert client.close(SECONDS)


# -- metadata


def test_many_askers_share_one_request(broker: FakeBroker) -> None:
    gate = threading.Event()

    def slowly(request: Any) -> MetadataResponse:
        gate.wait(SECONDS)
        return broker.metadata()

    broker.handlers[MetadataRequest] = slowly
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        threads = [
            threading.Thread(target=calls.refresh_metadata, args=([f"t{n}"], Deadline(SECONDS)))
            for n in range(10)
        ]
        for thread in threads:
            thread.start()
        until(lambda: len(client.metadata._asks) + len(client.metadata._asked or ()) == 10, "all have asked")
        gate.set()
        for thread in threads:
            thread.join(SECONDS)
    asked = broker.received(MetadataRequest)
    assert len(asked) <= 3
    names = {topic.name for request in asked for topic in request.topics}  # type: ignore[attr-defined]
    assert names == {f"t{n}" for n in range(10)}


def test_metadata_are_refreshed_by_age(broker: FakeBroker) -> None:
    with client_of(broker, metadata_max_age_ms=30) as client:
        BlockingCalls(client).refresh_metadata((), Deadline(SECONDS))
        until(lambda: client.metadata.refreshes >= 4, "metadata were refreshed by age")


def test_metadata_are_asked_of_another_broker_when_one_fails() -> None:
    with FakeBroker(1) as first, FakeBroker(2) as second, client_of(first, second) as client:
        first.peers = second.peers = [first, second]

        def hang_up(request: Any) -> None:
            raise HangUp

        calls = BlockingCalls(client)
        calls.refresh_metadata((), Deadline(SECONDS))
        first.handlers[MetadataRequest] = hang_up
        for _ in range(5):
            calls.refresh_metadata((), Deadline(SECONDS))


# -- blocking calls


def test_errors_that_may_pass_are_repeated(broker: FakeBroker) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(request: Any) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=codes.pop(0), groups=[])

    def check(response: ListGroupsResponse) -> None:
        from millstream.errors import raise_for_code

        raise_for_code(response.error_code)

    broker.handlers[ListGroupsRequest] = answer
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        calls.call(AnyNode(), ListGroupsResponse, list_groups, Deadline(SECONDS), check)
    assert not codes


def test_a_deadline_ends_repeating_and_keeps_the_reason(broker: FakeBroker) -> None:
    def check(response: ListGroupsResponse) -> None:
        raise NetworkError("it is raining")

    with (
        client_of(broker) as client,
        pytest.raises(MillstreamTimeoutError, match=r"0.2 seconds: it is raining"),
    ):
        BlockingCalls(client).call(AnyNode(), ListGroupsResponse, list_groups, Deadline(0.2), check)


def find(node_id: int, port: int, code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=node_id, host="127.0.0.1", port=port, error_code=code)]
    )


def test_coordinators_are_looked_up_once_and_again_when_wrong() -> None:
    with FakeBroker(1) as first, FakeBroker(2) as second, client_of(first) as client:
        first.handlers[FindCoordinatorRequest] = lambda request: find(2, second.port)
        second.handlers[ListGroupsRequest] = lambda request: no_groups()
        calls = BlockingCalls(client)
        for _ in range(3):
            calls.call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
        assert len(first.received(FindCoordinatorRequest)) == 1
        # The coordinator moves to the first broker; the second is gone.
        first.handlers[ListGroupsRequest] = lambda request: no_groups()
        first.handlers[FindCoordinatorRequest] = lambda request: find(1, first.port)
        second.close()
        calls.call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
        assert client.coordinators.known("g") == 1


def test_a_coordinator_that_is_not_there_yet(broker: FakeBroker) -> None:
    answers = [find(-1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE), find(1, broker.port)]
    broker.handlers[FindCoordinatorRequest] = lambda request: answers.pop(0)
    with client_of(broker) as client:
        BlockingCalls(client).call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
    assert not answers


def test_a_node_by_its_id(broker: FakeBroker) -> None:
    broker.handlers[DescribeClusterRequest] = lambda request: DescribeClusterResponse(
        error_code=0, cluster_id="fake", brokers=[]
    )

    def build(version: int) -> DescribeClusterRequest:
        return DescribeClusterRequest(include_cluster_authorized_operations=False)

    with client_of(broker) as client:
        calls = BlockingCalls(client)
        # Not known yet: the call refreshes the metadata, and finds it then.
        response = calls.call(Node(1), DescribeClusterResponse, build, Deadline(SECONDS))
        assert response.cluster_id == "fake"


# -- cores


class CountingCore:
    """Wants to be woken at a time, and counts."""

    def __init__(self) -> None:
        self.polls = 0
        self.wake_ms: int | None = None
        self.fails = False

    def poll(self, now_ms: int) -> None:
        self.polls += 1
        if self.fails:
            raise RuntimeError("a bug")
        if self.wake_ms is not None and now_ms >= self.wake_ms:
            self.wake_ms = None

    def next_wake_ms(self, now_ms: int) -> int | None:
        return self.wake_ms


def test_cores_are_polled_on_events_on_wakes_and_in_time(broker: FakeBroker) -> None:
    core = CountingCore()
    with client_of(broker) as client:
        client.submit(lambda: client.attach(core))
        until(lambda: core.polls >= 1, "it was polled when attached")
        before = core.polls
        send(client).result(SECONDS)
        until(lambda: core.polls > before, "it was polled after an answer")
        core.wake_ms = client.now_ms() + 30
        client.wake()
        until(lambda: core.wake_ms is None, "it was polled in time")


def test_a_core_that_fails_does_not_stop_the_others(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = CountingCore(), CountingCore()
    bad.fails = True
    with client_of(broker) as client:
        client.submit(lambda: client.attach(bad))
        client.submit(lambda: client.attach(good))
        until(lambda: good.polls >= 1, "the good one is polled")
        send(client).result(SECONDS)
    assert "a bug" in caplog.text


# -- the end


def test_closing_fails_what_waits_and_refuses_the_rest(broker: FakeBroker) -> None:
    broker.handlers[ListGroupsRequest] = lambda request: None
    with client_of(broker) as client:
        waiting = send(client)
        until(lambda: client.metrics.requests_sent == 1, "the request was sent")
        assert client.close(SECONDS)
        with pytest.raises(ClosedError):
            waiting.result(SECONDS)
        with pytest.raises(ClosedError):
            BlockingCalls(client).refresh_metadata((), Deadline(1))
        with pytest.raises(ClosedError):
            client.submit(lambda: None)
        assert client.close(SECONDS)


def test_a_last_word_gets_out_before_the_connection_closes(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        send(client).result(SECONDS)
        broker.handlers[ListGroupsRequest] = lambda request: None
        last = send(client)
        assert client.close(SECONDS)
        with pytest.raises(ClosedError):
            last.result(SECONDS)
    until(lambda: len(broker.received(ListGroupsRequest)) == 2, "the broker has read the last request")


def test_waiting_in_a_callback_is_refused(broker: FakeBroker) -> None:
    outcome: Future[Any] = Future()
    with client_of(broker) as client:

        def try_to_wait() -> None:
            try:
                BlockingCalls(client).refresh_metadata((), Deadline(1))
            except MisuseError as error:
                outcome.set_result(error)

        client.submit(try_to_wait)
        assert "cannot be made in a callback" in str(outcome.result(SECONDS))


def test_a_forgotten_client_ends_by_itself(broker: FakeBroker) -> None:
    class Owner:
        pass

    owner = Owner()
    client = Client(AdminConfig.from_settings({"bootstrap_servers": broker.address}))
    client.close_with(owner)
    send(client).result(SECONDS)
    del owner
    until(lambda: not client.io._thread.is_alive(), "the thread has ended")


def test_the_interpreter_ends_though_a_client_is_open(broker: FakeBroker) -> None:
    program = f"""
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.config import AdminConfig
client = Client(AdminConfig.from_settings({{"bootstrap_servers": "{broker.address}"}}))
BlockingCalls(client).refresh_metadata((), Deadline(10))
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], timeout=30, capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == ("done\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        send(client).result(SECONDS)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                BlockingCalls(client).refresh_metadata((), Deadline(1))
            except MisuseError as error:
                code = 0 if "make a new one in each child process" in str(error) else 2
            client.close()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        send(client).result(SECONDS)  # the parent's connection is unharmed
    assert broker.connections == 1


def test_askers_who_come_during_an_answer_are_not_forgotten(broker: FakeBroker) -> None:
    """While a tracked topic is missing the client asks again by itself: that must not swallow other asks."""

    def missing(request: Any) -> MetadataResponse:
        response = broker.metadata()
        response.topics = [
            MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name, partitions=[]
            )
            for topic in request.topics
        ]
        return response

    broker.handlers[MetadataRequest] = missing
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        client.submit(lambda: client.metadata.track(["later"]))
        for _ in range(50):
            cluster = calls.refresh_metadata(["later"], Deadline(SECONDS))
            assert "later" in cluster.errors
        assert len(client.metadata._asks) <= 2
