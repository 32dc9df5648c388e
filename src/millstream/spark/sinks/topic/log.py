"""Appends to partitions as an idempotent producer with identities and sequence numbers of our choice.

A broker accepts a producer's batch only if its first sequence number follows the last one, and answers a
duplicate as if it were new (KIP-98). With numbers that count a load's own records in a partition, that is a
compare-and-set: of two drivers that write the same records one succeeds, the other's are taken for duplicates
or refused. A driver that raises the epoch fences all older ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from millstream.admin import Admin
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.targets import AnyNode, Node
from millstream.config import AdminConfig
from millstream.errors import (
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    LeaderNotAvailableError,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    for_code,
)
from millstream.model import Header, TopicPartition
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading.reader import read_range
from millstream.wire.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.wire.records.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.schema import ZERO_UUID

FENCED: Final = (
    OutOfOrderSequenceNumberError,
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    ProducerFencedError,
)
"""Another driver has written with the same identity."""
_TIMEOUT_S: Final = 60.0
_ATTEMPT_S: Final = 15.0
"""How long to wait for one broker before the leader is looked up again."""
_ALL: Final = -1
_NO_TIMEOUT: Final = 60_000
_AT_ONCE: Final = {"fetch.max.wait.ms": 5}
"""The records to read exist: no fetch has to wait at the end of a log."""


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Writes without sequence numbers."""


class OutputRecord(NamedTuple):
    """A record to append."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class TopicLog:
    """Appends to partitions and reads them to their ends. Close it, or use ``with``."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """``settings`` are those of ``Admin``, under Kafka's names."""
        self._settings = dict(settings)
        self.admin = Admin(self._settings)
        """For topics and log ends."""
        self._client = Client(AdminConfig.from_settings(self._settings))
        self._client.close_with(self)
        self._calls = BlockingCalls(self._client)
        self._doubtful: set[str] = set()
        """Topics whose leaders or ids may have changed."""

    def close(self) -> None:
        self.admin.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def new_producer_id(self) -> int:
        """A new producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)

        def check(response: InitProducerIdResponse) -> None:
            if response.error_code:
                raise for_code(response.error_code)("a producer id")

        deadline = Deadline(_TIMEOUT_S)
        answer = self._calls.call(AnyNode(), InitProducerIdResponse, lambda version: request, deadline, check)
        return answer.producer_id

    def append(
        self,
        where: TopicPartition,
        records: Sequence[OutputRecord],
        identity: ProducerIdentity = NO_IDENTITY,
        sequence: int = 0,
    ) -> int:
        """Append one batch, all or nothing; returns the offset of its first record.

        Retries for a minute until a broker answers. Raises one of ``FENCED`` where ``sequence`` is not the
        next one, or the epoch is not the newest.
        """
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [
                RecordData(number, _timestamp(record, now_ms), record.key, record.value, record.headers)
                for number, record in enumerate(records)
            ],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence & 0x7FFFFFFF if identity != NO_IDENTITY else NO_SEQUENCE,
        )
        deadline = Deadline(_TIMEOUT_S)
        return self._calls.retry(lambda: self._attempt(where, batch, deadline), deadline)

    def _attempt(self, where: TopicPartition, batch: bytes, deadline: Deadline) -> int:
        """Send a batch to the known leader; after a failure the next attempt looks the leader up again."""
        brief = Deadline(min(_ATTEMPT_S, deadline.remaining_s))
        try:
            return self._produce(where, batch, brief)
        except MillstreamTimeoutError as error:
            self._doubtful.add(where.topic)
            raise NetworkError(f"{where}: {error.detail}") from error
        except MillstreamError:
            self._doubtful.add(where.topic)
            raise

    def _produce(self, where: TopicPartition, batch: bytes, deadline: Deadline) -> int:
        node_id = self._leader(where, deadline)
        info = self._client.cluster.topic(where.topic)
        topic = TopicProduceData(
            name=where.topic,
            topic_id=ZERO_UUID if info is None else info.topic_id,
            partition_data=[PartitionProduceData(index=where.partition, records=batch)],
        )
        request = ProduceRequest(acks=_ALL, timeout_ms=int(_TIMEOUT_S * 500), topic_data=[topic])
        response = self._calls.call(Node(node_id), ProduceResponse, lambda version: request, deadline)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise for_code(answer.error_code)(f"{where}: {answer.error_message or 'a batch was refused'}")
        return answer.base_offset

    def _leader(self, where: TopicPartition, deadline: Deadline) -> int:
        """The leader, from cached metadata unless that may be stale."""
        cluster = self._client.cluster
        leader = cluster.leader(*where)
        if leader is None or where.topic in self._doubtful:
            cluster = self._calls.refresh_metadata([where.topic], deadline)
            leader = cluster.leader(*where)
            if leader is None:
                raise cluster.errors.get(where.topic) or LeaderNotAvailableError(f"{where}")
            self._doubtful.discard(where.topic)
        return leader.node_id

    def bound(self, where: TopicPartition, spec: str) -> int:
        """The log's first offset (``earliest``) or its end (``latest``)."""
        found = self.admin.list_offsets([where], spec)[where]
        assert found is not None, "both are always there"
        return found.offset

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic; raises UnknownTopicOrPartitionError where there is none."""
        return [each.topic_partition for each in self.admin.describe_topics(topic)[topic].partitions]

    def read(self, where: TopicPartition, start: int, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The records from ``start``, or from the log's first offset, to its current end."""
        end = self.bound(where, "latest")
        if start >= end:
            return
        part = OffsetRange(*where, max(start, self.bound(where, "earliest")), end)
        for batch in read_range(
            self._settings | _AT_ONCE, part, headers="headers" in columns, columns=columns
        ):
            yield from batch.to_pylist()


def _timestamp(record: OutputRecord, now_ms: int) -> int:
    return now_ms if record.timestamp_ms is None or record.timestamp_ms < 0 else record.timestamp_ms
