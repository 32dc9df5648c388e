"""Handles Fetch: sends slices of logs at once, or as soon as there is enough to send.

Only partitions that may have news are read (``fetch_sessions``). A fetch that finds less than ``min_bytes``
is parked: its partitions are watched, and an append to one of them wakes it, to read that one. Nothing polls;
a parked fetch costs no more than its timer, however many partitions its session has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.broker.dispatch import handles
from millstream.broker.fetch_sessions import CachedPartition, FetchContext
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


class Answer(NamedTuple):
    """What was read of one partition; ``partition`` is None where there is no such partition."""

    cached: CachedPartition
    partition: Partition | None
    data: PartitionData

    @property
    def is_read_up(self) -> bool:
        """Whether there is nothing left to read, and nothing wrong."""
        if self.partition is None or self.data.error_code or self.data.diverging_epoch is not None:
            return False
        return self.cached.request.fetch_offset == self.partition.log.end_offset


Answers = list[Answer]


@handles(FETCH)
def fetch(broker: Services, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Answer at once if there is enough, or park until ``min_bytes`` or ``max_wait_ms`` is reached."""
    by_id = context.version >= TOPIC_ID_VERSION
    plan = broker.fetch_sessions.plan(request, broker.reactor.now_ms(), by_id=by_id)
    if plan.error_code:
        return FetchResponse(error_code=plan.error_code, responses=[])
    limit = broker.quotas.fetch_limit(context)
    if limit is not None:
        request.max_bytes = min(request.max_bytes, limit)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
    fetch = ParkedFetch(broker, request, context, plan)
    answers = fetch.read()
    if fetch.is_satisfied(answers):
        return fetch.response(answers)
    fetch.park(answers)
    return None


class ParkedFetch:
    """One fetch, from the first read of the logs until its answer."""

    def __init__(
        self, broker: Services, request: FetchRequest, context: RequestContext, plan: FetchContext
    ) -> None:
        self._broker = broker
        self._request = request
        self._context = context
        self._session = plan.session
        self._incremental = plan.incremental
        self._by_id = context.version >= TOPIC_ID_VERSION
        self._timer: Timer | None = None
        self._wake_planned = False
        self._answered = False
        self._bytes_seen = 0

    def read(self) -> Answers:
        """Read each partition that may have news, up to the size limit of the answer.

        What an incremental answer has no room for has its turn in a later one.
        """
        budget = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        answers: Answers = []
        empty = True
        for cached in self._session.changed.values():
            if self._incremental and budget <= 0 and not empty:
                break
            answer = self._read_partition(cached, budget, at_least_one=empty)
            size = len(answer.data.records) if answer.data.records is not None else 0
            budget -= size
            empty = empty and not size
            answers.append(answer)
        return answers

    def is_satisfied(self, answers: Answers) -> bool:
        request = self._request
        if request.max_wait_ms <= 0 or not self._session.partitions:
            return True
        total = 0
        for _, _, data in answers:
            if data.error_code or data.diverging_epoch is not None:
                return True
            total += len(data.records) if data.records is not None else 0
        self._bytes_seen = total
        return total >= request.min_bytes

    def response(self, answers: Answers) -> FetchResponse:
        """Build the answer. An incremental one leaves out partitions without news.

        While the client is over its quota, it is empty, and the session stays as it was before.
        """
        size = sum(len(answer.data.records) for answer in answers if answer.data.records is not None)
        throttle_ms = self._broker.quotas.fetched(self._context, size)
        if throttle_ms:
            return self._throttled(throttle_ms)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for answer in answers:
            cached, partition, data = answer
            self._count(partition, data)
            if not self._sent(answer) and self._incremental:
                continue
            name, topic_id, _ = cached.key
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
                topics[name, topic_id] = topic
            topic.partitions.append(data)
        return FetchResponse(session_id=self._session.session_id, responses=list(topics.values()))

    def _count(self, partition: Partition | None, data: PartitionData) -> None:
        if data.error_code:
            self._context.count_error(data.error_code)
        elif data.records and partition is not None:
            self._broker.metrics.topic_bytes_out.add(partition.topic, len(data.records))

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        session = self._session
        if not self._incremental:  # as in Kafka, the session of a full fetch begins with its first records
            self._broker.fetch_sessions.drop(session.session_id)
            return FetchResponse(responses=[], throttle_time_ms=throttle_ms)
        return FetchResponse(session_id=session.session_id, responses=[], throttle_time_ms=throttle_ms)

    def _sent(self, answer: Answer) -> bool:
        """Note in the session what the consumer is told; return whether it is news."""
        session, (cached, partition, data) = self._session, answer
        news = cached.has_news(data)
        if not session.ended:
            cached.sent(data)
            if data.records:
                session.rotate(cached.key)
            elif answer.is_read_up:
                session.settle(cached.key)
                cached.watch(partition)
        return news

    def park(self, answers: Answers) -> None:
        """Wait for changes of any partition, or for the deadline."""
        self._watch(answers)
        self._session.parked.add(self)
        reactor = self._broker.reactor
        wait_ms = min(self._request.max_wait_ms, 600_000)
        self._timer = reactor.call_at(reactor.now_ms() + wait_ms, self._expire)
        self._context.on_abandoned = self._leave
        self._broker.metrics.parked_fetches += 1

    def _watch(self, answers: Answers) -> None:
        """Read these partitions again when they have changed; until then only those with news."""
        for answer in answers:
            cached = answer.cached
            cached.watch(answer.partition)
            # A full answer reads all again. In an incremental one, news without records waits for its turn.
            if answer.is_read_up and not (self._incremental and cached.has_news(answer.data)):
                self._session.settle(cached.key)

    def appended(self, size: int) -> None:
        """``size`` bytes were appended to a partition: read again if there can be enough now."""
        self._bytes_seen += size
        if self._bytes_seen >= self._request.min_bytes:
            self.changed()

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
        else:
            self._watch(answers)

    def _expire(self) -> None:
        if not self._answered:
            self._answer(self.read())

    def _answer(self, answers: Answers) -> None:
        self._leave()
        if not self._incremental:  # it contains every partition
            self._session.changed = dict(self._session.partitions)
            answers = self.read()
        self._context.reply(self.response(answers))

    def _leave(self) -> None:
        """Stop waiting: the fetch is answered, or the client is gone."""
        self._answered = True
        self._session.parked.discard(self)
        self._session.release()
        if self._timer is not None:
            self._timer.cancel()
        self._broker.metrics.parked_fetches -= 1

    def _find(self, cached: CachedPartition) -> tuple[Partition | None, int]:
        """Return the partition, or None and an error. As in Kafka, a session remembers a topic's name."""
        name, topic_id, index = cached.key
        topic, error = self._broker.topics.resolve(name, topic_id, by_id=self._by_id)
        if topic is not None:
            cached.topic_name = topic.name
            return topic.partition(index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if cached.topic_name:
            successor = self._broker.topics.get(cached.topic_name)
            recreated = successor is not None and successor.partition(index) is not None
            error = ErrorCode.INCONSISTENT_TOPIC_ID if recreated else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None, error

    def _read_partition(self, cached: CachedPartition, budget: int, *, at_least_one: bool) -> Answer:
        partition, error = self._find(cached)
        permits = self._context.permits_topic
        name = cached.key[0] if partition is None else partition.topic
        if permits is not None and name and not permits(name):
            return Answer(cached, None, _unknown(cached.key[2], ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        if partition is None:
            return Answer(cached, None, _unknown(cached.key[2], error))
        return Answer(cached, partition, self._read_log(partition, cached.request, budget, at_least_one))

    def _read_log(
        self, partition: Partition, wanted: FetchPartition, budget: int, at_least_one: bool
    ) -> PartitionData:
        problem = partition.epoch_problem(wanted.current_leader_epoch)
        if problem:
            return _failed(partition.index, problem, partition)
        limit = max(0, min(wanted.partition_max_bytes, budget))
        try:
            diverging = _diverging(partition, wanted)
            if diverging is not None:
                return self._data(partition, None, diverging)
            records = partition.log.read(wanted.fetch_offset, limit, at_least_one=at_least_one)
        except BrokerError as error:
            return _failed(partition.index, error.code, partition)
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
