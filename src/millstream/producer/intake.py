"""The slow path of ``send``: looks up topics, waits for memory, opens batches, and wakes the sender.

Any thread may call. ``Producer.send`` comes here only to open a batch, or with unusual arguments.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.cluster import TopicInfo
from millstream.config import ProducerConfig
from millstream.errors import (
    BrokerError,
    BufferExhaustedError,
    ClosedError,
    MillstreamTimeoutError,
    MisuseError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from millstream.model import Header
from millstream.producer.arrow_delivery import ArrowDelivery
from millstream.producer.core.accumulator import TopicQueues
from millstream.producer.core.batch import HEADER_OVERHEAD, RECORD_OVERHEAD
from millstream.producer.core.column_batch import ColumnBatch
from millstream.producer.core.columns import RecordColumns, encoder
from millstream.producer.driver import ProducerDriver
from millstream.producer.futures import RecordFuture
from millstream.wire.records.batch_header import BATCH_OVERHEAD

if TYPE_CHECKING:
    from millstream.wire.records.encode import Longs

NewRecord = tuple[TopicQueues, int | None, bytes | None, bytes | None, Sequence[Header], float, int]
"""What ``Accumulator.append`` takes."""

_METADATA_WAIT_S: Final = 0.1
_HELD_S: Final = 0.000_05
"""The pause while another thread is adding a record."""
_PLENTY_S: Final = 0.005
_PLENTY_PART: Final = 8
"""A thread that waits for memory goes on once 1/8 of ``buffer_memory`` is free, or 5 ms after any is."""


class Intake:
    """Accepts records from sending threads."""

    def __init__(self, client: Client, driver: ProducerDriver, config: ProducerConfig) -> None:
        self._client = client
        self._io = client.io
        self._calls = BlockingCalls(client)
        self._accumulator = driver.accumulator
        self._topics = driver.accumulator.topics
        self._deliveries = driver.deliveries
        self._config = config

    def deadline(self) -> Deadline:
        """The deadline of a call that starts now."""
        return Deadline(self._config.max_block_ms / 1000)

    # -- records

    def send(
        self,
        name: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp: int | None,
    ) -> RecordFuture:
        """Add a record to an open batch or a new one; checks everything, and waits if needed."""
        size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
        if headers:
            size += sum(len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in headers)
        self.check_size(size)
        moment: float = time.time() if timestamp is None else timestamp
        deadline = self.deadline()
        topic = self.topic(name, partition, deadline)
        return self.add((topic, partition, key, value, headers, moment, size), deadline)

    def check_size(self, size: int) -> None:
        """Raise RecordTooLargeError if a record of about ``size`` bytes cannot be sent."""
        config = self._config
        name = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
        limit = getattr(config, name)
        if size + BATCH_OVERHEAD > limit:
            raise RecordTooLargeError(
                f"the record takes about {size + BATCH_OVERHEAD} bytes, more than {name} ({limit}): "
                f"send less at once, or raise {name} (and the topic's max.message.bytes)"
            )

    def add(self, record: NewRecord, deadline: Deadline) -> RecordFuture:
        """Add a record to an open batch, or open one for it; may wait for memory, and wakes the sender."""
        accumulator = self._accumulator
        while True:
            with self._deliveries.lock:
                added = accumulator.append(*record)
                if added is not None:
                    return RecordFuture.of(added[0].delivery, added[1])
                self._io.check()  # after a close it would never be sent
                now_ms = self._client.now_ms()
                batch = accumulator.append_new(*record, now_ms)
                if batch is not None:
                    future = RecordFuture.of(batch.delivery, 0)
                    wake = accumulator.must_wake(batch, now_ms)
                    break
                if accumulator.lacks_memory(record[-1]):
                    self.wait_for_memory(deadline)
                    continue
            self._give_way(deadline)
        if wake:
            self._client.wake()
        return future

    def add_rows(
        self,
        topic: TopicQueues,
        partition: int | None,
        columns: RecordColumns,
        rows: Longs,
        sizes: Longs,
        outcome: ArrowDelivery,
    ) -> None:
        """Add ``rows`` of columns, all to ``partition``; if that is None, each batch to any partition.

        ``sizes`` holds, for each row, the bytes of a batch with that row alone.
        """
        deadline = self.deadline()
        place = 0
        while place < len(rows):
            with self._deliveries.lock:
                batch, is_new = self._column_batch(topic, partition, int(sizes[rows[place]]), deadline)
                if batch is not None:
                    kernels = encoder.kernels
                    assert kernels is not None, "once loaded, they stay"
                    begin, place = place, batch.fill(kernels, columns, rows, place)
                    batch.delivery.add_share(outcome, batch.count - (place - begin), place - begin)
                    wake = is_new and self._accumulator.must_wake(batch, batch.created_ms)
            if batch is None:
                self._give_way(deadline)
            elif wake:
                self._client.wake()

    def spread(self, topic: TopicQueues, sizes: Longs) -> Longs:
        """A partition for each record without one, given their sizes: they fill one batch after another."""
        import numpy as np

        accumulator = self._accumulator
        _, places = np.unique(sizes.cumsum() // accumulator.batch_size, return_inverse=True)
        with self._deliveries.lock:
            partitions = accumulator.choose_several(topic, int(places[-1]) + 1, int(sizes[0]))
        return np.array(partitions, np.int64)[places]

    def _column_batch(
        self, topic: TopicQueues, partition: int | None, size: int, deadline: Deadline
    ) -> tuple[ColumnBatch | None, bool]:
        """A batch with room for a record of ``size`` bytes, and whether it is new.

        None while a thread is adding a record to the batch that must be closed first.
        """
        accumulator = self._accumulator
        while True:
            queue = accumulator.choose(topic, partition, None, size)
            batch = queue.open
            if isinstance(batch, ColumnBatch) and batch.filled + size <= batch.capacity + BATCH_OVERHEAD:
                return batch, False
            self._io.check()
            if not accumulator.lacks_memory(max(size, accumulator.batch_size)):
                break
            self.wait_for_memory(deadline)
        if not queue.close_open():
            return None, False
        return accumulator.new_column_batch(queue, size, self._client.now_ms()), True

    def _give_way(self, deadline: Deadline) -> None:
        """Pause while another thread is adding a record."""
        time.sleep(_HELD_S)
        if deadline.is_over:
            raise MillstreamTimeoutError("another thread did not finish adding a record in time")

    def wait_for_memory(self, deadline: Deadline) -> None:
        """Release the lock and wait until memory is free, and a moment longer for more of it.

        Waking up for each batch would cost more than the batch.
        """
        if self._io.is_current:
            raise BufferExhaustedError("the buffer is full, and callbacks on the I/O thread cannot wait")
        accumulator = self._accumulator
        accumulator.starving += 1
        try:
            self._client.wake()
            if not self._deliveries.wait(time.monotonic() + deadline.remaining_s):
                raise BufferExhaustedError(
                    f"{accumulator.limits.buffer_memory} bytes of records wait, and none was sent within "
                    f"max_block_ms ({self._config.max_block_ms}): send more slowly, or raise buffer_memory"
                )
            moment_s = time.monotonic() + _PLENTY_S
            plenty = accumulator.limits.buffer_memory // _PLENTY_PART
            while accumulator.free_bytes < plenty and self._deliveries.wait(moment_s):
                pass
        finally:
            accumulator.starving -= 1
        self._io.check()

    # -- topics

    def topic(self, name: str, partition: int | None, deadline: Deadline) -> TopicQueues:
        """The queues of a topic with this partition; waits for metadata, and raises if it does not exist."""
        topic = self._topics.get(name)
        if topic is None or not topic.queues or (partition is not None and partition >= len(topic.queues)):
            info = self.topic_info(name, partition, deadline)
            available = [one.partition for one in info.partitions if one.leader is not None]
            with self._deliveries.lock:
                topic = self._accumulator.update_topic(name, len(info.partitions), available)
        if partition is not None and not 0 <= partition < len(topic.queues):
            raise UnknownTopicOrPartitionError(
                f"topic {name} has the partitions 0 to {len(topic.queues) - 1}, not {partition}"
            )
        return topic

    def topic_info(self, name: str, partition: int | None, deadline: Deadline) -> TopicInfo:
        """The metadata of a topic; waits while it is being created, and raises errors that will not pass."""
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
        return type(error)(f"topic {name} did not exist within max_block_ms ({deadline.timeout_s * 1000:g})")


def _check_topic(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"{name!r} is not the name of a topic")
