"""Handles Fetch: sends slices of logs at once, or as soon as there is enough to send.

A fetch that finds less than ``min_bytes`` is parked: it is registered with its partitions, and an append to
one of them wakes it. Nothing polls; a parked fetch costs no more than its timer.
"""

from __future__ import annotations

from typing import Final

from millstream.broker.dispatch import handles
from millstream.broker.fetch_sessions import CachedPartition, FetchContext, Key
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Partition
from millstream.broker.services import Services
from millstream.errors import BrokerError, ErrorCode, OffsetOutOfRangeError
from millstream.net.reactor import Timer
from millstream.wire.messages.fetch import (
    FETCH,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)

TOPIC_ID_VERSION: Final = 13
READ_COMMITTED: Final = 1
Answers = list[tuple[Key, CachedPartition, PartitionData]]


@handles(FETCH)
def fetch(broker: Services, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Answer at once if there is enough, or park until ``min_bytes`` or ``max_wait_ms`` is reached."""
    by_id = context.version >= TOPIC_ID_VERSION
    plan = broker.fetch_sessions.plan(request, broker.reactor.now_ms(), by_id=by_id)
    if plan.error_code:
        return FetchResponse(error_code=plan.error_code, responses=[])
    fetch = ParkedFetch(broker, request, context, plan)
    answers = fetch.read()
    if fetch.is_satisfied(answers):
        return fetch.response(answers)
    fetch.park()
    return None


class ParkedFetch:
    """One fetch, from the first read of the logs until its answer."""

    def __init__(
        self, broker: Services, request: FetchRequest, context: RequestContext, plan: FetchContext
    ) -> None:
        self._broker = broker
        self._request = request
        self._context = context
        self._plan = plan
        self._by_id = context.version >= TOPIC_ID_VERSION
        self._partitions: list[Partition] = []
        self._timer: Timer | None = None
        self._wake_planned = False
        self._answered = False
        self._bytes_seen = 0

    def read(self) -> Answers:
        """Read every partition, in the session's order, up to the size limit of the answer."""
        budget = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        answers: Answers = []
        empty = True
        self._partitions = []
        for key, cached in self._plan.partitions:
            answer = self._read_partition(key, cached, budget, at_least_one=empty)
            size = len(answer.records) if answer.records is not None else 0
            budget -= size
            empty = empty and not size
            answers.append((key, cached, answer))
        return answers

    def is_satisfied(self, answers: Answers) -> bool:
        request = self._request
        if request.max_wait_ms <= 0 or not self._plan.partitions:
            return True
        total = 0
        for _, _, answer in answers:
            if answer.error_code or answer.diverging_epoch is not None:
                return True
            total += len(answer.records) if answer.records is not None else 0
        self._bytes_seen = total
        return total >= request.min_bytes

    def response(self, answers: Answers) -> FetchResponse:
        """Build the answer. An incremental one leaves out partitions without changes."""
        session = self._plan.session
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for key, cached, answer in answers:
            if session is not None:
                news = cached.has_changed(answer)
                if self._plan.incremental and not news:
                    continue
                if answer.records is not None and len(answer.records) and key in session.partitions:
                    session.rotate(key)
            name, topic_id, _ = key
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
                topics[name, topic_id] = topic
            topic.partitions.append(answer)
        return FetchResponse(session_id=self._plan.session_id, responses=list(topics.values()))

    def park(self) -> None:
        """Wait for appends to any partition, or for the deadline."""
        for partition in self._partitions:
            partition.waiters.add(self)
        reactor = self._broker.reactor
        wait_ms = min(self._request.max_wait_ms, 600_000)
        self._timer = reactor.call_at(reactor.now_ms() + wait_ms, self._expire)
        self._context.on_abandoned = self._leave
        self._broker.metrics.parked_fetches += 1

    def appended(self, size: int) -> None:
        """``size`` bytes were appended to a partition: read again if there can be enough now."""
        self._bytes_seen += size
        if not self._wake_planned and self._bytes_seen >= self._request.min_bytes:
            self._wake_planned = True
            self._broker.reactor.defer(self._read_again)

    def changed(self) -> None:
        """A partition was deleted or truncated: read again in any case."""
        if not self._wake_planned:
            self._wake_planned = True
            self._broker.reactor.defer(self._read_again)

    def _read_again(self) -> None:
        self._wake_planned = False
        if self._answered:
            return
        answers = self.read()
        if self.is_satisfied(answers):
            self._answer(answers)

    def _expire(self) -> None:
        if not self._answered:
            self._answer(self.read())

    def _answer(self, answers: Answers) -> None:
        self._leave()
        self._context.reply(self.response(answers))

    def _leave(self) -> None:
        """Stop waiting: the fetch is answered, or the client is gone."""
        self._answered = True
        for partition in self._partitions:
            partition.waiters.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._broker.metrics.parked_fetches -= 1

    def _find(self, key: Key, cached: CachedPartition) -> tuple[Partition | None, int]:
        """Return the partition, or None and an error. As in Kafka, a session remembers a topic's name."""
        name, topic_id, index = key
        topic, error = self._broker.topics.resolve(name, topic_id, by_id=self._by_id)
        if topic is not None:
            cached.topic_name = topic.name
            return topic.partition(index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if cached.topic_name:
            successor = self._broker.topics.get(cached.topic_name)
            recreated = successor is not None and successor.partition(index) is not None
            error = ErrorCode.INCONSISTENT_TOPIC_ID if recreated else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None, error

    def _read_partition(
        self, key: Key, cached: CachedPartition, budget: int, *, at_least_one: bool
    ) -> PartitionData:
        wanted, index = cached.request, key[2]
        partition, error = self._find(key, cached)
        if partition is None:
            return _unknown(index, error)
        self._partitions.append(partition)
        log = partition.log
        problem = partition.epoch_problem(wanted.current_leader_epoch)
        if problem:
            return _failed(index, problem, partition)
        limit = max(0, min(wanted.partition_max_bytes, budget))
        try:
            diverging = _diverging(partition, wanted)
            if diverging is not None:
                return self._data(partition, None, diverging)
            records = log.read(wanted.fetch_offset, limit, at_least_one=at_least_one)
        except BrokerError as error:
            return _failed(index, error.code, partition)
        return self._data(partition, records)

    def _data(
        self, partition: Partition, records: object, diverging: EpochEndOffset | None = None
    ) -> PartitionData:
        log = partition.log
        read_committed = self._request.isolation_level == READ_COMMITTED
        return PartitionData(
            partition_index=partition.index,
            error_code=ErrorCode.NONE,
            high_watermark=log.end_offset,
            last_stable_offset=log.end_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging,
            aborted_transactions=[] if read_committed and diverging is None else None,
            records=b"" if records is None else records,
        )


def _diverging(partition: Partition, wanted: FetchPartition) -> EpochEndOffset | None:
    """Return where the consumer's last epoch ended, if that is before its position (KIP-595).

    As in Kafka, a position with an epoch that this log never had is out of range.
    """
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        raise OffsetOutOfRangeError(f"the log does not know epoch {wanted.last_fetched_epoch}")
    if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end)
    return None


def _unknown(index: int, code: int) -> PartitionData:
    """Answer for an unknown partition. (Only here does Kafka send an empty list instead of null.)"""
    aborted = None if code == ErrorCode.INCONSISTENT_TOPIC_ID else list[AbortedTransaction]()
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=aborted, records=b""
    )


def _failed(index: int, code: int, partition: Partition) -> PartitionData:
    """Answer with an error, and with the leader's epoch if the consumer's is older."""
    answer = PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        epoch = partition.log.leader_epoch
        answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=epoch)
    return answer
