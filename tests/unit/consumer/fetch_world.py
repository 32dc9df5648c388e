"""A fetcher on a fake cluster, with a clock and a driver, and what the fetcher's tests do with it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.config import ConsumerConfig
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.fetching.drain import RAW, Deserializers, drain
from millstream.consumer.fetching.events import CommittedNeeded, FetchEvent, MetadataNeeded, NewLeaders
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.sends import Send
from millstream.errors import NetworkError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import FakeCluster, FakeLog, topic_id


class World:
    """A fetcher with its cluster, a clock, and a driver that does what drivers do."""

    def __init__(
        self,
        cluster: FakeCluster,
        settings: ConsumerConfig,
        committed: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.cluster = cluster
        self.fetcher = Fetcher(settings)
        self.committed = committed or {}
        self.now_ms = 0
        self.wire: list[Send] = []
        self.events: list[FetchEvent] = []
        self.fetcher.update_cluster(cluster.metadata())

    @property
    def positions(self) -> dict[TopicPartition, int | None]:
        owned = self.fetcher.positions
        return {partition: owned.position(partition) for partition in sorted(owned.assignment())}

    def poll(self) -> list[Send]:
        """One turn of the driver, without any answer; returns what it has just sent."""
        sends = self.fetcher.poll(self.now_ms)
        self.wire += sends
        for event in self.fetcher.take_events():
            self._handle(event)
        return sends

    def _handle(self, event: FetchEvent) -> None:
        self.events.append(event)
        if isinstance(event, CommittedNeeded):
            offsets = {
                one: OffsetAndMetadata(self.committed[one]) if one in self.committed else None
                for one in event.partitions
            }
            self.fetcher.set_committed(event.token, offsets, self.now_ms)
        elif isinstance(event, MetadataNeeded | NewLeaders):
            self.fetcher.update_cluster(self.cluster.metadata())

    def deliver(self, send: Send) -> None:
        self.wire.remove(send)
        self.fetcher.receive(send.token, self.cluster.answer(send), self.now_ms)

    def fail(self, send: Send, error: Exception | None = None) -> None:
        self.wire.remove(send)
        self.fetcher.failed(send.token, error or NetworkError(), self.now_ms)

    def settle(self, turns: int = 20) -> None:
        """Answer everything, for so many turns, or until nothing is left to wait for."""
        for _ in range(turns):
            self.poll()
            self.poll()  # the events of the first call may have made more to send
            if not self.wire:
                wake = self.fetcher.next_wake_ms(self.now_ms)
                if wake is None:
                    return
                self.now_ms = wake
            for send in list(self.wire):
                self.deliver(send)

    def take(self, max_records: int = 1_000_000) -> list[Record]:
        return list(take(self.fetcher, max_records, self.now_ms))

    def read(self, turns: int = 20) -> list[Record]:
        """Everything there is to read."""
        found: list[Record] = []
        for _ in range(turns):
            self.settle(2)
            found += self.take()
        return found


def take(fetcher: Fetcher, max_records: int, now_ms: int, deserializers: Deserializers = RAW) -> Records:
    """One poll: what there is to raise, or at most ``max_records``."""
    fetcher.raise_errors(now_ms)
    return fetcher.finish_take(drain(fetcher.begin_take(), max_records, deserializers), now_ms)


def values(records: Sequence[Record]) -> list[object]:
    return [record.value for record in records]


SETTINGS = config(auto_offset_reset="earliest")


def log_of(batches: int, size: int = 100, leader: int = 0) -> FakeLog:
    """Batches of one record each, with values of so many bytes."""
    log = FakeLog(leader=leader)
    for _ in range(batches):
        log.append(b"x" * size)
    return log


def world_of(
    logs: dict[TopicPartition, FakeLog], settings: ConsumerConfig = SETTINGS, nodes: int = 2
) -> World:
    """A consumer that stands at offset 0 of each partition, and has not fetched yet."""
    world = World(FakeCluster(logs, nodes), settings)
    world.fetcher.positions.assign(logs)
    for partition in logs:
        world.fetcher.positions.seek(partition, 0)
    return world


def built(send: Send, version: int = 18) -> FetchRequest:
    request = send.build(version)
    assert isinstance(request, FetchRequest)
    return request


def fetched(send: Send) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, one.partition, one.fetch_offset)
        for topic in built(send).topics
        for one in topic.partitions
    ]


def answer(send: Send, world: World, **fields: object) -> None:
    """Answer for partition 0 of topic t with these fields."""
    defaults: dict[str, object] = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 0,
        "aborted_transactions": None,
        "records": b"",
    }
    partitions = [PartitionData(**(defaults | fields))]  # type: ignore[arg-type]
    topic = FetchableTopicResponse(topic="", topic_id=topic_id("t"), partitions=partitions)
    world.wire.remove(send)
    world.fetcher.receive(send.token, FetchResponse(session_id=7, responses=[topic]), world.now_ms)
