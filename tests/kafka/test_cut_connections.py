"""Connections cut inside an answer, at every byte of it: no record is lost or repeated, and nothing leaks."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer, RebalanceListener, TopicPartition
from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from millstream.wire.messages.metadata import METADATA
from millstream.wire.messages.offsets import LIST_OFFSETS
from millstream.wire.messages.produce import INIT_PRODUCER_ID, PRODUCE
from millstream.wire.schema import Api
from tests.kafka.frame_proxy import Cut, FrameProxy
from tests.system.reading import read_topic
from tests.waiting import SECONDS, soon_enough, until

pytestmark = pytest.mark.timeout(600)  # hundreds of connections, one after the other
T0 = TopicPartition("t", 0)
SOON: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
}
SHORT_FETCHES: dict[str, Any] = {"fetch_max_wait_ms": 10}
"""A coordinator that is looked up anew is asked for behind the fetch that waits."""
LONG_MS = int(SECONDS * 1000)
"""Longer than any record takes: each answer to a fetch has one, and is cut at every byte."""
RECONNECTS = 1000


@pytest.fixture
def proxy() -> Iterator[FrameProxy]:
    """In front of a broker that tells its clients to come this way."""
    with FrameProxy() as made:
        settings = {
            "advertised.listeners": f"PLAINTEXT://{made.address}",
            "group.initial.rebalance.delay.ms": "0",  # hundreds of groups are made here, of one member each
        }
        with EmbeddedBroker(settings=settings) as broker:
            made.target = int(broker.bootstrap_servers.rpartition(":")[2])
            with Admin(bootstrap_servers=made.address) as admin:
                admin.create_topic("t", partitions=1)
            yield made


def cuts(proxy: FrameProxy, api: Api, skip: int = 0) -> Iterator[Cut]:
    """One cut after the other, each a byte later, until a whole answer came through before its cut."""
    for position in itertools.count():
        cut = proxy.cut = Cut(api.key, position, skip)
        yield cut
        assert cut.done.wait(SECONDS), f"{api.name} was not answered"
        if position >= cut.answer_size:
            return


@contextmanager
def member(
    proxy: FrameProxy, group: str, listener: RebalanceListener | None = None, **options: Any
) -> Iterator[Consumer]:
    """Of a group that reads the topic from its beginning."""
    with Consumer(
        bootstrap_servers=proxy.address,
        group_id=group,
        auto_offset_reset="earliest",
        **SOON,
        **SHORT_FETCHES,
        **options,
    ) as consumer:
        consumer.subscribe(["t"], listener=listener)
        yield consumer


class Assigned(RebalanceListener):
    """The partitions that a member was given, each as often as it was."""

    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []

    def on_assigned(self, consumer: object, partitions: list[TopicPartition]) -> None:
        self.partitions += partitions


def test_answers_to_produce(proxy: FrameProxy) -> None:
    sent = 0
    with Producer(bootstrap_servers=proxy.address, linger_ms=0, **SOON) as producer:
        for _ in cuts(proxy, PRODUCE):
            assert producer.send("t", str(sent).encode(), partition=0).result(SECONDS).offset == sent
            sent += 1
    assert sent > 20
    found = read_topic(proxy.address, "t")[0]
    assert [record.value for record in found] == [str(number).encode() for number in range(sent)]


def test_answers_to_fetch(proxy: FrameProxy) -> None:
    sent = 0
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": LONG_MS, **SOON}
    with (
        Producer(bootstrap_servers=proxy.address, linger_ms=0) as producer,
        Consumer(bootstrap_servers=proxy.address, **settings) as consumer,
    ):
        consumer.assign([T0])
        for _ in cuts(proxy, FETCH):
            producer.send("t", str(sent).encode(), partition=0).result(SECONDS)
            (record,) = consumer.poll(SECONDS)
            assert (record.offset, record.value) == (sent, str(sent).encode())
            sent += 1
    assert sent > 50


def test_answers_to_commits(proxy: FrameProxy) -> None:
    with Consumer(bootstrap_servers=proxy.address, group_id="g", **SOON, **SHORT_FETCHES) as consumer:
        consumer.assign([T0])
        for number, _ in enumerate(cuts(proxy, OFFSET_COMMIT), start=1):
            consumer.commit({T0: number}, timeout=SECONDS)
            committed = consumer.committed([T0])[T0]
            assert committed is not None and committed.offset == number


@pytest.mark.parametrize(
    ("api", "skip"),
    [
        pytest.param(API_VERSIONS, 0, id="ApiVersions"),
        pytest.param(METADATA, 0, id="Metadata"),
        pytest.param(FIND_COORDINATOR, 0, id="FindCoordinator"),
        pytest.param(JOIN_GROUP, 0, id="JoinGroup, which gives an id"),
        pytest.param(JOIN_GROUP, 1, id="JoinGroup, which names the members"),
        pytest.param(SYNC_GROUP, 0, id="SyncGroup"),
        pytest.param(OFFSET_FETCH, 0, id="OffsetFetch"),
        pytest.param(LIST_OFFSETS, 0, id="ListOffsets"),
    ],
)
def test_answers_on_the_way_into_a_group(proxy: FrameProxy, api: Api, skip: int) -> None:
    """A new group for each position."""
    with Producer(bootstrap_servers=proxy.address) as producer:
        producer.send("t", b"hello", partition=0).result(SECONDS)
    for number, _ in enumerate(cuts(proxy, api, skip)):
        with member(proxy, f"g{number}") as consumer:
            assert [record.value for record in consumer.poll(SECONDS)] == [b"hello"]
            assert consumer.position(T0) == 1


def test_answers_to_heartbeats(proxy: FrameProxy) -> None:
    """They cost neither a record nor the member's place in its group."""
    listener = Assigned()
    sent = 0
    with (
        Producer(bootstrap_servers=proxy.address, linger_ms=0) as producer,
        member(proxy, "g", listener, heartbeat_interval_ms=5) as consumer,
    ):
        for _ in cuts(proxy, HEARTBEAT):
            producer.send("t", str(sent).encode(), partition=0).result(SECONDS)
            (record,) = consumer.poll(SECONDS)
            assert (record.offset, record.value) == (sent, str(sent).encode())
            sent += 1
    assert sent > 10
    assert listener.partitions == [T0]


def test_answers_to_leaving(proxy: FrameProxy) -> None:
    """The member has left, with all that it read committed: the next one reads only what is new."""
    sent = 0
    with (
        Admin(bootstrap_servers=proxy.address) as admin,
        Producer(bootstrap_servers=proxy.address, linger_ms=0) as producer,
    ):
        for _ in cuts(proxy, LEAVE_GROUP):
            producer.send("t", str(sent).encode(), partition=0).result(SECONDS)
            with member(proxy, "g") as consumer:
                (record,) = consumer.poll(SECONDS)
                assert (record.offset, record.value) == (sent, str(sent).encode())
            sent += 1
            assert not admin.describe_group("g").members
            assert admin.group_offsets("g")[T0].offset == sent
    assert sent > 20


def test_answers_to_new_producers(proxy: FrameProxy) -> None:
    sent = 0
    for _ in cuts(proxy, INIT_PRODUCER_ID):
        with Producer(bootstrap_servers=proxy.address, linger_ms=0, **SOON) as producer:
            assert producer.send("t", str(sent).encode(), partition=0).result(SECONDS).offset == sent
        sent += 1
    assert sent > 20
    found = read_topic(proxy.address, "t")[0]
    assert [record.value for record in found] == [str(number).encode() for number in range(sent)]


def test_a_thousand_reconnects_leave_nothing_behind(proxy: FrameProxy) -> None:
    process = psutil.Process()
    with Consumer(bootstrap_servers=proxy.address, fetch_max_wait_ms=1, **SOON) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        _reconnect(proxy, consumer, 100)
        sockets = len(_own_sockets(process))

        def growth() -> int:
            gc.collect()
            before = process.memory_info().rss
            _reconnect(proxy, consumer, RECONNECTS)
            until(lambda: len(_own_sockets(process)) <= sockets + 4, "sockets are closed")
            gc.collect()
            grown: int = process.memory_info().rss - before
            return grown

        # Twice, as a thread of an earlier test may still be loading a compiler.
        soon_enough(growth, 16 << 20, f"bytes more after {RECONNECTS} reconnects", attempts=2)


def _reconnect(proxy: FrameProxy, consumer: Consumer, times: int) -> None:
    before = proxy.connections
    while proxy.connections < before + times:
        cut = proxy.cut = Cut(FETCH.key, 0)
        while not cut.done.is_set():
            assert not consumer.poll(0.002)


def _own_sockets(process: psutil.Process) -> list[object]:
    """Of this process, and so of the proxy, too: each connection counts twice."""
    return list(process.net_connections(kind="tcp"))
