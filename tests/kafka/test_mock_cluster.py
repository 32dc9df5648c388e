"""Our client on brokers that fail as they are told to: each error has one right action; no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    MessageTooLargeError,
    MillstreamError,
    TopicAuthorizationFailedError,
)
from millstream.producer import RecordFuture
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, SYNC_GROUP
from millstream.wire.messages.metadata import METADATA
from millstream.wire.messages.offsets import LIST_OFFSETS
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.schema import Api
from tests.kafka.mock_cluster import MockCluster
from tests.waiting import SECONDS, until

T0 = TopicPartition("t", 0)
E = ErrorCode
QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
MEMBER: dict[str, Any] = {
    **QUICK,
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 100,
    "fetch_max_wait_ms": 100,
    "enable_auto_commit": False,
}


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as made:
        made.create_topic("t")
        yield made


class Flow:
    """Numbered records, written and read; ``step`` sends one and waits until exactly that one has come."""

    def __init__(self, cluster: MockCluster, **settings: Any) -> None:
        servers = cluster.bootstrap_servers
        self.producer = Producer(bootstrap_servers=servers, linger_ms=0, **QUICK)
        self.consumer = Consumer(bootstrap_servers=servers, group_id="g", **MEMBER | settings)
        self.consumer.subscribe(["t"])
        self.count = 0

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.close()
        self.consumer.close()

    def step(self) -> None:
        self.receive(self.send())

    def send(self) -> RecordFuture:
        return self.producer.send("t", str(self.count).encode(), partition=0)

    def receive(self, sent: RecordFuture) -> None:
        """Wait until a record is written, and until exactly that one has come."""
        sent.result(SECONDS)
        found: list[bytes] = []

        def poll() -> bool:
            found.extend(record.value for record in self.consumer.poll(0.1))
            return bool(found)

        until(poll, f"record {self.count}")
        assert found == [str(self.count).encode()], "neither lost nor repeated"
        self.count += 1

    def idle_until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until something has happened; there is nothing to read."""

        def poll() -> bool:
            assert not self.consumer.poll(0.1)
            return condition()

        until(poll, what)


# --- errors that pass: the client does the right thing, and the user sees nothing

RETRIED = {
    PRODUCE: [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.REQUEST_TIMED_OUT,
        E.NOT_ENOUGH_REPLICAS,
        E.KAFKA_STORAGE_ERROR,
    ],
    FETCH: [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_LEADER_EPOCH,
        E.OFFSET_NOT_AVAILABLE,
    ],
    HEARTBEAT: [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR],
    METADATA: [E.LEADER_NOT_AVAILABLE],
}


@pytest.mark.parametrize("api", RETRIED, ids=lambda api: api.name)
def test_errors_that_pass(cluster: MockCluster, api: Api) -> None:
    with Flow(cluster, metadata_max_age_ms=200) as flow:
        flow.step()
        for code in RETRIED[api]:
            before = cluster.asked(api.key)
            cluster.fail_next(api.key, [code, code])
            flow.step()
            # The record may have come while the errors are still to be met.
            flow.idle_until(lambda: cluster.asked(api.key) >= before + 2, f"{code!r} twice")  # noqa: B023
            flow.step()


def test_a_heartbeat_tells_of_a_rebalance(cluster: MockCluster) -> None:
    """The member joins anew, and goes on from what it committed.

    The mock holds a join at a group that has members for a second less than their session, whoever has
    joined: with the usual session that is longer than any test waits.
    """
    with Flow(cluster, session_timeout_ms=5000) as flow:
        flow.step()
        flow.consumer.commit(timeout=SECONDS)
        generation = flow.consumer.group_metadata().generation_id
        cluster.fail_next(HEARTBEAT.key, [E.REBALANCE_IN_PROGRESS])
        flow.idle_until(
            lambda: flow.consumer.group_metadata().generation_id > generation, "the next generation"
        )
        flow.step()


# The mock refuses joins and syncs with nulls that the protocol does not allow: to us, as to Java's client,
# these are broken answers, after which we connect anew. What follows each code is in test_error_actions.py.
ON_THE_WAY_IN = {
    FIND_COORDINATOR: [E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS],
    JOIN_GROUP: [
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.UNKNOWN_MEMBER_ID,
    ],
    SYNC_GROUP: [
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.REBALANCE_IN_PROGRESS,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
    ],
    OFFSET_FETCH: [E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR],
    LIST_OFFSETS: [E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE, E.OFFSET_NOT_AVAILABLE],
}


@pytest.mark.parametrize(
    ("api", "code"),
    [(api, code) for api, codes in ON_THE_WAY_IN.items() for code in codes],
    ids=lambda value: value.name,
)
def test_errors_on_the_way_into_a_group(cluster: MockCluster, api: Api, code: ErrorCode) -> None:
    cluster.fail_next(api.key, [code])
    with Flow(cluster) as flow:
        flow.step()


@pytest.mark.parametrize(
    "code",
    [E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT],
)
def test_a_sync_commit_is_repeated(cluster: MockCluster, code: ErrorCode) -> None:
    with Flow(cluster) as flow:
        flow.step()
        cluster.fail_next(OFFSET_COMMIT.key, [code])
        flow.consumer.commit(timeout=SECONDS)
        committed = flow.consumer.committed([T0])[T0]
        assert committed is not None and committed.offset == 1


# --- errors that do not pass: the user is told, with the error's own name


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (E.MESSAGE_TOO_LARGE, MessageTooLargeError),
        (E.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_send_that_is_refused(cluster: MockCluster, code: ErrorCode, error: type[MillstreamError]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, **QUICK) as producer:
        cluster.fail_next(PRODUCE.key, [code])
        with pytest.raises(error):
            producer.send("t", b"x", partition=0).result(SECONDS)


@pytest.mark.parametrize(
    ("api", "code", "error"),
    [
        (HEARTBEAT, E.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError),
        (HEARTBEAT, E.FENCED_INSTANCE_ID, FencedInstanceIdError),
        (OFFSET_FETCH, E.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_group_that_refuses(
    cluster: MockCluster, api: Api, code: ErrorCode, error: type[MillstreamError]
) -> None:
    cluster.fail_next(api.key, [code])
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", **MEMBER) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(error):
            until(lambda: consumer.poll(0.1), "a record")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (E.UNKNOWN_MEMBER_ID, CommitFailedError),
        (E.ILLEGAL_GENERATION, CommitFailedError),
        (E.FENCED_INSTANCE_ID, FencedInstanceIdError),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_commit_that_is_refused(
    cluster: MockCluster, code: ErrorCode, error: type[MillstreamError]
) -> None:
    with Flow(cluster) as flow:
        flow.step()
        cluster.fail_next(OFFSET_COMMIT.key, [code])
        with pytest.raises(error):
            flow.consumer.commit(timeout=SECONDS)


# --- brokers that move, go and are slow


def test_the_leader_moves(cluster: MockCluster) -> None:
    with Flow(cluster) as flow:
        for broker in (1, 2, 3, 1):
            cluster.lead("t", 0, broker)
            flow.step()


def test_the_coordinator_moves(cluster: MockCluster) -> None:
    with Flow(cluster) as flow:
        for broker in (1, 2, 3):
            cluster.coordinate("g", broker)
            flow.step()
            flow.consumer.commit(timeout=SECONDS)


def test_a_broker_goes_and_comes_back(cluster: MockCluster) -> None:
    cluster.lead("t", 0, 1)
    cluster.coordinate("g", 2)
    with Flow(cluster) as flow:
        flow.step()
        for broker in (1, 2, 3):
            cluster.down(broker)
            sent = flow.send()
            cluster.up(broker)
            flow.receive(sent)
            flow.consumer.commit(timeout=SECONDS)


def test_slow_brokers(cluster: MockCluster) -> None:
    for broker in (1, 2, 3):
        cluster.delay(broker, 150)
    with Flow(cluster) as flow:
        for _ in range(3):
            flow.step()
        flow.consumer.commit(timeout=SECONDS)
