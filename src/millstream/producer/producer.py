"""The public Producer: takes records from any thread, and hands them to the I/O thread in batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from sys import getrefcount
from time import time as now_s
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millstream import serde
from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.client.cluster import PartitionInfo
from millstream.config import ProducerConfig
from millstream.errors import (
    MisuseError,
    SerializationError,
)
from millstream.model import Header
from millstream.producer import lifecycle
from millstream.producer.core.batch import RECORD_OVERHEAD
from millstream.producer.driver import ProducerDriver
from millstream.producer.futures import UNSHARED, RecordFuture, new_future
from millstream.producer.intake import Intake

if TYPE_CHECKING:
    import pyarrow

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


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
        # What is bytes already needs no call, unless a serializer wants to see it.
        formats = {serde.format_name(config.key_serializer), serde.format_name(config.value_serializer)}
        self._converts = formats != {"bytes"}
        self._client = Client(
            config,
            max_in_flight=config.max_in_flight_requests_per_connection,
            auto_create_topics=True,
            metadata_max_idle_ms=config.metadata_max_idle_ms,
        )
        self._io = self._client.io
        self._driver = ProducerDriver(self._client, config)
        self._intake = Intake(self._client, self._driver, config)
        self._topics = self._driver.accumulator.topics
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
        if type(value) is not bytes or (key is not None and type(key) is not bytes) or self._converts:
            value = serde.serialize(self._serialize_value, value, topic)
            key = serde.serialize(self._serialize_key, key, topic, "key")
        if partition is None and timestamp is None and not headers:
            # What most sends are: add to the open batch. Every call is written out that can be, as each would
            # cost as much as a good part of the rest; see PartitionQueue for the door, Batch for the spare.
            try:
                known = self._topics[topic]
                size = len(value) + RECORD_OVERHEAD
                if key is None:
                    door = known.sticky.door  # type: ignore[union-attr]
                else:
                    door = known.queue_of(key).door
                    size += len(key)
                batch = door.pop()
            except (LookupError, TypeError, AttributeError):  # nothing is open, somebody has it, no value
                return self._intake.send(topic, value, key, (), None, None)
            try:
                room = batch.room - size
                if room >= 0:
                    batch.room = room
                    moment = now_s()
                    if moment >= batch.until:
                        batch.tick(moment)
                    future: RecordFuture = batch.spare
                    if getrefcount(future) != UNSHARED:
                        batch.spare = future = new_future(RecordFuture)
                        future._delivery = batch.delivery
                    values = batch.values
                    future._index = len(values)
                    values.append(value)
                    if key is not None:
                        batch.add_key(key)
                    return future
            finally:
                door.append(batch)
        return self._send_any(topic, value, key, headers, partition, timestamp)

    def _send_any(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> RecordFuture:
        if timestamp is not None:
            _check_timestamp(timestamp)
        return self._intake.send(topic, value, key, _checked_headers(headers), partition, timestamp)

    # -- topics

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic with their leaders, in order; waits for metadata at most
        ``max_block_ms``.
        """
        timeout_s = self._config.max_block_ms / 1000 if timeout is None else timeout
        return list(self._intake.topic_info(topic, None, Deadline(timeout_s)).partitions)

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
        driver, accumulator = self._driver, self._driver.accumulator
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
        """Send each row as a record; the future's result is their number, once all are delivered.

        Columns, of which only one of ``value`` and ``key`` must be there: ``value`` and ``key`` (binary or
        text: sent as they are; other types go through the producer's serializers), ``headers`` (lists of name
        and value, or a map), ``partition``, ``timestamp`` (milliseconds since 1970, or an Arrow timestamp).
        Nulls stand for what ``send`` does without the argument. Waits for memory as ``send`` does.

        The future fails with the first error that a record meets; the others are delivered all the same. What
        can be known before sending is raised here, as by ``send``: then the rows may have been sent that are
        well before the one at fault, and none behind it.
        """
        from millstream.producer.arrow import send_rows
        from millstream.producer.arrow_columns import Reader

        self._io.check()
        reader = Reader(topic, self._serialize_key, self._serialize_value)
        return send_rows(self._intake, reader, topic, batch)


def _serializer(choice: Any, setting: str) -> serde.Serializer:
    return serde.serializer(choice, setting)


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
