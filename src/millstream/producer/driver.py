"""The producer on the I/O thread: sends the batches that ``Sender`` plans, and reports the outcomes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.client.backoff import Backoff
from millstream.client.chance import chance
from millstream.client.client import Client
from millstream.client.cluster import BrokerInfo, Cluster
from millstream.client.metrics import counter
from millstream.config import ProducerConfig
from millstream.errors import (
    Action,
    BrokerError,
    ErrorCode,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
    for_code,
)
from millstream.model import TopicPartition
from millstream.producer import compiled_encoder
from millstream.producer.core.accumulator import NEVER_MS, Accumulator, BatchLimits
from millstream.producer.core.batch import Batch, PartitionQueue, encode_together
from millstream.producer.core.sender import FinishedBatch, Sender, SendLimits
from millstream.producer.core.sequences import Sequences
from millstream.producer.futures import Delivery, DeliveryLock
from millstream.wire.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.wire.records.batch_header import BATCH_OVERHEAD
from millstream.wire.records.codecs import Codec
from millstream.wire.schema import ZERO_UUID

log = logging.getLogger("millstream.producer")

_LAST_VERSION_WITH_NAMES = 12
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1
_LEADER_CHANGES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(eq=False)
class ProducerMetrics:
    """Counters of records and batches."""

    records_delivered: int = counter("records that brokers acknowledged")
    records_failed: int = counter("records that were not delivered")
    batches_sent: int = counter("batches sent, retries included")
    batch_bytes: int = counter("bytes of the batches sent, compressed")


class ProducerDriver:
    """A core of the client, polled on the I/O thread. Holds no reference to the Producer itself."""

    def __init__(self, client: Client, config: ProducerConfig) -> None:
        self.client = client
        self.metrics = ProducerMetrics()
        self.deliveries = DeliveryLock(client.io.check_running)
        client.io.on_fork.append(self.deliveries.renew)
        self._when_idle: Callable[[], None] | None = None
        self._acks = config.acks
        self._request_timeout_ms = config.request_timeout_ms
        self._codec = Codec[config.compression_type.upper()]
        self._level = config.level_of(self._codec)
        self._id_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._id_requested = False
        self._id_failures = 0
        self._id_retry_at_ms = 0
        self.sequences = Sequences() if config.enable_idempotence else None
        self.accumulator = Accumulator(
            BatchLimits(_batch_size(config), config.linger_ms, config.buffer_memory),
            lambda topic, partition, times: Delivery(self.deliveries, topic, partition, times),
            chance,
        )
        self.sender = Sender(
            self.accumulator,
            self.sequences,
            SendLimits(
                max_request_size=config.max_request_size,
                delivery_timeout_ms=config.delivery_timeout_ms,
                retries=config.retries,
                backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
                one_at_a_time=config.max_in_flight_requests_per_connection == 1,
            ),
            Delivery.split,
            chance,
        )
        self._register_metrics()

    def _register_metrics(self) -> None:
        metrics, sender, accumulator = self.client.metrics, self.sender, self.accumulator
        metrics.include(self.metrics)
        metrics.register("batch_retries", "batches sent again", lambda: sender.retries)
        metrics.register("batch_splits", "batches split as too large", lambda: sender.splits)
        metrics.register("batches_pending", "batches without an outcome", lambda: len(accumulator.incomplete))
        metrics.register(
            "buffer_free_bytes", "bytes of buffer_memory that are free", lambda: accumulator.free_bytes
        )

    # -- the core

    def poll(self, now_ms: int) -> None:
        """Send all batches that may be sent now."""
        if self.client.refusal is not None and self.accumulator.incomplete:
            self.abort(self.client.refusal)
        while True:
            with self.deliveries.lock:
                plan = self.sender.plan(now_ms, self.client.cluster, self.client.has_room)
            self._finish(plan.finished)
            if plan.leaderless_topics:
                self._look_up(plan.leaderless_topics)
            if plan.needs_producer_id:
                self._request_id(now_ms)
            if not plan.requests:
                break
            for node_id, batches in plan.requests:
                began_ms = self.client.now_ms()
                self._produce(node_id, batches, now_ms)
                self.sender.made(node_id, len(batches), self.client.now_ms() - began_ms)
        if self._when_idle is not None and not self.accumulator.incomplete:
            then, self._when_idle = self._when_idle, None
            then()

    def next_wake_ms(self, now_ms: int) -> int | None:
        wake_ms = self.accumulator.wakes_at_ms
        if self._id_retry_at_ms > now_ms:
            wake_ms = min(wake_ms, self._id_retry_at_ms)
        return None if wake_ms == NEVER_MS else wake_ms

    def cluster_changed(self, cluster: Cluster) -> None:
        """Take over new partitions, and which partitions have leaders."""
        with self.deliveries.lock:
            for name in self.accumulator.topics:
                info = cluster.topic(name)
                if info is not None:
                    available = [p.partition for p in info.partitions if p.leader is not None]
                    self.accumulator.update_topic(name, len(info.partitions), available)

    # -- from any thread

    def start(self) -> None:
        """Take part in the client's loop."""
        compiled_encoder.background.on_volume()

        def attach() -> None:
            self.client.on_metadata(self.cluster_changed)
            self.client.attach(self)

        self.client.submit(attach)

    def flush(self, timeout_s: float | None) -> None:
        """Send all batches without lingering, and wait for their outcomes and callbacks.

        May raise MillstreamTimeoutError.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self.deliveries.lock:
            pending = list(self.accumulator.incomplete)
            self.accumulator.flushing += 1
            try:
                self.client.wake()
                for batch in pending:
                    while not batch.delivery.is_settled:
                        if not self.deliveries.wait(deadline_s):
                            raise self._flush_timed_out(timeout_s)
                if not self.deliveries.wait_called(deadline_s):
                    raise self._flush_timed_out(timeout_s)
            finally:
                self.accumulator.flushing -= 1

    def _flush_timed_out(self, timeout_s: float | None) -> MillstreamTimeoutError:
        left = sum(batch.records for batch in self.accumulator.incomplete)
        return MillstreamTimeoutError(f"{left} records were not delivered within {timeout_s:.3g} seconds")

    def release_waiters(self) -> None:
        """The I/O thread has ended: wake all threads that wait for it."""
        with self.deliveries.lock:
            self.deliveries.notify()

    def end_when_idle(self, then: Callable[[], None]) -> None:
        """Call ``then`` on the I/O thread once every record has its outcome."""
        self._when_idle = then
        self.client.wake()

    def abort(self, error: MillstreamError) -> None:
        """Fail all records without an outcome."""
        with self.deliveries.lock:
            finished = self.sender.abort_all(error)
        self._finish(finished)

    # -- requests

    def _look_up(self, topics: set[str]) -> None:
        """Refresh metadata for waiting records; may recreate a topic that was deleted."""
        self.client.metadata.touch(topics)
        self.client.metadata.refresh(topics, create=True)

    def _produce(self, node_id: int, batches: list[Batch], now_ms: int) -> None:
        try:
            encode_together(batches, self._codec)
        except Exception:  # each is encoded alone, where a fault fails its own batch and no other
            log.warning("%d batches could not be encoded together", len(batches), exc_info=True)
        by_topic: dict[str, list[Batch]] = {}
        for batch in batches:
            if self._encode(batch, now_ms):
                by_topic.setdefault(batch.queue.topic, []).append(batch)
        if not by_topic:
            return
        self.client.metadata.touch(by_topic)
        infos = {topic: self.client.cluster.topic(topic) for topic in by_topic}
        ids = {topic: ZERO_UUID if info is None else info.topic_id for topic, info in infos.items()}
        sent = [batch for group in by_topic.values() for batch in group]
        self.client.send(
            node_id,
            ProduceRequest,
            lambda version: self._build(by_topic, ids),
            lambda response: self._answered(response, sent, ids),
            lambda error: self._failed(sent, error),
            timeout_ms=self._request_timeout_ms,
            max_version=_LAST_VERSION_WITH_NAMES if ZERO_UUID in ids.values() else None,
            expects_response=self._acks != 0,
        )

    def _encode(self, batch: Batch, now_ms: int) -> bool:
        try:
            encoded = batch.encode(self._codec, self._level)
        except Exception as error:  # noqa: BLE001 - a missing or failing codec must fail the batch, not lose it
            reason = MillstreamError(f"a batch for {batch.queue} cannot be encoded: {error!r}")
            with self.deliveries.lock:
                finished = self.sender.refused(batch, reason, now_ms)
            self._finish(finished)
            return False
        self.metrics.batches_sent += 1
        self.metrics.batch_bytes += len(encoded)
        return True

    def _build(self, by_topic: dict[str, list[Batch]], ids: dict[str, bytes]) -> ProduceRequest:
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=ids[topic],
                    partition_data=[
                        PartitionProduceData(index=batch.queue.partition, records=batch.encoded)
                        for batch in batches
                    ],
                )
                for topic, batches in by_topic.items()
            ],
        )

    def _request_id(self, now_ms: int) -> None:
        if self._id_requested or now_ms < self._id_retry_at_ms:
            return
        self._id_requested = True
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )
        self.client.send(
            None, InitProducerIdRequest, lambda version: request, self._id_answered, self._id_failed
        )

    def _id_answered(self, response: InitProducerIdResponse) -> None:
        if response.error_code:
            self._id_failed(for_code(response.error_code)("requesting a producer id"))
            return
        assert self.sequences is not None, "only an idempotent producer requests an id"
        self._id_requested = False
        self._id_failures = 0
        with self.deliveries.lock:
            self.sequences.assigned(response.producer_id, response.producer_epoch)
        log.debug("producer id %d, epoch %d", response.producer_id, response.producer_epoch)
        self.client.poll_soon()

    def _id_failed(self, error: MillstreamError) -> None:
        self._id_requested = False
        self._id_failures += 1
        delay_ms = self._id_backoff.delay_ms(self._id_failures, chance())
        self._id_retry_at_ms = self.client.now_ms() + delay_ms
        if isinstance(error, BrokerError) and error.retriable:
            log.debug("requesting a producer id failed, will retry: %s", error)
        else:
            log.error("no producer id: %s", error)
            self.abort(error)
        self.client.poll_soon()

    # -- outcomes

    def _answered(
        self, response: ProduceResponse | None, batches: Sequence[Batch], ids: dict[str, bytes]
    ) -> None:
        if response is None:  # acks=0: sent, and no answer follows
            with self.deliveries.lock:
                finished = [one for batch in batches for one in self.sender.accepted(batch, -1, -1)]
            self._finish(finished)
            return
        names = {topic_id: name for name, topic_id in ids.items()}
        answers = {
            (topic.name or names.get(topic.topic_id, ""), partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        now_ms = self.client.now_ms()
        finished = []
        refresh = False
        with self.deliveries.lock:
            for batch in batches:
                answer = answers.get((batch.queue.topic, batch.queue.partition))
                outcome, stale = self._apply_answer(batch, answer, now_ms)
                finished += outcome
                refresh |= stale
        self._learn_leaders(response, answers)
        self._finish(finished)
        if refresh:
            self.client.metadata.refresh_tracked()

    def _apply_answer(
        self, batch: Batch, answer: PartitionProduceResponse | None, now_ms: int
    ) -> tuple[list[FinishedBatch], bool]:
        """Under the lock: the consequence of an answer for a batch, and whether the metadata are stale."""
        if answer is None:
            missing = NetworkError(f"the answer does not contain {batch.queue}")
            return self.sender.refused(batch, missing, now_ms), False
        if not answer.error_code:
            return self.sender.accepted(batch, answer.base_offset, answer.log_append_time_ms), False
        error = _error(batch.queue, answer)
        log.debug("a batch for %s was refused: %s", batch.queue, error)
        by_record = {one.batch_index: one.batch_index_error_message or "" for one in answer.record_errors}
        stale = error.action is Action.REFRESH_METADATA
        return self.sender.refused(batch, error, now_ms, by_record or None), stale

    def _failed(self, batches: Sequence[Batch], error: MillstreamError) -> None:
        """There was no answer: each batch may or may not have been written."""
        now_ms = self.client.now_ms()
        with self.deliveries.lock:
            finished = [one for batch in batches for one in self.sender.refused(batch, error, now_ms)]
        self._finish(finished)
        self.client.metadata.refresh_tracked()

    def _learn_leaders(
        self, response: ProduceResponse, answers: dict[tuple[str, int], PartitionProduceResponse]
    ) -> None:
        """Take over new leaders from an answer of a broker that no longer leads (KIP-951)."""
        leaders = {
            TopicPartition(topic, partition): (leader.leader_id, leader.leader_epoch)
            for (topic, partition), answer in answers.items()
            if answer.error_code in _LEADER_CHANGES
            and (leader := answer.current_leader) is not None
            and leader.leader_id >= 0
        }
        if leaders:
            brokers = [BrokerInfo(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]
            self.client.metadata.learn(self.client.cluster.with_leaders(leaders, brokers))

    def _finish(self, finished: Sequence[FinishedBatch]) -> None:
        """Set the outcomes, wake waiting threads, and run callbacks without the lock."""
        if not finished:
            return
        callbacks = []
        with self.deliveries.lock:
            for one in finished:
                delivery: Delivery = one.batch.delivery
                self._count(one)
                callbacks += delivery.finish(one.base_offset, one.append_time, one.error, one.record_errors)
            if callbacks:
                self.deliveries.begin_calls()
            self.deliveries.notify()
        if callbacks:
            self.deliveries.run_calls(callbacks)

    def _count(self, one: FinishedBatch) -> None:
        count = one.batch.count
        if one.error is None:
            self.metrics.records_delivered += count
        else:
            self.metrics.records_failed += count
            log.warning("%d records for %s were not delivered: %s", count, one.batch.queue, one.error)


def _batch_size(config: ProducerConfig) -> int:
    """A batch must fit into a request and into ``buffer_memory``."""
    return min(config.batch_size, config.max_request_size - BATCH_OVERHEAD, config.buffer_memory)


def _error(queue: PartitionQueue, answer: PartitionProduceResponse) -> BrokerError:
    """The error of an answer, with the partition and the broker's message."""
    message = f": {answer.error_message}" if answer.error_message else ""
    return for_code(answer.error_code)(f"{queue}{message}")
