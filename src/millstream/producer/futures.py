"""What ``send`` returns: a future for each record, though the outcome belongs to its whole batch.

A record's future is two references: the batch's ``Delivery``, and the record's place in it. Nothing is done
for a record when its batch is delivered, unless somebody waits for it or has asked to be called. All
deliveries of a producer share one lock and one condition (``Board``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import BrokerError, InvalidRecordError, MillstreamError, MillstreamTimeoutError
from millstream.model import RecordMetadata
from millstream.producer.core.times import Times

log = logging.getLogger("millstream.producer")

DoneCallback = Callable[["Future[RecordMetadata]"], object]


class Board:
    """The producer's lock, and where its threads wait for changes."""

    def __init__(self, check_running: Callable[[], None]) -> None:
        self._check_running = check_running
        self.renew()

    def renew(self) -> None:
        """Start with a free lock; also in a forked child, where the I/O thread may have held it for ever."""
        # Reentrant, because concurrent.futures.wait takes the condition of every future, which is one for
        # all.
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self._waiting = 0

    def wait(self, deadline_s: float | None) -> bool:
        """Under the lock: wait for some change; False when the deadline (monotonic) has passed."""
        remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            return False
        self._check_running()
        self._waiting += 1
        try:
            self.condition.wait(remaining_s)
        finally:
            self._waiting -= 1
        return True

    def notify(self) -> None:
        """Under the lock: something has changed."""
        if self._waiting:
            self.condition.notify_all()


class Delivery:
    """The outcome of a batch, to come or there. Its fields are read and written under the board's lock."""

    __slots__ = (
        "append_time",
        "base_offset",
        "board",
        "callbacks",
        "done",
        "error",
        "partition",
        "parts",
        "record_errors",
        "shares",
        "times",
        "topic",
        "watched",
    )

    def __init__(self, board: Board, topic: str, partition: int, times: Times) -> None:
        self.board = board
        self.topic = topic
        self.partition = partition
        self.times = times
        self.done = False
        self.base_offset = -1
        self.append_time = -1
        self.error: MillstreamError | None = None
        self.record_errors: dict[int, str] | None = None
        self.parts: tuple[int, Delivery, Delivery] | None = None
        self.callbacks: list[tuple[RecordFuture, DoneCallback]] | None = None
        self.watched: list[RecordFuture] | None = None
        self.shares: list[Share] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every record has its outcome, wherever the batch was split."""
        if self.parts is None:
            return self.done
        return self.parts[1].is_settled and self.parts[2].is_settled

    def finish(
        self,
        base_offset: int,
        append_time: int,
        error: MillstreamError | None,
        record_errors: dict[int, str] | None,
    ) -> list[tuple[Any, Callable[[Any], object]]]:
        """Set the outcome, once. Returns what to call with what, without the lock."""
        assert not self.done, "a batch has one outcome"
        self.base_offset = base_offset
        self.append_time = append_time
        self.error = error
        self.record_errors = record_errors
        self.done = True
        for future in self.watched or ():
            future.tell_watchers()
        callbacks: list[tuple[Any, Callable[[Any], object]]] = [*(self.callbacks or ())]
        callbacks += [(share, self._settle) for share in self.shares or ()]
        self.callbacks = self.watched = self.shares = None
        return callbacks

    def _settle(self, share: Share) -> None:
        """Without the lock: the outcome does not change any more."""
        share.outcome.settle(share.count, self.error_among(share.first, share.count))

    def split(self, middle: int) -> tuple[Delivery, Delivery]:
        """The batch is sent in two parts: each record's outcome is that of its part from now on."""
        first = Delivery(self.board, self.topic, self.partition, self.times.part(0, middle))
        second = Delivery(self.board, self.topic, self.partition, self.times.part(middle))
        self.parts = (middle, first, second)
        for future, callback in self.callbacks or ():
            future.located().add_callback(future, callback)
        for future in self.watched or ():
            future.located().watch(future)
        for share in self.shares or ():
            before = min(share.count, max(0, middle - share.first))
            if before:
                first.add_share(share.outcome, share.first, before)
            if before < share.count:
                second.add_share(share.outcome, max(0, share.first - middle), share.count - before)
        self.callbacks = self.watched = self.shares = None
        return first, second

    def add_callback(self, future: RecordFuture, callback: DoneCallback) -> None:
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((future, callback))

    def add_share(self, outcome: Rows, first: int, count: int) -> None:
        """So many records from this place on belong to a call that waits for all of its own."""
        if self.shares is None:
            self.shares = []
        self.shares.append(Share(outcome, first, count))

    def watch(self, future: RecordFuture) -> None:
        if self.watched is None:
            self.watched = []
        self.watched.append(future)

    def error_at(self, index: int) -> MillstreamError | None:
        """A record's error: the broker may say which records of a refused batch are at fault (KIP-467)."""
        error = self.error
        if error is None or not self.record_errors:
            return error
        where = f"{self.topic}-{self.partition}"
        message = self.record_errors.get(index)
        if message is None:
            return InvalidRecordError(f"{where}: refused, as other records of its batch were invalid")
        kind = (
            type(error)
            if len(self.record_errors) == 1 and isinstance(error, BrokerError)
            else InvalidRecordError
        )
        return kind(f"{where}: {message or error.detail}")

    def error_among(self, first: int, count: int) -> MillstreamError | None:
        """The error of the first of these records that is at fault, or of all."""
        at_fault = [index for index in self.record_errors or () if first <= index < first + count]
        return self.error_at(min(at_fault, default=first))

    def metadata_at(self, index: int) -> RecordMetadata:
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.append_time if self.append_time >= 0 else self.times.at(index)
        return RecordMetadata(self.topic, self.partition, offset, timestamp)


class Rows:
    """What one ``send_arrow`` waits for: the outcome of each of its records. Any thread may call."""

    def __init__(self, count: int) -> None:
        self.future: Future[int] = Future()
        self.future.set_running_or_notify_cancel()  # what was sent cannot be cancelled
        self._count = self._left = count
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        if not count:
            self.future.set_result(0)

    def settle(self, count: int, error: BaseException | None) -> None:
        """So many records have their outcome. The future gets its own after the last: the first error."""
        with self._lock:
            self._left -= count
            self._error = self._error or error
            if self._left:
                return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._count)

    def record_done(self, record: Future[RecordMetadata]) -> None:
        """As a callback: a record that was sent by itself has its outcome."""
        self.settle(1, record.exception())


@dataclass(frozen=True, slots=True)
class Share:
    """The records of one ``send_arrow`` in one batch."""

    outcome: Rows
    first: int
    count: int


class RecordFuture(Future[RecordMetadata]):
    """Where one record was put, once the broker has said so.

    A ``concurrent.futures.Future``: it works with ``concurrent.futures.wait`` and ``asyncio.wrap_future``. It
    cannot be cancelled. Callbacks run on the producer's I/O thread: they should be short, and may send but
    not flush.
    """

    __slots__ = ("_delivery", "_index", "_watchers")

    def __init__(self, delivery: Delivery, index: int) -> None:
        # The base class is not initialised: its lock alone costs more than all of send().
        self._delivery = delivery
        self._index = index

    def located(self) -> Delivery:
        """The delivery of the part of the batch that the record is in now. Under the lock."""
        while self._delivery.parts is not None:
            middle, first, second = self._delivery.parts
            if self._index < middle:
                self._delivery = first
            else:
                self._delivery = second
                self._index -= middle
        return self._delivery

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record's place; raises why it was not written, or MillstreamTimeoutError."""
        delivery = self._settled(timeout)
        error = delivery.error_at(self._index)
        if error is not None:
            raise error.with_traceback(None)
        return delivery.metadata_at(self._index)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; None where the record was written."""
        return self._settled(timeout).error_at(self._index)

    def _settled(self, timeout_s: float | None) -> Delivery:
        board = self._delivery.board
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with board.lock:
            while not self.located().done:
                if not board.wait(deadline_s):
                    raise MillstreamTimeoutError(f"the record was not delivered within {timeout_s:g} seconds")
            return self._delivery

    def done(self) -> bool:
        with self._delivery.board.lock:
            return self.located().done

    def running(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, fn: DoneCallback) -> None:
        """Call with this future when the outcome is there: on the I/O thread, or here and now if it is."""
        with self._delivery.board.lock:
            delivery = self.located()
            if not delivery.done:
                delivery.add_callback(self, fn)
                return
        run_callback(self, fn)

    def __repr__(self) -> str:
        with self._delivery.board.lock:
            delivery = self.located()
            if not delivery.done:
                return f"<RecordFuture for {delivery.topic}-{delivery.partition}, pending>"
            outcome = delivery.error_at(self._index) or delivery.metadata_at(self._index)
            return f"<RecordFuture {outcome!r}>"

    # -- what concurrent.futures.wait and as_completed look at

    if not TYPE_CHECKING:  # there they are the attributes of the base class, as the library's stubs want them

        @property
        def _condition(self) -> threading.Condition:
            return self._delivery.board.condition

        @property
        def _state(self) -> str:
            return "FINISHED" if self.done() else "PENDING"

        @property
        def _waiters(self) -> list[Any]:
            try:
                return self._watchers
            except AttributeError:
                self._watchers: list[Any] = []
                self.located().watch(self)
                return self._watchers

    def tell_watchers(self) -> None:
        """Under the lock, when the outcome is there: tell the calls of ``concurrent.futures`` that wait."""
        failed = self._delivery.error_at(self._index) is not None
        for watcher in self._waiters:
            (watcher.add_exception if failed else watcher.add_result)(self)


new_future = object.__new__
"""Makes a RecordFuture without a call of its __init__, which would cost as much again."""


class _Keeper:
    """As a batch keeps the future of its last record."""

    __slots__ = ("spare",)

    spare: RecordFuture


def _count_references() -> int:
    """What ``getrefcount`` says of a future that nobody has but its batch, and whoever asks."""
    keeper = _Keeper()
    keeper.spare = new_future(RecordFuture)
    future = keeper.spare
    return getrefcount(future)


# Without the interpreter's lock such counts mean little, and later interpreters do not count all of their own
# references: there, no future is ever used again.
_COUNTS = sys.version_info < (3, 14) and getattr(sys, "_is_gil_enabled", lambda: True)()
UNSHARED: Final = _count_references() if _COUNTS else -1
"""How many references a future has that its batch may give out again, as nobody kept it."""


def run_callback(future: Any, callback: Callable[[Any], object]) -> None:
    """As concurrent.futures does: an exception in a callback is logged, and harms nobody else."""
    try:
        callback(future)
    except Exception:
        log.exception("a callback of a record's future failed")
