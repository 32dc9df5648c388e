"""Syncs logs to the disk on worker threads: one fdatasync serves all requests that wait for it.

The many logs of one request are synced together, by one sync of their file system where that is possible, and
otherwise one by one, on all threads.
While a log is being synced, further requests for it are collected; when the sync ends, one more covers all of
them. So the busier the broker, the more requests share a sync, and the event loop never waits.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from millstream.broker.log.files import lacks_descriptors
from millstream.broker.metrics import BrokerMetrics
from millstream.errors import UnknownTopicOrPartitionError

log = logging.getLogger("millstream.broker")

Done = Callable[[dict["SyncableLog", Exception]], None]
"""Called once with the logs that failed and their errors; an empty dict is success."""
CallThreadsafe = Callable[[Callable[[], None]], None]
SyncTogether = Callable[[Sequence[Any]], bool]
"""Syncs tickets together, or returns False: then each has to be synced. Called on a worker thread."""
_MANY: Final = 32
"""So many logs are worth a sync of the whole file system, which also syncs what others have written to it."""
_A_TURN: Final = 16
"""How many logs a thread syncs one by one before it reports them."""
_SHORTAGE_S: Final = 0.05
"""The pause after a sync that found no descriptor."""


class SyncableLog(Protocol):
    """A log that can be synced. All but the ticket's ``sync`` is called on the loop's thread."""

    def take_unsynced(self) -> Any:
        """Return a ticket whose method ``sync`` waits for the disk, or raises OSError.

        After an error that says ``lacks_descriptors``, ``sync`` is called again.
        """

    def synced(self, ticket: Any) -> None: ...

    def sync_failed(self, ticket: Any, error: Exception) -> None: ...


@dataclass(slots=True)
class _Waiter:
    """One request, waiting for all of its logs."""

    remaining: int
    done: Done
    failures: dict[SyncableLog, Exception] = field(default_factory=dict)

    def one_finished(self, log: SyncableLog, error: Exception | None) -> None:
        if error is not None:
            self.failures[log] = error
        self.remaining -= 1
        if not self.remaining:
            self.done(self.failures)


@dataclass(frozen=True, slots=True)
class _Work:
    """Logs to sync, each with its ticket; ``together``: in one go if that is possible."""

    logs: Sequence[tuple[SyncableLog, Any]]
    together: bool = False


@dataclass(slots=True)
class _Rounds:
    """The syncs of one log: the requests that the running one covers, and those that wait for the next."""

    deleted: bool = False
    covered: list[_Waiter] = field(default_factory=list)
    waiting: list[_Waiter] = field(default_factory=list)


class Flusher:
    """Shares syncs among requests. Everything but the syncs themselves runs on the loop's thread."""

    def __init__(
        self,
        call_threadsafe: CallThreadsafe,
        metrics: BrokerMetrics,
        sync_together: SyncTogether = lambda tickets: False,
        workers: int = 4,
    ) -> None:
        self._call_threadsafe = call_threadsafe
        self._metrics = metrics
        self._sync_together = sync_together
        self._together = threading.Lock()
        self._rounds: dict[SyncableLog, _Rounds] = {}
        self._work: queue.Queue[_Work | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._sync_until_closed, name=f"millstream-sync-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def when_durable(self, logs: Iterable[SyncableLog], done: Done) -> None:
        """Call ``done`` when all that the logs contain now is on the disk, or has failed."""
        wanted = set(logs)
        if not wanted:
            done({})
            return
        waiter = _Waiter(len(wanted), done)
        idle = []
        for log in wanted:
            rounds = self._rounds.get(log)
            if rounds is None:
                rounds = self._rounds[log] = _Rounds()
                idle.append(log)
            rounds.waiting.append(waiter)
        self._start(idle)

    def forget(self, log: SyncableLog) -> None:
        """Ignore failed syncs of a log that was deleted: they say nothing about the disk.

        The log must not be told. It would truncate its files by name, and a new topic may have that name.
        """
        rounds = self._rounds.get(log)
        if rounds is not None:
            rounds.deleted = True

    def close(self) -> None:
        """Finish the syncs that are queued, then stop the threads."""
        self._work.join()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self, logs: Sequence[SyncableLog]) -> None:
        """Sync logs for the requests that wait for them: many together, few on several threads."""
        work = []
        for log in logs:
            rounds = self._rounds[log]
            rounds.covered, rounds.waiting = rounds.waiting, []
            work.append((log, log.take_unsynced()))
        self._metrics.syncs += len(work)
        if len(work) >= _MANY:
            self._work.put(_Work(work, together=True))
        else:
            for item in work:
                self._work.put(_Work([item]))

    def _sync_until_closed(self) -> None:
        while (work := self._work.get()) is not None:
            started_s = time.perf_counter()
            if work.together and not self._are_synced([ticket for _, ticket in work.logs]):
                for first in range(0, len(work.logs), _A_TURN):
                    self._work.put(_Work(work.logs[first : first + _A_TURN]))
            else:
                outcomes = [
                    (log, ticket, None if work.together else _failure(ticket)) for log, ticket in work.logs
                ]
                took_s = (time.perf_counter() - started_s) / (1 if work.together else len(work.logs))
                self._call_threadsafe(partial(self._finish, outcomes, took_s))
                del outcomes
            del work  # a ticket keeps files open
            self._work.task_done()

    def _are_synced(self, tickets: Sequence[Any]) -> bool:
        with self._together:  # a failure is told to one of two at once, and must be known to the other
            return self._sync_together(tickets)

    def _finish(self, outcomes: Sequence[tuple[SyncableLog, Any, Exception | None]], took_s: float) -> None:
        self._metrics.sync_seconds.observe(took_s)
        again = []
        settled = []
        for log, ticket, failure in outcomes:
            rounds = self._rounds[log]
            error = self._report(log, ticket, failure, rounds.deleted)
            covered, rounds.covered = rounds.covered, []
            if error is not None:
                # The log has cut off its unsynced end: what was appended to it since then is lost too.
                covered += rounds.waiting
                rounds.waiting = []
            if rounds.waiting:
                again.append(log)
            else:
                del self._rounds[log]
            settled.append((log, error, covered))
        self._start(again)
        for log, error, covered in settled:
            for waiter in covered:
                waiter.one_finished(log, error)

    def _report(
        self, log: SyncableLog, ticket: Any, error: Exception | None, deleted: bool
    ) -> Exception | None:
        """Report the outcome of a sync to the log; returns the error for those who wait."""
        if error is None:
            log.synced(ticket)
            return None
        if deleted:
            return UnknownTopicOrPartitionError("the topic was deleted meanwhile")
        self._metrics.failed_syncs += 1
        log.sync_failed(ticket, error)
        return error


def _failure(ticket: Any) -> Exception | None:
    """Sync; returns what the disk says. Without a free descriptor, it was not asked: wait for one."""
    is_short = False
    while True:
        try:
            ticket.sync()
        except OSError as failure:
            if not lacks_descriptors(failure):
                return failure
            if not is_short:
                log.warning("syncs wait until files or connections are closed: %s", failure)
            is_short = True
            time.sleep(_SHORTAGE_S)
        else:
            return None
