"""Threads that read ranges, and the bounded queue between them and the one who reads the batches.

Each thread has a consumer of its own and reads one range after the other, so that records of a partition stay
in order. The queue holds a bounded number of bytes: threads wait while it is full.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer import Consumer
from millstream.consumer.decoding.columns import Columns
from millstream.errors import ClosedError, WakeupError
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading.reader import ReadRules, range_settings, read_columns

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.scan")

_CLOSE_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 5.0
_LEAST_BYTES: Final = 1 << 20
_MOST_FETCH_BYTES: Final = 8 << 20

Decode = Callable[[Sequence[Columns]], "pa.RecordBatch"]


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What the threads need: plain values, and how each makes its decoder."""

    client: Mapping[str, object]
    decoder: Callable[[], Decode]
    rules: ReadRules
    threads: int
    queued_bytes: int


class _StoppedError(Exception):
    """The reader wants no more."""


class _Shared:
    """What threads and reader share. No thread refers to the reader, so an abandoned one is collected."""

    def __init__(self, settings: FeedSettings, ranges: Sequence[OffsetRange]) -> None:
        self.settings = settings
        self._ranges = deque(ranges)
        self._changed = threading.Condition()
        self._batches: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._consumers: set[Consumer] = set()
        self._error: BaseException | None = None
        self._working = 0
        self._is_stopped = False
        self.threads: list[threading.Thread] = []

    # -- the reader's side

    def start(self) -> None:
        count = min(self.settings.threads, len(self._ranges))
        self._working = count
        for number in range(count):
            thread = threading.Thread(
                target=_work, args=(self,), name=f"millstream-scan-{number}", daemon=True
            )
            self.threads.append(thread)
            thread.start()

    def next_batch(self) -> Any:
        """The next batch; None at the end. Raises the first error of a thread, after what came before it."""
        with self._changed:
            while not self._batches and self._working and not self._is_over:
                self._changed.wait()
            if self._batches:
                batch, size = self._batches.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            if self._is_stopped:
                raise ClosedError("the scan was closed while it was read: what was read is not all of it")
            return None

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._error is not None

    def stop(self) -> None:
        """End the threads, and wait until their sockets are closed."""
        with self._changed:
            self._is_stopped = True
            self._batches.clear()
            self._changed.notify_all()
            for consumer in self._consumers:
                consumer.wakeup()
        if threading.current_thread() in self.threads:  # it collects garbage, the reader among it
            return
        for thread in self.threads:
            thread.join(_JOIN_SECONDS)

    # -- a thread's side

    def next_range(self) -> OffsetRange | None:
        with self._changed:
            return None if self._is_over or not self._ranges else self._ranges.popleft()

    def put(self, batch: Any) -> None:
        size = batch.nbytes
        with self._changed:
            while self._bytes and self._bytes + size > self.settings.queued_bytes and not self._is_over:
                self._changed.wait()
            if self._is_over:
                raise _StoppedError
            self._batches.append((batch, size))
            self._bytes += size
            self._changed.notify_all()

    def opened(self, consumer: Consumer) -> None:
        with self._changed:
            if self._is_stopped:
                raise _StoppedError
            self._consumers.add(consumer)

    def closed(self, consumer: Consumer) -> None:
        with self._changed:
            self._consumers.discard(consumer)

    def ended(self, error: BaseException | None) -> None:
        with self._changed:
            self._working -= 1
            if error is not None and self._error is None and not self._is_stopped:
                self._error = error
            self._changed.notify_all()


class Feed:
    """Batches of ranges, of any partition at any time, each partition's in order. To be closed."""

    def __init__(self, settings: FeedSettings, ranges: Sequence[OffsetRange]) -> None:
        self._shared = _Shared(settings, ranges)
        self._end = weakref.finalize(self, _Shared.stop, self._shared)
        self._shared.start()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._shared.next_batch()) is not None:
            yield batch

    def close(self) -> None:
        """Stop reading; may be repeated, and called from any thread."""
        self._end()


def _work(shared: _Shared) -> None:
    error: BaseException | None = None
    try:
        _read_ranges(shared)
    except (_StoppedError, WakeupError):
        pass
    except BaseException as raised:  # noqa: BLE001 - the reader raises it
        error = raised
    shared.ended(error)


def _read_ranges(shared: _Shared) -> None:
    settings = shared.settings
    share = max(_LEAST_BYTES, settings.queued_bytes // settings.threads)
    fetch = min(share // 2, _MOST_FETCH_BYTES)
    fetches = {"max.partition.fetch.bytes": fetch, "fetch.max.bytes": fetch, "queued.max.bytes": share}
    decode = settings.decoder()
    consumer = Consumer(range_settings(settings.client, fetches))
    try:
        shared.opened(consumer)
        while (part := shared.next_range()) is not None:
            for columns in read_columns(consumer, part, settings.rules):
                shared.put(decode(columns))
    finally:
        shared.closed(consumer)
        consumer.close(timeout=_CLOSE_SECONDS)
