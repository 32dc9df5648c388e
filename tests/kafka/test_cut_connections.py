"""Connections cut inside an answer, at every byte of it: no record is lost or repeated, and nothing leaks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import psutil
import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer, TopicPartition
from millstream.wire import apis
from tests.kafka.frame_proxy import Cut, FrameProxy
from tests.system.reading import read_topic
from tests.waiting import SECONDS, until

T0 = TopicPartition("t", 0)
SOON: dict[str, object] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
}
RECONNECTS = 1000


@pytest.fixture
def proxy() -> Iterator[FrameProxy]:
    """In front of a broker that tells its clients to come this way."""
    with FrameProxy() as made:
        listener = {"advertised.listeners": f"PLAINTEXT://{made.address}"}
        with EmbeddedBroker(settings=listener) as broker:
            made.target = int(broker.bootstrap_servers.rpartition(":")[2])
            with Admin(bootstrap_servers=made.address) as admin:
                admin.create_topic("t", partitions=1)
            yield made


def cuts(proxy: FrameProxy, api: apis.Api, step: int = 1) -> Iterator[Cut]:
    """One cut after the other, each a byte later, until a whole answer came through before its cut."""
    position = 0
    while True:
        cut = proxy.cut = Cut(api.key, position)
        yield cut
        assert cut.done.wait(SECONDS), f"{api.name} was not answered"
        if position >= cut.answer_size:
            return
        position += step


def test_answers_to_produce(proxy: FrameProxy) -> None:
    sent = 0
    with Producer(bootstrap_servers=proxy.address, linger_ms=0, **SOON) as producer:
        for _ in cuts(proxy, apis.PRODUCE):
            assert producer.send("t", str(sent).encode(), partition=0).result(SECONDS).offset == sent
            sent += 1
    assert sent > 20
    found = read_topic(proxy.address, "t")[0]
    assert [record.value for record in found] == [str(number).encode() for number in range(sent)]


def test_answers_to_fetch(proxy: FrameProxy) -> None:
    sent = 0
    with (
        Producer(bootstrap_servers=proxy.address, linger_ms=0) as producer,
        Consumer(bootstrap_servers=proxy.address, fetch_max_wait_ms=100, **SOON) as consumer,
    ):
        consumer.assign([T0])
        consumer.seek(T0, 0)
        for _ in cuts(proxy, apis.FETCH):
            producer.send("t", str(sent).encode(), partition=0).result(SECONDS)
            (record,) = consumer.poll(SECONDS)
            assert (record.offset, record.value) == (sent, str(sent).encode())
            sent += 1
    assert sent > 50


def test_answers_to_commits(proxy: FrameProxy) -> None:
    with Consumer(bootstrap_servers=proxy.address, group_id="g", **SOON) as consumer:
        consumer.assign([T0])
        for number, _ in enumerate(cuts(proxy, apis.OFFSET_COMMIT), start=1):
            consumer.commit({T0: number}, timeout=SECONDS)
            committed = consumer.committed([T0])[T0]
            assert committed is not None and committed.offset == number


@pytest.mark.parametrize(
    "api",
    [
        apis.API_VERSIONS,
        apis.METADATA,
        apis.FIND_COORDINATOR,
        apis.JOIN_GROUP,
        apis.SYNC_GROUP,
        apis.OFFSET_FETCH,
        apis.LIST_OFFSETS,
    ],
    ids=lambda api: api.name,
)
def test_answers_on_the_way_into_a_group(proxy: FrameProxy, api: apis.Api) -> None:
    """A new group for each position; only some of them, as each costs a rebalance."""
    with Producer(bootstrap_servers=proxy.address) as producer:
        producer.send("t", b"hello", partition=0).result(SECONDS)
    for number, _ in enumerate(cuts(proxy, api, step=_step(api))):
        with Consumer(
            bootstrap_servers=proxy.address, group_id=f"g{number}", auto_offset_reset="earliest", **SOON
        ) as consumer:
            consumer.subscribe(["t"])
            assert [record.value for record in consumer.poll(SECONDS)] == [b"hello"]


def _step(api: apis.Api) -> int:
    return 60 if api is apis.API_VERSIONS else 17


def test_a_thousand_reconnects_leave_nothing_behind(proxy: FrameProxy) -> None:
    process = psutil.Process()
    with Consumer(bootstrap_servers=proxy.address, fetch_max_wait_ms=1, **SOON) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        _reconnect(proxy, consumer, 100)
        gc.collect()
        sockets, memory = len(_own_sockets(process)), process.memory_info().rss
        _reconnect(proxy, consumer, RECONNECTS)
        until(lambda: len(_own_sockets(process)) <= sockets + 4, "sockets are closed")
        gc.collect()
        grown = process.memory_info().rss - memory
        assert grown < 16 << 20, f"{grown} bytes more after {RECONNECTS} reconnects"


def _reconnect(proxy: FrameProxy, consumer: Consumer, times: int) -> None:
    before = proxy.connections
    while proxy.connections < before + times:
        proxy.cut = Cut(apis.FETCH.key, 0)
        done = proxy.cut.done
        while not done.is_set():
            assert not consumer.poll(0.002)


def _own_sockets(process: psutil.Process) -> list[object]:
    """Of this process, and so of the proxy, too: each connection counts twice."""
    return list(process.net_connections(kind="tcp"))
