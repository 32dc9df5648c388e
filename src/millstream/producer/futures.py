"""Futures of records. An outcome belongs to a batch, which many records share.

A record's future is two references: the batch's ``Delivery``, and the record's index in it. When a batch is
delivered, nothing is done for a record unless a thread waits for it or it has a callback. All deliveries of a
producer share one lock and one condition (``DeliveryLock``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import BrokerError, InvalidRecordError, MillstreamError, MillstreamTimeoutError
from millstream.model import RecordMetadata
from millstream.producer.arrow_delivery import ArrowDelivery
from millstream.producer.core.times import Times

log = logging.getLogger("millstream.producer")

DoneCallback = Callable[["Future[RecordMetadata]"], object]


class DeliveryLock:
    """The producer's lock, and the condition on which its threads wait for changes."""

    def __init__(self, check_running: Callable[[], None]) -> None:
        self._check_running = check_running
        self.renew()

    def renew(self) -> None:
        """Make a new lock; also in a forked child, where the parent's I/O thread may hold the old one."""
        # Reentrant, because concurrent.futures.wait takes the condition of every future, which they share.
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self._waiting = 0
        self._rounds_begun = self._rounds_ended = 0
        self._calling: int | None = None

    def wait(self, deadline_s: float | None) -> bool:
        """Under the lock: wait for a change; False when the deadline (monotonic) has passed."""
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

    def begin_calls(self) -> None:
        """Under the lock, with outcomes that have callbacks: ``run_calls`` follows."""
        self._rounds_begun += 1

    def run_calls(self, callbacks: Sequence[tuple[Any, Callable[[Any], object]]]) -> None:
        """Without the lock: run callbacks."""
        self._calling = threading.get_ident()
        for future, callback in callbacks:
            run_callback(future, callback)
        with self.lock:
            self._calling = None
            self._rounds_ended += 1
            self.notify()

    def wait_called(self, deadline_s: float | None) -> bool:
        """Under the lock: wait for the callbacks of all outcomes so far; False when the deadline has passed.

        A callback that calls this does not wait for itself.
        """
        due = self._rounds_begun
        while self._rounds_ended < due and self._calling != threading.get_ident():
            if not self.wait(deadline_s):
                return False
        return True


@dataclass(slots=True, eq=False, repr=False)
class Delivery:
    """The outcome of a batch, once it is known. Fields are read and written under the shared lock."""

    shared: DeliveryLock
    topic: str
    partition: int
    times: Times
    done: bool = False
    base_offset: int = -1
    append_time: int = -1
    error: MillstreamError | None = None
    record_errors: dict[int, str] | None = None
    parts: tuple[int, Delivery, Delivery] | None = None
    callbacks: list[tuple[RecordFuture, DoneCallback]] | None = None
    watched: dict[RecordFuture, list[Any]] | None = None
    shares: list[ArrowShare] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every record has its outcome, also if the batch was split."""
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
        """Set the outcome, once. Returns arguments and callbacks, to be called without the lock."""
        assert not self.done, "a batch has one outcome"
        self.base_offset = base_offset
        self.append_time = append_time
        self.error = error
        self.record_errors = record_errors
        self.done = True
        for future, watchers in (self.watched or {}).items():
            future.tell(watchers)
        callbacks: list[tuple[Any, Callable[[Any], object]]] = [*(self.callbacks or ())]
        callbacks += [(share, self._settle) for share in self.shares or ()]
        self.callbacks = self.watched = self.shares = None
        return callbacks

    def _settle(self, share: ArrowShare) -> None:
        """Called without the lock: the outcome no longer changes."""
        error = self.error_among(share.first, share.count)
        share.outcome.settle(self.partition, share.count, error)

    def split(self, middle: int) -> tuple[Delivery, Delivery]:
        """The batch is sent in two parts: from now on, a record's outcome is that of its part."""
        first = Delivery(self.shared, self.topic, self.partition, self.times.part(0, middle))
        second = Delivery(self.shared, self.topic, self.partition, self.times.part(middle))
        self.parts = (middle, first, second)
        for future, callback in self.callbacks or ():
            future.located().add_callback(future, callback)
        for future, watchers in (self.watched or {}).items():
            future.located().watchers_of(future).extend(watchers)
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

    def add_share(self, outcome: ArrowDelivery, first: int, count: int) -> None:
        """``count`` records from index ``first`` on belong to one ``send_arrow``."""
        if self.shares is None:
            self.shares = []
        self.shares.append(ArrowShare(outcome, first, count))

    def watchers_of(self, future: RecordFuture) -> list[Any]:
        """The calls of ``concurrent.futures`` that wait for a future, to be added to."""
        if self.done:
            return _Watchers()
        if self.watched is None:
            self.watched = {}
        return self.watched.setdefault(future, _Watchers())

    def error_at(self, index: int) -> MillstreamError | None:
        """A record's error: the broker may say which records of a refused batch are invalid (KIP-467)."""
        error = self.error
        if error is None or not self.record_errors:
            return error
        where = f"{self.topic}-{self.partition}"
        message = self.record_errors.get(index)
        if message is None:
            bystander = InvalidRecordError(f"{where}: refused, as other records of its batch were invalid")
            bystander.at_fault = False
            return bystander
        kind = (
            type(error)
            if len(self.record_errors) == 1 and isinstance(error, BrokerError)
            else InvalidRecordError
        )
        return kind(f"{where}: {message or error.detail}")

    def error_among(self, first: int, count: int) -> MillstreamError | None:
        """The error of the first invalid record among ``count`` from ``first`` on, or of the batch."""
        at_fault = [index for index in self.record_errors or () if first <= index < first + count]
        return self.error_at(min(at_fault, default=first))

    def metadata_at(self, index: int) -> RecordMetadata:
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        timestamp = self.append_time if self.append_time >= 0 else self.times.at(index)
        return RecordMetadata(self.topic, self.partition, offset, timestamp)


@dataclass(frozen=True, slots=True)
class ArrowShare:
    """The records of one ``send_arrow`` in one batch."""

    outcome: ArrowDelivery
    first: int
    count: int


class _Watchers(list[Any]):
    """Those who watch one future. They are dropped when it is done, and may remove themselves later."""

    def remove(self, watcher: Any) -> None:
        if watcher in self:
            super().remove(watcher)


if TYPE_CHECKING:
    _Base = Future[RecordMetadata]
else:
    _Base = object


class RecordFuture(_Base):
    """The partition and offset of one record, once the broker has acknowledged it.

    A ``concurrent.futures.Future``: it works with ``concurrent.futures.wait`` and ``asyncio.wrap_future``. It
    cannot be cancelled. Callbacks run on the producer's I/O thread: they should be short, and may send but
    not flush.
    """

    # To isinstance() it is a Future by its __class__. As a true subclass it would have a dict and more:
    # making it and visiting it in garbage collections, while it is kept, would cost more than send() itself.
    __slots__ = ("_delivery", "_index")

    # Without __init__, which would double the cost of making one.
    _delivery: Delivery
    _index: int

    @classmethod
    def of(cls, delivery: Delivery, index: int) -> RecordFuture:
        """The future of the record ``index`` of a batch."""
        future = cls()
        future._delivery = delivery
        future._index = index
        return future

    def located(self) -> Delivery:
        """Under the lock: the delivery of the record's batch, or of its part if the batch was split."""
        while self._delivery.parts is not None:
            middle, first, second = self._delivery.parts
            if self._index < middle:
                self._delivery = first
            else:
                self._delivery = second
                self._index -= middle
        return self._delivery

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record's metadata; raises the error of a failed record, or MillstreamTimeoutError."""
        delivery = self._settled(timeout)
        error = delivery.error_at(self._index)
        if error is not None:
            raise error.with_traceback(None)
        return delivery.metadata_at(self._index)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; None if the record was written."""
        return self._settled(timeout).error_at(self._index)

    def _settled(self, timeout_s: float | None) -> Delivery:
        shared = self._delivery.shared
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with shared.lock:
            while not self.located().done:
                if not shared.wait(deadline_s):
                    raise MillstreamTimeoutError(f"the record was not delivered within {timeout_s:g} seconds")
            return self._delivery

    def done(self) -> bool:
        with self._delivery.shared.lock:
            return self.located().done

    def running(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, fn: DoneCallback) -> None:
        """Call ``fn`` with this future once it is done: on the I/O thread, or at once if it is done."""
        with self._delivery.shared.lock:
            delivery = self.located()
            if not delivery.done:
                delivery.add_callback(self, fn)
                return
        run_callback(self, fn)

    def __repr__(self) -> str:
        with self._delivery.shared.lock:
            delivery = self.located()
            if not delivery.done:
                return f"<RecordFuture for {delivery.topic}-{delivery.partition}, pending>"
            outcome = delivery.error_at(self._index) or delivery.metadata_at(self._index)
            return f"<RecordFuture {outcome!r}>"

    # -- what concurrent.futures.wait, as_completed and asyncio.wrap_future use

    if not TYPE_CHECKING:  # type checkers see the base class's attributes

        @property
        def __class__(self) -> type:
            return Future

        @property
        def _condition(self) -> threading.Condition:
            return self._delivery.shared.condition

        @property
        def _state(self) -> str:
            return "FINISHED" if self.done() else "PENDING"

        @property
        def _waiters(self) -> list[Any]:
            return self.located().watchers_of(self)

    def tell(self, watchers: list[Any]) -> None:
        """Under the lock, once done: notify the calls of ``concurrent.futures`` that wait."""
        failed = self._delivery.error_at(self._index) is not None
        for watcher in watchers:
            (watcher.add_exception if failed else watcher.add_result)(self)


def run_callback(future: Any, callback: Callable[[Any], object]) -> None:
    """Call a callback as concurrent.futures does: an exception is logged, and affects nothing else."""
    try:
        callback(future)
    except Exception:
        log.exception("a callback of a record's future failed")
