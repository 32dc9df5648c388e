"""The public Producer: adds records from any thread to batches that the I/O thread sends."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from time import time as now_s
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from millstream import serde
from millstream.client.blocking import Deadline
from millstream.client.client import Client
from millstream.client.cluster import PartitionInfo
from millstream.config import ProducerConfig
from millstream.config.keywords import ProducerKeywords
from millstream.errors import MisuseError, SerializationError
from millstream.model import Header
from millstream.producer import lifecycle
from millstream.producer.arrow_delivery import ArrowFuture
from millstream.producer.core.batch import RECORD_OVERHEAD
from millstream.producer.driver import ProducerDriver
from millstream.producer.futures import RecordFuture
from millstream.producer.intake import Intake
from millstream.registry import choices

if TYPE_CHECKING:
    import pyarrow

_NO_PARTITION: Final = 1 << 40
"""An index that no list has: the slow path refuses negative partitions."""

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class Producer:
    """Sends records to topics. Any number of threads may share one; close it, or use ``with``. ::

        with Producer(bootstrap_servers="localhost:9092", value_serializer="string") as producer:
            future = producer.send("customerCountries", "France", key=b"Precision Products")
            print(future.result())

    ``send`` returns at once; records are sent in batches after at most ``linger_ms``. With the defaults, a
    record whose future has a result is on the broker's disk exactly once, and records of one partition keep
    the order of their sends. Settings are those of Kafka's producer, as keywords or as a mapping with Kafka's
    dotted names.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[ProducerKeywords]
    ) -> None:
        config = ProducerConfig.from_settings(settings, keywords)
        self._config = config
        self._serialize_key, self._serialize_value = choices.serializers(config)
        self._adds_headers = serde.WithTopic in map(type, (self._serialize_key, self._serialize_value))
        # Bytes need no call, unless a serializer is set.
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
        weakref.finalize(self, lifecycle.collected, self._driver).atexit = False

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
        """Add a record to a batch; returns a future of its partition and offset.

        The partition is ``partition``, or that of the key as in Kafka's own producer, or any. ``timestamp``
        is in milliseconds since 1970, now by default. Waits at most ``max_block_ms`` for the topic's
        metadata, and for memory when more than ``buffer_memory`` waits to be sent.

        Raises what is known before sending (SerializationError, RecordTooLargeError, BufferExhaustedError,
        an unknown or illegal topic or partition, ClosedError); later errors are in the future.
        """
        if self._io.refusal is not None:
            self._io.check()
        if type(value) is not bytes or (key is not None and type(key) is not bytes) or self._converts:
            extended = _checked_headers(headers) if self._adds_headers else None
            key = serde.serialize(self._serialize_key, key, topic, "key", extended)
            value = serde.serialize(self._serialize_value, value, topic, "value", extended)
            headers = extended or headers
        if timestamp is None and not headers:
            # The common case: add to the open batch. Calls are inlined, as each would cost as much as a good
            # part of the rest; see PartitionQueue for open_slot.
            try:
                known = self._topics[topic]
                size = len(value) + RECORD_OVERHEAD + (0 if key is None else len(key))
                if partition is None:
                    queue = known.sticky if key is None else known.queue_of(key)
                else:
                    queue = known.queues[partition if partition >= 0 else _NO_PARTITION]
                open_slot = queue.open_slot  # type: ignore[union-attr]
                batch = open_slot.pop()
            except (LookupError, TypeError, AttributeError):  # no open batch, another thread has it, no value
                return self._intake.send(topic, value, key, (), partition, None)
            try:
                room = batch.room - size
                if room >= 0:
                    batch.room = room
                    moment = now_s()
                    if moment >= batch.until:
                        batch.tick(moment)
                    values = batch.values
                    future = RecordFuture()
                    future._delivery = batch.delivery
                    future._index = len(values)
                    values.append(value)
                    if key is not None:
                        batch.add_key(key)
                    return future
            finally:
                open_slot.append(batch)
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
        """The partitions of a topic with their leaders, in order.

        Waits for metadata at most ``timeout`` seconds, ``max_block_ms`` by default.
        """
        timeout_s = self._config.max_block_ms / 1000 if timeout is None else timeout
        return list(self._intake.topic_info(topic, None, Deadline(timeout_s)).partitions)

    # -- the end

    def flush(self, timeout: float | None = None) -> None:
        """Send all batches now, and wait until each record sent so far is delivered or has failed.

        Raises MillstreamTimeoutError after ``timeout`` seconds; delivery goes on.
        """
        self._io.check_may_wait()
        self._driver.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was sent, for at most ``timeout`` seconds (``delivery_timeout_ms`` at most), and end.

        Records that are not delivered by then fail with ClosedError. A call in a callback on the I/O thread
        does not wait. Closing again does nothing.
        """
        lifecycle.close(self._driver, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- metrics

    def metrics(self) -> dict[str, int | float]:
        """Numbers by name: requests, bytes and latencies, records delivered and failed, batches, memory."""
        return self._client.metrics.snapshot()

    # -- Arrow

    def send_arrow(self, topic: str, batch: pyarrow.RecordBatch | pyarrow.Table) -> ArrowFuture:
        """Send each row as a record; the future's result is the number of rows, once all are delivered.

        Columns are ``value`` and ``key`` (at least one of them; binary and string are sent as they are, other
        types go through the producer's serializers), ``headers`` (lists of name and value, or a map),
        ``partition``, ``timestamp`` (milliseconds since 1970, or an Arrow timestamp). A null means what
        ``send`` does without the argument. Waits for memory as ``send`` does.

        The future fails with the first error of any record; the others are still delivered. Its ``written``
        and ``failed`` then count rows by partition. Errors that are
        known before sending are raised here, as by ``send``: rows well before the faulty one may have been
        sent, and none after it.
        """
        from millstream.producer.arrow import send_rows
        from millstream.producer.arrow_columns import ArrowReader

        self._io.check()
        reader = ArrowReader(topic, self._serialize_key, self._serialize_value)
        return send_rows(self._intake, reader, topic, batch)


def _check_timestamp(timestamp: object) -> None:
    if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
        raise MisuseError(f"the timestamp {timestamp!r} is not a number of milliseconds since 1970")


def _checked_headers(headers: Headers) -> list[Header]:
    """Headers as pairs of a name and bytes or None; raises SerializationError for anything else."""
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
