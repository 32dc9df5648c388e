"""Thousands of partitions: fetches and automatic commits cost what has changed, not what exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millstream import Consumer
from millstream.broker.broker import Broker
from millstream.broker.handlers.fetch import ParkedFetch
from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millstream.wire.messages.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.system.raw_client import RawClient, running_broker
from tests.waiting import until

TOPIC = "t"
MANY = 10_000
VERSION = 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.address) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that fetches have read, one entry for each time."""
    found: list[int] = []
    read = ParkedFetch._read_partition

    def counted(self: ParkedFetch, cached: Any, *arguments: Any, **options: Any) -> Any:
        found.append(cached.key[2])
        return read(self, cached, *arguments, **options)

    monkeypatch.setattr(ParkedFetch, "_read_partition", counted)
    return found


class Session:
    """An incremental fetch session of one consumer."""

    def __init__(self, client: RawClient, offsets: dict[int, int], max_bytes: int = 1 << 20) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._id = self._epoch = 0
        self.first = self.fetch(offsets)
        assert self._id > 0

    def request(self, offsets: dict[int, int], max_wait_ms: int = 0) -> FetchRequest:
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
        ]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=TOPIC, partitions=wanted)] if wanted else [],
        )

    def fetch(self, offsets: dict[int, int] | None = None, max_wait_ms: int = 0) -> dict[int, Any]:
        """The partitions in the answer."""
        return self.answer(
            self._client.call(self.request(offsets or {}, max_wait_ms), VERSION, FetchResponse)
        )

    def answer(self, response: FetchResponse) -> dict[int, Any]:
        assert response.error_code == 0
        self._id, self._epoch = response.session_id, self._epoch + 1
        return {one.partition_index: one for topic in response.responses for one in topic.partitions}

    def park(self, broker: Broker) -> None:
        """Send a fetch that finds nothing, and wait until it is parked."""
        self._client.send(self.request({}, max_wait_ms=60_000), VERSION)
        until(lambda: broker.services.metrics.parked_fetches == 1, "the fetch is parked")

    def parked_answer(self) -> dict[int, Any]:
        _, response = self._client.receive(FetchRequest, VERSION)
        assert isinstance(response, FetchResponse)
        return self.answer(response)


def _do(work: Callable[[int], object], argument: int) -> None:
    work(argument)


def test_an_idle_session_reads_and_sends_nothing(client: RawClient, reads: list[int]) -> None:
    client.create_topic(TOPIC, MANY)
    session = Session(client, dict.fromkeys(range(MANY), 0))
    assert (len(session.first), len(reads)) == (MANY, MANY)
    reads.clear()
    assert session.fetch() == {}
    assert session.fetch(max_wait_ms=1) == {}
    assert reads == []


def test_an_append_has_one_partition_read(broker: Broker, client: RawClient, reads: list[int]) -> None:
    client.create_topic(TOPIC, MANY)
    session = Session(client, dict.fromkeys(range(MANY), 0))
    reads.clear()
    session.park(broker)
    with RawClient(broker.address) as other:
        other.produce(TOPIC, b"value", partition=4711)
    assert list(session.parked_answer()) == [4711]
    assert set(reads) == {4711}
    reads.clear()
    assert session.fetch({4711: 1}) == {}
    assert session.fetch() == {}
    assert reads == [4711]


def test_a_parked_full_fetch_reads_again_what_has_changed(
    broker: Broker, client: RawClient, reads: list[int]
) -> None:
    client.create_topic(TOPIC, 100)
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(100)
    ]
    topics = [FetchTopic(topic=TOPIC, partitions=wanted)]
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=150, topics=topics), VERSION)
    until(lambda: broker.services.metrics.parked_fetches == 1, "the fetch is parked")
    reads.clear()
    with RawClient(broker.address) as other:
        other.produce(TOPIC, b"x", partition=7)
        other.produce(TOPIC, b"x" * 200, partition=8)
    _, response = client.receive(FetchRequest, VERSION)
    assert isinstance(response, FetchResponse)
    with_records = [one.partition_index for one in response.responses[0].partitions if len(one.records)]
    assert (len(response.responses[0].partitions), with_records) == (100, [7, 8])
    assert len(reads) <= 103, "7 and 8, then all for the answer"


def test_changes_between_fetches_are_told_by_the_next(client: RawClient) -> None:
    client.create_topic(TOPIC, 3)
    session = Session(client, dict.fromkeys(range(3), 0))
    assert session.fetch() == {}
    client.produce(TOPIC, b"value", partition=1)
    assert [len(one.records) > 0 for one in session.fetch().values()] == [True]
    assert list(session.fetch()) == [1], "it has not moved on"
    assert session.fetch({1: 1}) == {}


def test_what_finds_no_room_in_an_answer_comes_in_the_next(client: RawClient) -> None:
    client.create_topic(TOPIC, 4)
    for index in range(4):
        client.produce(TOPIC, b"x" * 1000, partition=index)
    session = Session(client, dict.fromkeys(range(4), 0), max_bytes=1500)
    served = [{index for index, one in session.first.items() if len(one.records)}]
    while set().union(*served) != set(range(4)):
        found = {index for index, one in session.fetch(dict.fromkeys(served[-1], 1)).items() if one.records}
        assert found, "each answer brings some"
        served.append(found)
    assert sum(map(len, served)) == 4, "and none twice"


def test_deleted_records_and_a_failed_sync_are_told(broker: Broker, client: RawClient) -> None:
    client.create_topic(TOPIC, 2)
    client.produce(TOPIC, b"one", b"two", partition=0)
    session = Session(client, {0: 2, 1: 0})
    log = broker.services.topics.get(TOPIC).partitions[0].log  # type: ignore[union-attr]
    broker.reactor.call_threadsafe(partial(_do, log.delete_records, 1))
    until(lambda: log.start_offset == 1, "the record is deleted")
    assert [(index, one.log_start_offset) for index, one in session.fetch().items()] == [(0, 1)]
    assert session.fetch() == {}
    session.park(broker)
    client_epoch = log.leader_epoch
    broker.reactor.call_threadsafe(lambda: log.sync_failed(log.take_unsynced(), OSError("failed")))
    # The log is cut to what is durable: nothing is lost here, but another epoch begins.
    until(lambda: log.leader_epoch > client_epoch, "a new epoch begins")
    with RawClient(broker.address) as other:
        other.produce(TOPIC, b"three", partition=0)
    assert list(session.parked_answer()) == [0]


def test_retention_is_told_to_a_waiting_session(broker: Broker, client: RawClient) -> None:
    client.create_topic(TOPIC)
    client.produce(TOPIC, b"old")
    session = Session(client, {0: 1})
    log = broker.services.topics.get(TOPIC).partitions[0].log  # type: ignore[union-attr]
    broker.reactor.call_threadsafe(partial(_do, log.maintain, 4_000_000_000_000))
    until(lambda: log.start_offset == 1, "the record is deleted")
    assert [one.log_start_offset for one in session.fetch().values()] == [1]


def test_a_session_ends_with_nothing_watched(broker: Broker, client: RawClient) -> None:
    client.create_topic(TOPIC, 2)
    partitions = broker.services.topics.get(TOPIC).partitions  # type: ignore[union-attr]
    session = Session(client, {0: 0, 1: 0})
    assert [len(one.watchers) for one in partitions] == [1, 1]
    session._epoch = -1
    session.fetch()
    assert [len(one.watchers) for one in partitions] == [0, 0]


def test_a_session_without_a_reader_is_told_of_one_append_only(broker: Broker, client: RawClient) -> None:
    """Consumers that were killed leave their sessions behind: appends must not pay for them for long."""
    client.create_topic(TOPIC)
    partition = broker.services.topics.get(TOPIC).partitions[0]  # type: ignore[union-attr]
    for _ in range(20):
        Session(client, {0: 0})
    assert len(partition.watchers) == 20
    client.produce(TOPIC, b"value")
    assert not partition.watchers


def test_a_deleted_topic_is_told_to_a_session(client: RawClient) -> None:
    client.create_topic(TOPIC)
    session = Session(client, {0: 0})
    client.call(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000), 4, DeleteTopicsResponse)
    for _ in range(2):
        codes = [one.error_code for one in session.fetch().values()]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    client.create_topic(TOPIC)
    assert [one.error_code for one in session.fetch().values()] == [0]
    assert session.fetch() == {}
    client.produce(TOPIC, b"value")
    assert [len(one.records) > 0 for one in session.fetch().values()] == [True]


def test_automatic_commits_send_what_has_changed(broker: Broker, client: RawClient) -> None:
    client.create_topic(TOPIC, 1000)

    def committed() -> int:
        return broker.services.groups._coordinator.counters.offsets_committed

    with Consumer(
        bootstrap_servers=broker.address,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=10,
    ) as consumer:
        consumer.subscribe([TOPIC])

        def has_committed(count: int) -> bool:
            return not consumer.poll(0.01) and committed() >= count

        until(partial(has_committed, 1000), "all have a first offset")
        for number in range(1, 4):
            client.produce(TOPIC, b"value", partition=number)
            until(lambda: len(consumer.poll(0.1)) == 1, "the record is here")
            until(partial(has_committed, 1000 + number), "it is committed")
            assert committed() == 1000 + number
    assert committed() == 1003
