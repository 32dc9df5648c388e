"""A load's place in its consumer group: a thread that belongs to a Consumer which reads nothing.

The thread polls, so that the group sees a live member however long Spark works. The load's own thread asks it
for what it owns, and takes hold of partitions for a cycle:

    hold(partitions) → (tasks run) → seal() → (sink and group are committed) → release()

When the group takes partitions away, a cycle that covers them is broken off if it is not sealed, and waited
for if it is: then its offsets are committed before the partitions go. Should that take longer than the group
waits, they go all the same: the sink's compare-and-set keeps the rows right.
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
"""How often a cycle that must end is told so: the first time may have come before Spark knew of it."""


class _Phase(Enum):
    IDLE = auto()
    HELD = auto()
    SEALED = auto()


class GroupMember(RebalanceListener):
    """One member of the group. The methods without an underscore are for the load's thread."""

    def __init__(
        self,
        settings: Mapping[str, object],
        topics: Iterable[str],
        *,
        on_rebalance: Callable[[], None],
        give_up_seconds: float,
    ) -> None:
        """``give_up_seconds``: how long partitions that are taken away may be kept for a cycle's end."""
        self._settings = dict(settings)
        self._topics = list(topics)
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
        """The partitions that this member owns now; raises what has ended its membership."""
        with self._changed:
            self._check()
            return self._owned

    @property
    def owned_count(self) -> int:
        """How many partitions it owns, for whoever watches."""
        return len(self._owned)

    @property
    def losses(self) -> int:
        """How often it was no member of the group for a while, without having been asked to leave."""
        return self._losses

    def wait_assigned(self, timeout_s: float) -> bool:
        """Wait for the first assignment, which may be empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._assigned_once or self._error, timeout_s)
            self._check()
            return self._assigned_once

    def wait_change(self, timeout_s: float) -> None:
        """Wait until something about the ownership changes, or for that long."""
        with self._changed:
            self._check()
            self._changed.wait(timeout_s)

    def hold(self, partitions: frozenset[TopicPartition], interrupt: Callable[[], None]) -> bool:
        """Begin a cycle over these partitions; False when they are not all owned any more.

        ``interrupt`` is called from other threads, more than once, when the cycle must end.
        """
        with self._changed:
            self._check()
            if not partitions <= self._owned or self._closing:
                return False
            self._phase, self._held = _Phase.HELD, partitions
            self._interrupt, self._aborted = interrupt, False
            return True

    def seal(self) -> bool:
        """From here on the cycle will be committed; False when it was broken off before."""
        with self._changed:
            if self._aborted:
                return False
            self._phase = _Phase.SEALED
            return True

    def release(self) -> None:
        """The cycle is over, one way or the other."""
        with self._changed:
            self._phase, self._held = _Phase.IDLE, frozenset()
            self._changed.notify_all()

    @property
    def is_aborted(self) -> bool:
        """Whether the present cycle was told to end."""
        return self._aborted

    def abort_cycle(self) -> None:
        """End the present cycle if it is not sealed, and wait for that. From any other thread."""
        with self._changed:
            if self._phase is not _Phase.HELD:
                return
            self._aborted = True
        self._wait_released(self._give_up_seconds, serve=False)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, losses: int) -> None:
        """Commit to the group as its member: CommitFailedError when it is one no longer.

        ``losses``: how many there were when the group's offsets were read. After another one these may have
        been moved by whoever found the group empty, and must not be overwritten unread.
        """

        def commit(consumer: Consumer) -> None:
            if losses != self._losses:  # it changes in this thread only
                raise CommitFailedError("the load was no member of its group for a while")
            consumer.commit(dict(offsets), timeout=_COMMIT_SECONDS)

        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                return self._call(commit)
            except RebalanceInProgressError:  # the thread goes on polling, so that it ends
                if time.monotonic() > deadline:
                    raise
                self.wait_change(_POLL_SECONDS)

    def close(self, *, at_once: bool = False) -> None:
        """Leave the group (a static member stays in it); ``at_once`` just stops taking part."""
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
            raise MillstreamTimeoutError("the group's member did not answer in time") from error

    def _wake(self) -> None:
        """End the poll in progress. Anything else that the consumer does is not to be broken off."""
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
                consumer.subscribe(self._topics, listener=self)
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
            log.warning("the load's group member goes on after: %s", error)
        finally:
            self._set_polling(False)

    def _set_polling(self, polling: bool) -> None:
        with self._changed:
            self._polling = polling and not self._calls and not self._closing
            if polling and not self._polling and self._consumer is not None:
                self._consumer.wakeup()  # there is work: poll only to let callbacks run
            elif not polling and self._consumer is not None:
                session_of(self._consumer).waits.forget_wakeup()

    def _serve(self) -> None:
        """Do what the load's thread asks for."""
        assert self._consumer is not None, "made before anybody can ask"
        while True:
            with self._changed:
                if not self._calls:
                    return
                future, work = self._calls.popleft()
            try:
                future.set_result(work(self._consumer))
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
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
            consumer.seek(one, 0)  # nor need it ask where it would
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
        """Wait for the end of the cycle, telling it to end, and meanwhile do what it needs done."""
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
        log.warning("a cycle of the load did not end within %.0f s: its partitions go without it", timeout_s)

    def _interrupt_held(self) -> None:
        with self._changed:
            interrupt = self._interrupt if self._aborted and self._phase is _Phase.HELD else None
        if interrupt is not None:
            try:
                interrupt()
            except Exception as error:  # noqa: BLE001 - Spark may be ending as well
                log.warning("Spark's job could not be interrupted: %s", error)
