"""The public Producer: takes records from any thread, and hands them to the I/O thread in batches."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millstream import serde
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.cluster import PartitionInfo, TopicInfo
from millstream.config import ProducerConfig
from millstream.errors import (
    BrokerError,
    BufferExhaustedError,
    ClosedError,
    MillstreamTimeoutError,
    MisuseError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from millstream.model import Header
from millstream.producer import lifecycle
from millstream.producer.accumulator import Topic
from millstream.producer.batch import HEADER_OVERHEAD, RECORD_OVERHEAD
from millstream.producer.driver import ProducerDriver
from millstream.producer.futures import Board, RecordFuture
from millstream.wire.batches import BATCH_OVERHEAD

if TYPE_CHECKING:
    import pyarrow

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_METADATA_WAIT_S = 0.1


class Producer:
    """Sends records to topics. Any number of threads may share one; close it, or use it in a ``with``. ::

        with Producer(bootstrap_servers="localhost:9092", value_serializer="string") as producer:
            future = producer.send("customerCountries", "France", key=b"Precision Products")
            print(future.result())

    ``send`` returns at once; records go out in batches after at most ``linger_ms``. With the defaults, a
    record whose future has a result is on the broker's disk once, and records of one partition keep the order
    of their sends. Settings are those of Kafka's producer, as keywords or as a mapping with Kafka's dotted
    names.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        config = ProducerConfig.from_settings(settings, keywords)
        self._config = config
        self._serialize_key = _serializer(config.key_serializer, "key_serializer")
        self._serialize_value = _serializer(config.value_serializer, "value_serializer")
        # None: what is bytes already needs no call.
        self._plain_keys = serde.format_name(config.key_serializer) == "bytes"
        self._plain_values = serde.format_name(config.value_serializer) == "bytes"
        self._max_record_bytes = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD
        self._client = Client(
            config,
            max_in_flight=config.max_in_flight_requests_per_connection,
            auto_create_topics=True,
            metadata_max_idle_ms=config.metadata_max_idle_ms,
        )
        self._io = self._client.io
        self._calls = BlockingCalls(self._client)
        self._driver = ProducerDriver(self._client, config)
        self._board: Board = self._driver.board
        self._lock = self._board.lock
        self._accumulator = self._driver.accumulator
        self._topics = self._accumulator.topics
        self._append = self._accumulator.append
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._driver.start()
        lifecycle.opened(self._driver)
        weakref.finalize(self, lifecycle.forgotten, self._driver).atexit = False

    # -- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordFuture:
        """Add a record to a batch and return a future of its place in the topic.

        The partition is the one given, or that of the key as in Kafka's own producer, or any. The timestamp
        is in milliseconds since 1970, and now by default. Waits at most ``max_block_ms``: for the topic's
        metadata, and for memory when more than ``buffer_memory`` waits to be sent.

        Raises what can be known before sending: SerializationError, RecordTooLargeError,
        BufferExhaustedError, an unknown or illegal topic or partition, ClosedError. What happens later is in
        the future.
        """
        if self._io.refusal is not None:
            self._io.check()
        if value is not None and not (self._plain_values and type(value) is bytes):
            value = serde.serialize(self._serialize_value, value, topic)
        if key is not None and not (self._plain_keys and type(key) is bytes):
            key = serde.serialize(self._serialize_key, key, topic, "key")
        size = RECORD_OVERHEAD + (len(value) if value else 0) + (len(key) if key else 0)
        pairs: Sequence[Header] = ()
        if headers:
            pairs = _checked_headers(headers)
            size += sum(len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in pairs)
        if size > self._max_record_bytes:
            raise self._too_large(size)
        if timestamp is None:
            timestamp = time_ns() // 1_000_000
        else:
            _check_timestamp(timestamp)
        known = self._topics.get(topic)
        if known is not None and (partition is None or 0 <= partition < len(known.queues)):
            # Not "with": taking and giving the lock by hand costs half as much, for each record.
            self._acquire()
            try:
                batch = self._append(known, partition, key, value, pairs, timestamp, size)
                if batch is not None:
                    return RecordFuture(batch.delivery, len(batch.values) - 1)
            finally:
                self._release()
        return self._send_slowly(topic, partition, key, value, pairs, timestamp, size)

    def _send_slowly(
        self,
        name: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp: int,
        size: int,
    ) -> RecordFuture:
        """The record opens a batch: perhaps wait for metadata or memory, and tell the sender."""
        deadline = Deadline(self._config.max_block_ms / 1000)
        topic = self._known_topic(name, partition, deadline)
        record = (topic, partition, key, value, headers, timestamp, size)
        with self._lock:
            while True:
                batch = self._accumulator.append(*record)
                if batch is not None:
                    return RecordFuture(batch.delivery, len(batch.values) - 1)
                now_ms = self._client.now_ms()
                batch = self._accumulator.append_new(*record, now_ms)
                if batch is not None:
                    break
                self._wait_for_memory(deadline)
            future = RecordFuture(batch.delivery, 0)
            wake = self._accumulator.must_wake(batch, now_ms)
        if wake:
            self._client.wake()
        return future

    def _wait_for_memory(self, deadline: Deadline) -> None:
        """Under the lock, which is given up meanwhile."""
        if self._io.is_current:
            raise BufferExhaustedError("the buffer is full, and callbacks on the I/O thread cannot wait")
        accumulator = self._accumulator
        accumulator.starving += 1
        try:
            self._client.wake()
            if not self._board.wait(time.monotonic() + deadline.remaining_s):
                raise BufferExhaustedError(
                    f"{accumulator.limits.buffer_memory} bytes of records wait, and none was sent within "
                    f"max_block_ms ({self._config.max_block_ms}): send more slowly, or raise buffer_memory"
                )
        finally:
            accumulator.starving -= 1
        self._io.check()

    def _too_large(self, size: int) -> RecordTooLargeError:
        name = "max_request_size"
        if self._config.buffer_memory < self._config.max_request_size:
            name = "buffer_memory"
        limit = getattr(self._config, name)
        return RecordTooLargeError(
            f"the record takes about {size + BATCH_OVERHEAD} bytes, more than {name} ({limit}): "
            f"send less at once, or raise {name} (and the topic's max.message.bytes)"
        )

    # -- topics

    def _known_topic(self, name: str, partition: int | None, deadline: Deadline) -> Topic:
        topic = self._topics.get(name)
        if topic is None or not topic.queues or (partition is not None and partition >= len(topic.queues)):
            info = self._topic_info(name, partition, deadline)
            available = [one.partition for one in info.partitions if one.leader is not None]
            with self._lock:
                topic = self._accumulator.update_topic(name, len(info.partitions), available)
        if partition is not None and not 0 <= partition < len(topic.queues):
            raise UnknownTopicOrPartitionError(
                f"topic {name} has the partitions 0 to {len(topic.queues) - 1}, not {partition}"
            )
        return topic

    def _topic_info(self, name: str, partition: int | None, deadline: Deadline) -> TopicInfo:
        """What the brokers say about a topic; waits for one that is being made, and raises what will not
        pass.
        """
        self._io.check_may_wait()
        _check_topic(name)
        client = self._client
        client.submit(lambda: client.metadata.track([name]))
        info = client.cluster.topic(name)
        if info is not None and (partition is None or partition < len(info.partitions)):
            return info
        while True:
            try:
                cluster = self._calls.refresh_metadata([name], deadline, create=True)
            except MillstreamTimeoutError as error:
                raise self._unknown_topic(name, deadline) or error from error
            info = cluster.topic(name)
            if info is not None and info.partitions:
                return info
            error_now = cluster.errors.get(name)
            if error_now is not None and not error_now.retriable:
                raise error_now
            if client.closing.wait(min(_METADATA_WAIT_S, deadline.remaining_s)):
                raise ClosedError
            if deadline.is_over:
                raise self._unknown_topic(name, deadline) or MillstreamTimeoutError()

    def _unknown_topic(self, name: str, deadline: Deadline) -> BrokerError | None:
        error = self._client.cluster.errors.get(name)
        if error is None:
            return None
        return type(error)(f"topic {name} was not there within max_block_ms ({deadline.timeout_s * 1000:g})")

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic with their leaders, in order; waits for metadata at most
        ``max_block_ms``.
        """
        timeout_s = self._config.max_block_ms / 1000 if timeout is None else timeout
        return list(self._topic_info(topic, None, Deadline(timeout_s)).partitions)

    # -- the end

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now, and wait until each record sent so far has its outcome, good or bad.

        Raises MillstreamTimeoutError after ``timeout`` seconds; the records stay on their way.
        """
        self._io.check_may_wait()
        self._driver.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was sent, for at most ``timeout`` seconds, and end; delivery_timeout_ms ends it at the
        latest.

        What is not delivered by then fails with ClosedError. In a callback on the I/O thread, nothing is
        waited for. Closing again does nothing.
        """
        lifecycle.close(self._driver, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- looking inside

    def metrics(self) -> dict[str, int | float]:
        """Counters: requests, bytes and latencies, and what became of records and batches."""
        accumulator, driver = self._accumulator, self._driver
        return {
            **self._client.metrics.snapshot(),
            **vars(driver.metrics),
            "batch_retries": driver.sender.retries,
            "batch_splits": driver.sender.splits,
            "batches_pending": len(accumulator.incomplete),
            "buffer_free_bytes": accumulator.free_bytes,
        }

    # -- columns

    def send_arrow(self, topic: str, batch: pyarrow.RecordBatch | pyarrow.Table) -> Future[int]:
        """Send each row of a record batch or table as a record; see ``arrow.send_rows``."""
        from millstream.producer.arrow import send_rows

        return send_rows(self, topic, batch)


def _serializer(choice: Any, setting: str) -> serde.Serializer:
    return serde.serializer(choice, setting)


def _check_topic(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"{name!r} is not the name of a topic")


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, int) or timestamp < 0:
        raise MisuseError(f"the timestamp {timestamp!r} is not a number of milliseconds since 1970")


def _checked_headers(headers: Headers) -> list[Header]:
    """Headers as pairs of a name and bytes or None; anything else is refused before it can spoil a batch."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[Header] = []
    for pair in pairs:
        try:
            name, value = pair
        except (TypeError, ValueError):
            raise SerializationError(f"the header {pair!r} is not a pair of a name and bytes") from None
        if isinstance(value, bytearray | memoryview):
            value = bytes(value)
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise SerializationError(f"the header {pair!r} must have a str as its name, and bytes or None")
        checked.append((name, value))
    return checked
