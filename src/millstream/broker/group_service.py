"""Runs the group coordinator: stores its records in ``__consumer_offsets`` and sends its answers.

The coordinator decides; this makes its decisions durable. Records are appended at once, and reported back
when the flusher has synced them, in the order in which the coordinator returned them.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Final

from millstream.broker.flusher import Flusher, SyncableLog
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.outcome import Caller, Moment, Outcome
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import GroupRecord, decode_record, encode_record, partition_for
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import OFFSETS_TOPIC, Partition, ServedTopics, Topic
from millstream.errors import BrokerError, CorruptBatch, CorruptMessage, ErrorCode
from millstream.metrics.declarations import MetricReading, read
from millstream.model import TopicPartition
from millstream.net.reactor import Reactor, Timer
from millstream.wire.records.batch_header import iter_headers
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.schema import Api, Request

log = logging.getLogger("millstream.broker.groups")

_REPLAY_BYTES: Final = 4 << 20
_MAX_BATCH_BYTES: Final = 64 << 20
"""The most that one stored batch may decompress to; ours are not compressed."""


@dataclass(slots=True)
class _PendingWrite:
    """The records of one outcome until they are durable or have failed."""

    token: int
    settled: bool = False
    error: int = ErrorCode.NONE


class _ServedIds:
    """The ids of the topics that the broker serves."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._topics.get_by_id(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> bytes | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id


class GroupService:
    """Runs one coordinator on the broker's event loop."""

    def __init__(
        self,
        topics: ServedTopics,
        settings: GroupSettings,
        flusher: Flusher,
        reactor: Reactor,
        epoch_ms: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._reactor = reactor
        self._epoch_ms = epoch_ms
        self._coordinator = GroupCoordinator(
            settings, lambda: str(uuid.uuid4()), self._partition_exists, _ServedIds(topics)
        )
        self._writes: deque[_PendingWrite] = deque()
        self._timer: Timer | None = None

    @property
    def apis(self) -> Set[Api]:
        """The APIs that ``handle`` answers."""
        return self._coordinator.apis

    def read_metrics(self) -> Iterator[MetricReading]:
        """Read the coordinator's counters and gauges."""
        yield from read("groups", self._coordinator.counters)
        yield from read("groups", self._coordinator.gauges())

    def groups(self) -> list[ClassicGroup]:
        """Return all groups, to read."""
        return self._coordinator.groups()

    def offsets_of(self, group_id: str) -> list[tuple[TopicPartition, int]]:
        """Return what a group has committed."""
        committed = self._coordinator.store.offsets_of(group_id)
        return [(partition, value.offset) for partition, value in committed.items()]

    def load(self) -> None:
        """Replay ``__consumer_offsets``, then accept requests."""
        topic = self._topics.get(OFFSETS_TOPIC)
        for partition in topic.partitions if topic is not None else ():
            for record in _stored_records(partition):
                self._coordinator.apply(record)
        self._take(self._coordinator.loaded(self._moment()))
        # A crash may have come between the deletion of a topic and that of its offsets.
        for name in self._coordinator.committed_topics():
            if self._topics.get(name) is None:
                self.topic_deleted(name)

    def handle(self, request: Request, context: RequestContext) -> None:
        """Pass a request to the coordinator, whose outcomes answer it now or later."""
        caller = Caller(context.client_id, context.client_host, context.version)
        self._take(self._coordinator.handle(request, context, caller, self._moment()))

    def topic_deleted(self, name: str) -> None:
        self._take(self._coordinator.topic_deleted(name, self._moment()))

    def stop(self) -> None:
        """Answer the parked requests, and refuse new ones."""
        if self._timer is not None:
            self._timer.cancel()
        self._take(self._coordinator.stop(self._moment()))

    # --- outcomes

    def _take(self, outcome: Outcome) -> None:
        for reply in outcome.replies:
            reply.ticket.reply(reply.response)
        if outcome.token is not None:
            self._write(_PendingWrite(outcome.token), outcome.records)
        self._plan_tick()

    def _write(self, write: _PendingWrite, records: Iterable[GroupRecord]) -> None:
        self._writes.append(write)
        try:
            partitions = self._append(records)
        except BrokerError as error:
            log.error("cannot store the state of a group: %s", error)
            self._settle(write, error.code)
            return

        def durable(failures: dict[SyncableLog, Exception]) -> None:
            self._settle(write, ErrorCode.KAFKA_STORAGE_ERROR if failures else ErrorCode.NONE)

        self._flusher.when_durable((partition.log for partition in partitions), durable)

    def _append(self, records: Iterable[GroupRecord]) -> list[Partition]:
        """Append the records to the partitions of their groups, one batch per partition."""
        topic = self._offsets_topic()
        epoch_ms = self._epoch_ms()
        by_partition: dict[int, list[RecordData]] = {}
        group_id: str | None = None
        batch: list[RecordData] = []
        for record in records:
            key, value = encode_record(record)
            if record.group_id is not group_id:
                group_id = record.group_id
                batch = by_partition.setdefault(partition_for(group_id, len(topic.partitions)), [])
            batch.append(RecordData(len(batch), epoch_ms, key, value))
        partitions = []
        for index, batch in by_partition.items():
            partition = topic.partitions[index]
            partition.append(encode_batch(batch), epoch_ms, own=True)
            partitions.append(partition)
        return partitions

    def _offsets_topic(self) -> Topic:
        topic = self._topics.get(OFFSETS_TOPIC)
        return topic if topic is not None else self._topics.create_offsets_topic()

    def _settle(self, write: _PendingWrite, error: int) -> None:
        """Report writes in the order in which they were requested, whichever sync ends first."""
        write.settled, write.error = True, error
        while self._writes and self._writes[0].settled:
            done = self._writes.popleft()
            if done.error:
                outcome = self._coordinator.append_failed(done.token, done.error, self._moment())
            else:
                outcome = self._coordinator.appended(done.token, self._moment())
            self._take(outcome)

    # --- time

    def _plan_tick(self) -> None:
        deadline_ms = self._coordinator.next_deadline_ms()
        if self._timer is not None:
            if self._timer.callback is not None and self._timer.deadline_ms == deadline_ms:
                return
            self._timer.cancel()
        self._timer = None if deadline_ms is None else self._reactor.call_at(deadline_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._take(self._coordinator.tick(self._moment()))

    def _moment(self) -> Moment:
        return Moment(self._reactor.now_ms(), self._epoch_ms())

    def _partition_exists(self, partition: TopicPartition) -> bool:
        return self._topics.partition(partition.topic, partition.partition) is not None


def _stored_records(partition: Partition) -> Iterable[GroupRecord]:
    """Read the records of one partition, from its start. Damaged ones are logged and skipped."""
    for batch in _stored_batches(partition):
        try:
            records = decode_batch(batch, max_decompressed_bytes=_MAX_BATCH_BYTES)
        except CorruptBatch as error:
            log.error("%s-%d holds a damaged batch: %s", partition.topic, partition.index, error)
            continue
        yield from _decoded(partition, records)


def _stored_batches(partition: Partition) -> Iterable[memoryview]:
    offset = partition.log.start_offset
    while offset < partition.log.end_offset:
        data = memoryview(partition.log.read(offset, _REPLAY_BYTES, at_least_one=True).read())
        if not data:
            return
        for position, header in iter_headers(data):
            yield data[position : position + header.size]
            offset = header.next_offset


def _decoded(partition: Partition, records: Iterable[RecordData]) -> Iterable[GroupRecord]:
    for record in records:
        try:
            decoded = decode_record(record.key, record.value)
        except CorruptMessage as error:
            where = TopicPartition(partition.topic, partition.index)
            log.error("%s offset %d is not a group record: %s", where, record.offset, error)
            continue
        if decoded is not None:
            yield decoded
