"""Where records come in: topics are looked up, memory is waited for, batches are opened, the sender is woken.

Any thread may call. ``Producer.send`` comes here only for what opens a batch, or is out of the ordinary.
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
from millstream.producer.core.accumulator import Topic
from millstream.producer.core.batch import HEADER_OVERHEAD, RECORD_OVERHEAD
from millstream.producer.core.block import Block
from millstream.producer.core.columns import Columns
from millstream.producer.core.encoder import encoder
from millstream.producer.driver import ProducerDriver
from millstream.producer.futures import RecordFuture, Rows
from millstream.wire.records.batches import BATCH_OVERHEAD

if TYPE_CHECKING:
    from millstream.wire.records.encode import Longs

NewRecord = tuple[Topic, int | None, bytes | None, bytes | None, Sequence[Header], float, int]
"""What ``Accumulator.append`` takes."""

_METADATA_WAIT_S: Final = 0.1
_HELD_S: Final = 0.000_05
"""How long to give way to a thread that is in the middle of adding a record."""
_PLENTY_S: Final = 0.005
_PLENTY_PART: Final = 8
"""Who has waited for memory goes on when so large a part of it is free, or so much later."""


class Intake:
    """The producer's side that senders see."""

    def __init__(self, client: Client, driver: ProducerDriver, config: ProducerConfig) -> None:
        self._client = client
        self._io = client.io
        self._calls = BlockingCalls(client)
        self._accumulator = driver.accumulator
        self._topics = driver.accumulator.topics
        self._board = driver.board
        self._config = config

    def deadline(self) -> Deadline:
        """How long a call may wait that begins now."""
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
        """Add a record to an open batch or a new one, with all there is to check and to wait for."""
        size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
        size += sum(len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in headers)
        self.check_size(size)
        moment: float = time.time() if timestamp is None else timestamp
        deadline = self.deadline()
        topic = self.topic(name, partition, deadline)
        return self.add((topic, partition, key, value, headers, moment, size), deadline)

    def check_size(self, size: int) -> None:
        """Refuse a record that takes about so many bytes, if that is too much."""
        config = self._config
        name = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
        limit = getattr(config, name)
        if size + BATCH_OVERHEAD > limit:
            raise RecordTooLargeError(
                f"the record takes about {size + BATCH_OVERHEAD} bytes, more than {name} ({limit}): "
                f"send less at once, or raise {name} (and the topic's max.message.bytes)"
            )

    def add(self, record: NewRecord, deadline: Deadline) -> RecordFuture:
        """Add a record to an open batch, or open one for it: perhaps wait for memory, and tell the sender."""
        accumulator = self._accumulator
        while True:
            with self._board.lock:
                added = accumulator.append(*record)
                if added is not None:
                    return RecordFuture(added[0].delivery, added[1])
                self._io.check()  # after a close nobody would send it
                now_ms = self._client.now_ms()
                batch = accumulator.append_new(*record, now_ms)
                if batch is not None:
                    batch.spare = future = RecordFuture(batch.delivery, 0)
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
        topic: Topic,
        partition: int | None,
        columns: Columns,
        rows: Longs,
        sizes: Longs,
        outcome: Rows,
    ) -> None:
        """Add records by the column: these rows, all for one partition, or each batch for any (None).

        ``sizes`` are what a batch takes that holds nothing but this row.
        """
        deadline = self.deadline()
        place = 0
        while place < len(rows):
            with self._board.lock:
                block, is_new = self._block(topic, partition, int(sizes[rows[place]]), deadline)
                if block is not None:
                    kernels = encoder.kernels
                    assert kernels is not None, "they are here to stay"
                    begin, place = place, block.fill(kernels, columns, rows, place)
                    block.delivery.add_share(outcome, block.count - (place - begin), place - begin)
                    wake = is_new and self._accumulator.must_wake(block, block.created_ms)
            if block is None:
                self._give_way(deadline)
            elif wake:
                self._client.wake()

    def spread(self, topic: Topic, sizes: Longs) -> Longs:
        """A partition for each of the records of these sizes, which may go to any: one for each batchful."""
        import numpy as np

        accumulator = self._accumulator
        _, places = np.unique(sizes.cumsum() // accumulator.batch_size, return_inverse=True)
        with self._board.lock:
            partitions = accumulator.choose_several(topic, int(places[-1]) + 1, int(sizes[0]))
        return np.array(partitions, np.int64)[places]

    def _block(
        self, topic: Topic, partition: int | None, size: int, deadline: Deadline
    ) -> tuple[Block | None, bool]:
        """A block with room for a record of this size, and whether it is new; None while somebody adds a
        record to the batch in its way.
        """
        accumulator = self._accumulator
        while True:
            queue = accumulator.choose(topic, partition, None, size)
            block = queue.open
            if isinstance(block, Block) and block.filled + size <= block.capacity + BATCH_OVERHEAD:
                return block, False
            self._io.check()
            if not accumulator.lacks_memory(size):
                break
            self.wait_for_memory(deadline)
        if not queue.close_open():
            return None, False
        return accumulator.new_block(queue, size, self._client.now_ms()), True

    def _give_way(self, deadline: Deadline) -> None:
        """Some thread is in the middle of adding a record: let it."""
        time.sleep(_HELD_S)
        if deadline.is_over:
            raise MillstreamTimeoutError("another thread was stopped in the middle of a send")

    def wait_for_memory(self, deadline: Deadline) -> None:
        """Under the lock, which is given up meanwhile: wait until some is free, and a moment more for plenty.

        To wake up for each batch would cost more than the batch.
        """
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
            moment_s = time.monotonic() + _PLENTY_S
            plenty = accumulator.limits.buffer_memory // _PLENTY_PART
            while accumulator.free_bytes < plenty and self._board.wait(moment_s):
                pass
        finally:
            accumulator.starving -= 1
        self._io.check()

    # -- topics

    def topic(self, name: str, partition: int | None, deadline: Deadline) -> Topic:
        """The topic, with this partition; waits for metadata, and raises where there is none such."""
        topic = self._topics.get(name)
        if topic is None or not topic.queues or (partition is not None and partition >= len(topic.queues)):
            info = self.topic_info(name, partition, deadline)
            available = [one.partition for one in info.partitions if one.leader is not None]
            with self._board.lock:
                topic = self._accumulator.update_topic(name, len(info.partitions), available)
        if partition is not None and not 0 <= partition < len(topic.queues):
            raise UnknownTopicOrPartitionError(
                f"topic {name} has the partitions 0 to {len(topic.queues) - 1}, not {partition}"
            )
        return topic

    def topic_info(self, name: str, partition: int | None, deadline: Deadline) -> TopicInfo:
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


def _check_topic(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"{name!r} is not the name of a topic")
