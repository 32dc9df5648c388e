"""What an attack on a secured broker found: each test is one finding, and fails without its fix."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jwt
import pytest

from millstream.broker import server
from millstream.broker.access.control import AccessControl
from millstream.broker.broker import Broker
from millstream.errors import ErrorCode
from millstream.security.acls import Acl, Operation, ResourceType
from millstream.security.sasl.oauthbearer import encode_bearer
from millstream.security.sasl.plain import encode_plain
from millstream.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millstream.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    TopicRequest,
)
from millstream.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.system.raw_client import RawClient, running_broker
from tests.system.secured import AUTHORIZER, PLAIN_USERS, Certificates, jaas, make_certificates
from tests.waiting import SECONDS, until

UNSECURED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerUnsecuredValidatorCallbackHandler"
READ, DESCRIBE = Operation.READ, Operation.DESCRIBE


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with login_broker(tmp_path) as running:
        yield running


@contextmanager
def login_broker(data: Path, **more: object) -> Iterator[Broker]:
    """A broker on a thread of this process, with PLAIN, unsigned tokens and ACLs."""
    settings: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.jaas.config": jaas(PLAIN_USERS),
        "sasl.server.callback.handler.class": UNSECURED,
        "connection.failed.authentication.delay.ms": 0,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    with running_broker(data, settings=settings) as running:
        yield running


@contextmanager
def logged_in(broker: Broker, user: str = "admin") -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        answer = client.call(
            SaslAuthenticateRequest(auth_bytes=encode_plain(user, PLAIN_USERS[user])),
            2,
            SaslAuthenticateResponse,
        )
        assert answer.error_code == 0, answer.error_message
        yield client


def allow(broker: Broker, *acls: Acl) -> None:
    on_loop(broker, lambda: access(broker).change(added=acls))


def forbid(broker: Broker, *acls: Acl) -> None:
    on_loop(broker, lambda: access(broker).change(removed=acls))


def access(broker: Broker) -> AccessControl:
    assert broker.services.access is not None
    return broker.services.access


def on_loop(broker: Broker, work: Callable[[], None]) -> None:
    """Run something on the broker's thread, as a handler does."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    broker.reactor.call_threadsafe(run)
    assert done.wait(SECONDS)


# --- answers


@pytest.mark.parametrize("expires", [10**30, 1e300, float("inf")])
def test_a_token_that_expires_too_late_for_the_answer_leaves_no_client_waiting(
    broker: Broker, expires: float
) -> None:
    token = jwt.encode({"sub": "ann", "exp": expires}, "", "none")
    with RawClient(broker.address) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
        request = SaslAuthenticateRequest(auth_bytes=encode_bearer(token))
        answer = client.call(request, 2, SaslAuthenticateResponse)
    refused = bool(answer.auth_bytes)
    assert refused or answer.session_lifetime_ms > 0


def test_an_answer_that_cannot_be_encoded_closes_the_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(type(broker.services), "rack", property(lambda _: 7))
    with logged_in(broker) as client:
        client.send(MetadataRequest(topics=None), 12)
        assert client.is_closed_by_peer()
    until(lambda: "cannot be encoded" in caplog.text, "the log line")


# --- memory and logs


def test_strangers_make_room_for_users_when_memory_is_short(tmp_path: Path) -> None:
    """Each stranger holds less than the user, and goes first all the same."""
    with (
        login_broker(tmp_path, queued_max_request_bytes=1 << 20) as broker,
        logged_in(broker) as user,
        RawClient(broker.address) as one,
        RawClient(broker.address) as two,
    ):
        user.create_topic("t")
        size = 900_000
        user.sock.sendall(size.to_bytes(4, "big") + bytes(500_000))
        until(lambda: broker._server.memory.total > 500_000, "the user's frame")
        one.sock.sendall((500_000).to_bytes(4, "big") + bytes(300_000))
        until(lambda: broker._server.memory.total > 1_000_000, "the stranger's frame")
        two.sock.sendall((500_000).to_bytes(4, "big") + bytes(100_000))
        assert one.is_closed_by_peer()
        user.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            user.sock.recv(1)


def test_strangers_cannot_flood_the_log(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.broker")
    for _ in range(100):
        with RawClient(broker.address) as client:
            client.sock.sendall(b"\0\0\0\4abcd")
            assert client.is_closed_by_peer()
    until(lambda: not broker._server._clients, "the connections to end")
    lines = [each for each in caplog.records if "127.0.0.1" in each.getMessage()]
    assert 0 < len(lines) <= server.STRANGER_LINES_PER_MINUTE
    assert all(each.levelno == logging.INFO for each in lines)


@pytest.mark.parametrize(
    "limits",
    [
        {"max.connections": 2},
        {"max.connections.per.ip": 2},
        {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:2"},
        {"max.connections": 9, "listener.name.plaintext.max.connections": 2},
    ],
)
def test_connections_over_a_limit_are_refused_until_others_end(
    tmp_path: Path, limits: dict[str, object]
) -> None:
    with running_broker(tmp_path, settings=limits) as broker, RawClient(broker.address) as one:
        one.metadata()
        with RawClient(broker.address) as two:
            two.metadata()
            with RawClient(broker.address) as three:
                assert three.is_closed_by_peer()
            one.metadata()
        until(lambda: broker.services.metrics.connections_open == 1, "the second to end")
        with RawClient(broker.address) as four:
            four.metadata()
        assert broker.services.metrics.connections_refused == 1


def test_failed_handshakes_do_not_use_up_the_limit(certificates: Certificates, tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": certificates.server,
        "max.connections.per.ip": 2,
    }
    context = ssl.create_default_context(cafile=certificates.ca)
    with running_broker(tmp_path, settings=settings) as broker:
        for number in range(1, 6):
            with RawClient(broker.address) as stranger:
                stranger.sock.sendall(b"no TLS, but long enough to be looked at")
                stranger.sock.recv(100)
            failed = partial(handshakes_failed, broker, number)
            until(failed, "the handshake to fail")
        for _ in range(3):
            with RawClient(broker.address) as client:
                client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
                client.metadata()
            until(lambda: broker.services.metrics.connections_open == 0, "the connection to end")
        assert broker.services.metrics.connections_refused == 0


def handshakes_failed(broker: Broker, number: int) -> bool:
    return broker.services.metrics.handshakes_failed == number


# --- hidden topics


def described(
    client: RawClient, *topics: str, cursor: str | None = None, partition: int = 0, limit: int = 2000
) -> tuple[list[tuple[str | None, int]], str | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor, partition_index=partition),
    )
    answer = client.call(request, 0, DescribeTopicPartitionsResponse)
    found = [(each.name, each.error_code) for each in answer.topics]
    return found, None if answer.next_cursor is None else answer.next_cursor.topic_name


def test_a_cursor_does_not_tell_whether_a_hidden_topic_exists(broker: Broker) -> None:
    with logged_in(broker) as admin:
        admin.create_topic("a")
        admin.create_topic("hidden", partitions=5)
        admin.create_topic("z", partitions=3)
    allow(broker, *(Acl(ResourceType.TOPIC, name, "User:ann", DESCRIBE) for name in ("a", "z")))
    with logged_in(broker, "ann") as ann:
        for limit in (1, 2, 4, 2000):
            hidden = described(ann, cursor="hidden", limit=limit)
            assert (
                hidden
                == described(ann, cursor="hidden2", limit=limit)
                == (
                    [("z", 0)],
                    "z" if limit < 3 else None,
                )
            )
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert described(ann, "a", "hidden", "z", cursor="hidden") == ([("z", 0), ("hidden", refused)], None)
        assert described(ann, "a", "none", "z", cursor="none") == ([("z", 0), ("none", refused)], None)


# --- fetch sessions


def test_a_removed_acl_reaches_a_fetch_session_with_the_next_fetch(broker: Broker) -> None:
    acl = Acl(ResourceType.TOPIC, "t", "User:ann", READ)
    with logged_in(broker) as admin:
        admin.create_topic("t")
    allow(broker, acl)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    begin = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=0,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    with logged_in(broker, "ann") as ann:
        first = ann.call(begin, 12, FetchResponse)
        assert first.session_id and first.responses[0].partitions[0].error_code == 0
        forbid(broker, acl)
        again = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1, topics=[]
        )
        (topic,) = ann.call(again, 12, FetchResponse).responses
        assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allow(broker, acl)
        more = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=2, topics=[]
        )
        (topic,) = ann.call(more, 12, FetchResponse).responses
        assert topic.partitions[0].error_code == 0
        # A fetch that waits already is told at once.
        waiting = FetchRequest(
            max_wait_ms=600_000, min_bytes=1, session_id=first.session_id, session_epoch=3, topics=[]
        )
        sent = ann.send(waiting, 12)
        until(lambda: broker.services.metrics.parked_fetches == 1, "the fetch to wait")
        forbid(broker, acl)
        number, answer = ann.receive(FetchRequest, 12)
        assert number == sent and isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
