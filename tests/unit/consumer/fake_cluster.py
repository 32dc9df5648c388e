"""A cluster in memory for the fetcher's tests: real batches, real messages, and sessions as KIP-227 has them.

Requests and responses go through their wire format, so that what a version lacks is lost as in real life.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.client.cluster import BrokerInfo, Cluster, PartitionInfo, TopicInfo
from millstream.client.targets import Node
from millstream.consumer.sends import Send
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import ControlType, RecordData, encode_batch
from millstream.wire.records.crc32c import crc32c
from millstream.wire.schema import ZERO_UUID, Request, Response

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)

LATEST_VERSIONS: dict[type[Request], int] = {
    FetchRequest: 18,
    ListOffsetsRequest: 10,
    OffsetForLeaderEpochRequest: 4,
}


def topic_id(topic: str, incarnation: int = 0) -> bytes:
    return topic.encode().ljust(15, b".") + bytes([incarnation + 1])


@dataclass
class FakeLog:
    """One partition: whole batches as a broker keeps them, and where each leader epoch began."""

    leader: int = 0
    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Transactions that ended badly: the producer, the first offset, and that of the marker."""
    last_stable_offset: int | None = None
    preferred_replica: int = -1
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start_offset

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, *values: bytes | None, gap_after: int = 0, **options: object) -> int:
        """Append one batch with these values; ``gap_after`` offsets at its end are compacted away."""
        base = self.end_offset
        records = [
            RecordData(base + i, 1_000 + base + i, f"k{base + i}".encode(), value)
            for i, value in enumerate(values)
        ]
        self.append_records(records, gap_after=gap_after, **options)
        return base

    def append_records(self, records: Sequence[RecordData], *, gap_after: int = 0, **options: object) -> None:
        base = self.end_offset
        tail = [RecordData(records[-1].offset + gap_after, 0, None, None)] if gap_after else []
        batch = encode_batch(
            [*records, *tail],
            base_offset=base,
            partition_leader_epoch=self.epoch,
            **options,  # type: ignore[arg-type]
        )
        if gap_after:  # encode without the tail, but with the tail's last offset delta
            batch = _with_last_offset(
                encode_batch(
                    records,
                    base_offset=base,
                    partition_leader_epoch=self.epoch,
                    **options,  # type: ignore[arg-type]
                ),
                read_header(batch).last_offset_delta,
            )
        self.batches.append(batch)

    def append_marker(self, producer_id: int, control_type: ControlType) -> None:
        base = self.end_offset
        key = struct.pack(">hh", 0, control_type)
        value = struct.pack(">hi", 0, 0)  # with the epoch of the coordinator
        self.batches.append(
            encode_batch(
                [RecordData(base, 0, key, value)],
                base_offset=base,
                partition_leader_epoch=self.epoch,
                producer_id=producer_id,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )

    def new_epoch(self, epoch: int, leader: int | None = None) -> None:
        self.epochs.append((epoch, self.end_offset))
        self.leader = self.leader if leader is None else leader

    def truncate(self, offset: int) -> None:
        """Lose everything from this offset on, as after an unclean election."""
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset < offset]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start <= offset]

    def read(self, offset: int, max_bytes: int) -> bytes:
        """From the batch that holds the offset on: at least one batch, and the last one cut at the limit."""
        found = b"".join(batch for batch in self.batches if read_header(batch).next_offset > offset)
        first = read_header(found).size if found else 0
        return found[: max(first, max_bytes)]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends; -1 for an epoch that is still to come."""
        known = [one for one, _ in self.epochs if one <= epoch]
        if not known or epoch > self.epoch:  # as in Kafka
            return -1, -1
        later = [start for one, start in self.epochs if one > epoch]
        return known[-1], (later[0] if later else self.end_offset)


def _with_last_offset(batch: bytes, delta: int) -> bytes:
    """The batch with another last offset delta, and the CRC made anew, as a cleaner would leave it."""
    patched = bytearray(batch)
    patched[23:27] = delta.to_bytes(4, "big")
    patched[17:21] = crc32c(bytes(patched[21:])).to_bytes(4, "big")
    return bytes(patched)


@dataclass
class _Session:
    epoch: int
    partitions: dict[tuple[str | bytes, int], FetchPartition]


class FakeCluster:
    """Brokers that lead partitions. ``versions`` are what they speak."""

    def __init__(self, logs: dict[TopicPartition, FakeLog], nodes: int = 2) -> None:
        self.logs = logs
        self.nodes = nodes
        self.versions = dict(LATEST_VERSIONS)
        self.incarnation = 0
        self.has_topic_ids = True
        self.sessions: dict[tuple[int, int], _Session] = {}
        self.keeps_sessions = True
        self.fetch_requests: list[tuple[int, FetchRequest]] = []
        self._next_session = 100

    def metadata(self) -> Cluster:
        topics: dict[str, list[PartitionInfo]] = {}
        for partition, log in sorted(self.logs.items()):
            infos = topics.setdefault(partition.topic, [])
            while len(infos) < partition.partition:
                infos.append(PartitionInfo(partition.topic, len(infos), None, None))
            infos.append(
                PartitionInfo(
                    partition.topic,
                    partition.partition,
                    log.leader if log.leader >= 0 else None,
                    log.epoch,
                    offline_replicas=log.offline_replicas,
                )
            )
        return Cluster(
            brokers={node: BrokerInfo(node, "h", 9092) for node in range(self.nodes)},
            topics={
                name: TopicInfo(name, self._id_of(name), False, tuple(infos))
                for name, infos in topics.items()
            },
            errors={},
        )

    def _id_of(self, name: str) -> bytes:
        return topic_id(name, self.incarnation) if self.has_topic_ids else ZERO_UUID

    def answer(self, send: Send) -> Response:
        """What the broker answers, after a trip over the wire in both directions."""
        version = self.versions[send.request_type]
        if send.max_version is not None:
            version = min(version, send.max_version)
        request = send.request_type.decode(send.build(version).encode(version), version)
        assert isinstance(send.target, Node)
        handle: dict[type[Request], Callable[..., Response]] = {
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            OffsetForLeaderEpochRequest: self._offset_for_epoch,
        }
        response = handle[send.request_type](send.target.node_id, request, version)
        return type(response).decode(response.encode(version), version)

    # -- fetch

    def _fetch(self, node: int, request: FetchRequest, version: int) -> FetchResponse:
        self.fetch_requests.append((node, request))
        named = {
            ((topic.topic_id if version >= 13 else topic.topic), one.partition): one
            for topic in request.topics
            for one in topic.partitions
        }
        session_id = 0
        if version >= 7:
            if request.session_id and request.session_epoch in (0, -1):
                self.sessions.pop((node, request.session_id), None)
            if request.session_epoch == 0 and self.keeps_sessions:
                self._next_session += 1
                session_id = self._next_session
                self.sessions[node, session_id] = _Session(0, named)
            elif request.session_epoch > 0:
                session = self.sessions.get((node, request.session_id))
                if session is None:
                    return self._fetch_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                if request.session_epoch != session.epoch + 1:
                    return self._fetch_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
                session.epoch += 1
                session_id = request.session_id
                for topic in request.forgotten_topics_data:
                    for index in topic.partitions:
                        key = topic.topic_id if version >= 13 else topic.topic
                        session.partitions.pop((key, index))
                session.partitions.update(named)
                named = session.partitions
        full = request.session_epoch <= 0
        return FetchResponse(
            session_id=session_id,
            responses=self._fetch_answers(node, request, named, full=full),
        )

    @staticmethod
    def _fetch_error(code: ErrorCode) -> FetchResponse:
        return FetchResponse(error_code=code, responses=[])

    def _fetch_answers(
        self,
        node: int,
        request: FetchRequest,
        named: dict[tuple[str | bytes, int], FetchPartition],
        *,
        full: bool,
    ) -> list[FetchableTopicResponse]:
        topics: list[FetchableTopicResponse] = []
        left = request.max_bytes
        for (key, index), wanted in named.items():
            answer = self._fetch_partition(node, request, key, index, wanted, left)
            data = answer.records or b""
            if left < request.max_bytes and len(data) > max(left, 0):
                answer.records = data = b""  # only the first data may pass the limit
            left -= len(data)
            if full or data or answer.error_code or answer.preferred_read_replica >= 0:
                topics.append(
                    FetchableTopicResponse(
                        topic=key if isinstance(key, str) else "",
                        topic_id=key if isinstance(key, bytes) else bytes(16),
                        partitions=[answer],
                    )
                )
        return topics

    def _fetch_partition(
        self,
        node: int,
        request: FetchRequest,
        key: str | bytes,
        index: int,
        wanted: FetchPartition,
        left: int,
    ) -> PartitionData:
        name = key if isinstance(key, str) else self._name_of(key)
        log = self.logs.get(TopicPartition(name, index)) if name else None
        if log is None:
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(key, str) else ErrorCode.UNKNOWN_TOPIC_ID
            )
            return _empty(index, code)
        if error := self._leader_error(log, node, wanted.current_leader_epoch):
            return _empty(index, error)
        if not log.start_offset <= wanted.fetch_offset <= log.end_offset:
            return _empty(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        stable = log.end_offset if log.last_stable_offset is None else log.last_stable_offset
        if node == log.leader and log.preferred_replica >= 0 and request.rack_id:
            answer = _empty(index, ErrorCode.NONE)
            answer.preferred_read_replica = log.preferred_replica
        else:
            answer = _empty(index, ErrorCode.NONE)
            answer.records = log.read(wanted.fetch_offset, min(wanted.partition_max_bytes, max(left, 0)))
        answer.high_watermark, answer.last_stable_offset = log.end_offset, stable
        answer.log_start_offset = log.start_offset
        if request.isolation_level:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first, marker in log.aborted
                if marker >= wanted.fetch_offset
            ]
        return answer

    def _name_of(self, key: bytes) -> str | None:
        names = {topic_id(partition.topic, self.incarnation): partition.topic for partition in self.logs}
        return names.get(key)

    @staticmethod
    def _leader_error(log: FakeLog, node: int, epoch: int) -> ErrorCode:
        if log.error:
            return log.error
        if node not in (log.leader, log.preferred_replica):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else ErrorCode.NONE

    # -- offsets

    def _list_offsets(self, node: int, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._list_one(
                            node,
                            TopicPartition(topic.name, one.partition_index),
                            one.timestamp,
                            one.current_leader_epoch,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list_one(
        self, node: int, partition: TopicPartition, timestamp: int, epoch: int
    ) -> ListOffsetsPartitionResponse:
        log = self.logs.get(partition)
        error = self._leader_error(log, node, epoch) if log else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = ListOffsetsPartitionResponse(partition_index=partition.partition, error_code=error)
        if log is None or error:
            return answer
        answer.leader_epoch = log.epoch
        if timestamp == -2:
            answer.offset = log.start_offset
        elif timestamp == -1:
            answer.offset = log.end_offset
        else:
            found = max(log.start_offset, timestamp - 1_000)  # timestamps are offset + 1000
            if found < log.end_offset:
                answer.offset, answer.timestamp = found, found + 1_000
        return answer

    def _offset_for_epoch(
        self, node: int, request: OffsetForLeaderEpochRequest, version: int
    ) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, one.partition)]
                error = self._leader_error(log, node, one.current_leader_epoch)
                epoch, end = (-1, -1) if error else log.end_of_epoch(one.leader_epoch)
                answers.append(
                    EpochEndOffset(
                        error_code=error, partition=one.partition, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)


def _empty(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
