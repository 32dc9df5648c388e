"""A load's member of its consumer group: a thread that polls a Consumer whose partitions are paused.

The thread polls, so that the group sees a live member however long Spark works. The load's own thread reads
which partitions it owns, and holds them for a cycle:

    hold(partitions) → (tasks run) → seal() → (sink and group are committed) → release()

When partitions are revoked, a cycle that covers them is aborted if it is not sealed, and waited for if it is:
its offsets are then committed before the partitions go. If that takes longer than the group waits, they go
anyway: the sink's compare-and-set keeps the rows right.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, Final, TypeVar

from millstream.consumer import Consumer, RebalanceListener
from millstream.consumer.consumer import session_of
from millstream.errors import (
    ClosedError,
    CommitFailedError,
    MillstreamError,
    MillstreamTimeoutError,
    RebalanceInProgressError,
    WakeupError,
)
from millstream.model import OffsetAndMetadata, TopicPartition

log = logging.getLogger("millstream.spark.load")

T = TypeVar("T")

_POLL_SECONDS: Final = 0.1
_COMMIT_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 10.0
_INTERRUPT_SECONDS: Final = 0.2
"""How often an aborted cycle is interrupted: the first time Spark may not have started its job yet."""


class _Phase(Enum):
    IDLE = auto()
    HELD = auto()
    SEALED = auto()


class LoadMember(RebalanceListener):
    """One member of the group. Methods without an underscore are for the load's thread."""

    def __init__(
        self,
        settings: Mapping[str, object],
        topics: Iterable[str],
        *,
        pattern: str | None = None,
        on_rebalance: Callable[[], None],
        give_up_seconds: float,
    ) -> None:
        """With a ``pattern`` it reads all topics that match, and ``topics`` is empty.

        ``give_up_seconds``: how long revoked partitions may be kept until a cycle ends.
        """
        self._settings = dict(settings)
        self._topics = list(topics) if pattern is None else None
        self._pattern = pattern
        self._on_rebalance = on_rebalance
        self._give_up_seconds = give_up_seconds
        self._changed = threading.Condition()
        self._owned: frozenset[TopicPartition] = frozenset()
        self._losses = 0
        self._assigned_once = False
        self._phase = _Phase.IDLE
        self._held: frozenset[TopicPartition] = frozenset()
        self._interrupt: Callable[[], None] = lambda: None
        self._aborted = False
        self._calls: deque[tuple[Future[Any], Callable[[Consumer], Any]]] = deque()
        self._consumer: Consumer | None = None
        self._polling = False
        self._closing = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="millstream-load-member", daemon=True)

    # ---- the load's thread

    def start(self) -> None:
        self._thread.start()

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now. Raises what has ended its membership."""
        with self._changed:
            self._check()
            return self._owned

    @property
    def owned_count(self) -> int:
        """How many partitions it owns, for ``snapshot``."""
        return len(self._owned)

    @property
    def losses(self) -> int:
        """How often it lost its membership without leaving."""
        return self._losses

    def wait_assigned(self, timeout_s: float) -> bool:
        """Wait for the first assignment, which may be empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._assigned_once or self._error, timeout_s)
            self._check()
            return self._assigned_once

    def wait_change(self, timeout_s: float) -> None:
        """Wait until the owned partitions change, up to ``timeout_s``."""
        with self._changed:
            self._check()
            self._changed.wait(timeout_s)

    def hold(self, partitions: frozenset[TopicPartition], interrupt: Callable[[], None]) -> bool:
        """Begin a cycle over these partitions; False if they are no longer all owned.

        ``interrupt`` is called from other threads, repeatedly, when the cycle is aborted.
        """
        with self._changed:
            self._check()
            if not partitions <= self._owned or self._closing:
                return False
            self._phase, self._held = _Phase.HELD, partitions
            self._interrupt, self._aborted = interrupt, False
            return True

    def seal(self) -> bool:
        """From here on the cycle will be committed; False if it was aborted before."""
        with self._changed:
            if self._aborted:
                return False
            self._phase = _Phase.SEALED
            return True

    def release(self) -> None:
        """The cycle is over, committed or not."""
        with self._changed:
            self._phase, self._held = _Phase.IDLE, frozenset()
            self._changed.notify_all()

    @property
    def is_aborted(self) -> bool:
        """Whether the current cycle was aborted."""
        return self._aborted

    def abort_cycle(self) -> None:
        """Abort the current cycle if it is not sealed, and wait for its end. From any other thread."""
        with self._changed:
            if self._phase is not _Phase.HELD:
                return
            self._aborted = True
        self._wait_released(self._give_up_seconds, serve=False)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, losses: int) -> None:
        """Commit to the group as its member. Raises CommitFailedError if it is no longer a member.

        ``losses``: the count when the group's offsets were read. After another loss the offsets may have been
        moved, as in an empty group anyone can, and must not be overwritten unread.
        """

        def commit(consumer: Consumer) -> None:
            if losses != self._losses:  # it changes in this thread only
                raise CommitFailedError("the load had lost its membership of the group")
            consumer.commit(dict(offsets), timeout=_COMMIT_SECONDS)

        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                return self._call(commit)
            except RebalanceInProgressError:  # it ends, as the thread goes on polling
                if time.monotonic() > deadline:
                    raise
                self.wait_change(_POLL_SECONDS)

    def close(self, *, at_once: bool = False) -> None:
        """Leave the group (a static member stays in it). ``at_once``: do not wait for that."""
        with self._changed:
            self._closing = True
            self._wake()
            self._changed.notify_all()
        if not at_once and self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS + 1.0)

    def _call(self, work: Callable[[Consumer], T]) -> T:
        future: Future[T] = Future()
        with self._changed:
            self._check()
            self._calls.append((future, work))
            self._wake()
            self._changed.notify_all()
        try:
            return future.result(_COMMIT_SECONDS + 5.0)
        except TimeoutError as error:
            if isinstance(error, MillstreamError):
                raise
            raise MillstreamTimeoutError("the group member's thread did not answer in time") from error

    def _wake(self) -> None:
        """End the poll in progress. Nothing else that the consumer does may be interrupted."""
        if self._polling and self._consumer is not None:
            self._consumer.wakeup()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._thread.is_alive() and self._thread.ident is not None:
            raise ClosedError("the load has left its group")

    # ---- the member's thread

    def _run(self) -> None:
        try:
            with Consumer(self._settings) as consumer:
                self._consumer = consumer
                consumer.subscribe(self._topics, pattern=self._pattern, listener=self)
                while not self._closing:
                    self._serve()
                    self._poll(consumer)
                self._serve()
                consumer.close(_CLOSE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - the load's thread raises it
            self._fail(error)
        finally:
            self._fail_calls(self._error or ClosedError("the load has left its group"))

    def _poll(self, consumer: Consumer) -> None:
        self._set_polling(True)
        try:
            consumer.poll(timeout=_POLL_SECONDS)
        except WakeupError:
            pass
        except MillstreamError as error:
            if not error.retriable:
                raise
            log.warning("the load's group member continues after: %s", error)
        finally:
            self._set_polling(False)

    def _set_polling(self, polling: bool) -> None:
        with self._changed:
            self._polling = polling and not self._calls and not self._closing
            if polling and not self._polling and self._consumer is not None:
                self._consumer.wakeup()  # there is work: poll only to run callbacks
            elif not polling and self._consumer is not None:
                session_of(self._consumer).waits.forget_wakeup()

    def _serve(self) -> None:
        """Run the calls of the load's thread."""
        assert self._consumer is not None, "the thread creates it before it serves"
        while True:
            with self._changed:
                if not self._calls:
                    return
                future, work = self._calls.popleft()
            try:
                future.set_result(work(self._consumer))
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._aborted = True
            self._owned = frozenset()
            self._changed.notify_all()
        self._interrupt_held()

    def _fail_calls(self, error: BaseException) -> None:
        with self._changed:
            calls, self._calls = list(self._calls), deque()
        for future, _ in calls:
            future.set_exception(error)

    # ---- rebalances, inside poll()

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.pause(*partitions)  # tasks read, not this consumer
        for one in partitions:
            consumer.seek(one, 0)  # nor look up committed offsets
        self._on_rebalance()
        with self._changed:
            self._owned |= frozenset(partitions)
            self._assigned_once = True
            self._changed.notify_all()

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._set_polling(False)
        try:
            self._on_rebalance()
            self._give_up(frozenset(partitions), wait_for_sealed=True)
        finally:
            self._set_polling(True)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._losses += 1
        self._set_polling(False)
        try:
            self._on_rebalance()
            self._give_up(frozenset(partitions), wait_for_sealed=False)
        finally:
            self._set_polling(True)

    def _give_up(self, partitions: frozenset[TopicPartition], *, wait_for_sealed: bool) -> None:
        with self._changed:
            self._owned -= partitions
            concerned = self._phase is not _Phase.IDLE and bool(self._held & partitions)
            sealed = self._phase is _Phase.SEALED
            if concerned and not sealed:
                self._aborted = True
            self._changed.notify_all()
        if concerned and (wait_for_sealed or not sealed):
            self._wait_released(self._give_up_seconds, serve=True)

    def _wait_released(self, timeout_s: float, *, serve: bool) -> None:
        """Interrupt the cycle until it has ended; with ``serve``, run its calls meanwhile."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if serve:
                self._serve()
            self._interrupt_held()
            with self._changed:
                if self._phase is _Phase.IDLE:
                    return
                if not self._calls:
                    self._changed.wait(_INTERRUPT_SECONDS)
        log.warning(
            "a cycle of the load did not end within %.0f s: its partitions are given up without it", timeout_s
        )

    def _interrupt_held(self) -> None:
        with self._changed:
            interrupt = self._interrupt if self._aborted and self._phase is _Phase.HELD else None
        if interrupt is not None:
            try:
                interrupt()
            except Exception as error:  # noqa: BLE001 - Spark may be ending as well
                log.warning("Spark's job could not be interrupted: %s", error)
