"""Making appended data durable: one fdatasync serves every request that waited for it.

A request that must be on the disk names its logs and a callback. While a log is being synced on a worker
thread, further requests for it gather; when that sync ends, one more covers them all. So the cost of the disk
is shared the more the busier the broker is, and the event loop never waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from millstream.broker.metrics import BrokerMetrics
from millstream.errors import UnknownTopicOrPartitionError

Done = Callable[[dict["SyncableLog", Exception]], None]
"""Told, once, which logs failed and why: an empty dict is success."""
CallThreadsafe = Callable[[Callable[[], None]], None]


class SyncableLog(Protocol):
    """The part of a log that durability needs. All but the ticket's ``sync`` is for the loop's thread."""

    def take_unsynced(self) -> Any:
        """A ticket with a method ``sync``, which waits for the disk on a worker thread or raises OSError."""

    def synced(self, ticket: Any) -> None: ...

    def sync_failed(self, ticket: Any, error: Exception) -> None: ...


class _Waiter:
    """One request, waiting for all of its logs."""

    __slots__ = ("done", "failures", "remaining")

    def __init__(self, remaining: int, done: Done) -> None:
        self.remaining = remaining
        self.done = done
        self.failures: dict[SyncableLog, Exception] = {}

    def one_finished(self, log: SyncableLog, error: Exception | None) -> None:
        if error is not None:
            self.failures[log] = error
        self.remaining -= 1
        if not self.remaining:
            self.done(self.failures)


class _Rounds:
    """One log's syncs: who is covered by the one under way, and who waits for the next."""

    __slots__ = ("covered", "deleted", "waiting")

    def __init__(self) -> None:
        self.deleted = False
        self.covered: list[_Waiter] = []
        self.waiting: list[_Waiter] = []


class Flusher:
    """Shares syncs among requests. Everything but the syncs themselves happens on the loop's thread."""

    def __init__(self, call_threadsafe: CallThreadsafe, metrics: BrokerMetrics, workers: int = 4) -> None:
        self._call_threadsafe = call_threadsafe
        self._metrics = metrics
        self._rounds: dict[SyncableLog, _Rounds] = {}
        self._work: queue.SimpleQueue[tuple[SyncableLog, Any] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._sync_until_closed, name=f"millstream-sync-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def when_durable(self, logs: Iterable[SyncableLog], done: Done) -> None:
        """Call ``done`` once all that the logs hold now is on the disk, or could not be put there."""
        wanted = set(logs)
        if not wanted:
            done({})
            return
        waiter = _Waiter(len(wanted), done)
        for log in wanted:
            rounds = self._rounds.get(log)
            if rounds is None:
                rounds = self._rounds[log] = _Rounds()
                rounds.waiting.append(waiter)
                self._start(log, rounds)
            else:
                rounds.waiting.append(waiter)

    def forget(self, log: SyncableLog) -> None:
        """The log was deleted: a sync of it that fails now says nothing about the disk.

        The log must not hear of it. It would cut its files by their names, which a new topic may have.
        """
        rounds = self._rounds.get(log)
        if rounds is not None:
            rounds.deleted = True

    def close(self) -> None:
        """Finish the syncs that are queued, then stop the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self, log: SyncableLog, rounds: _Rounds) -> None:
        rounds.covered, rounds.waiting = rounds.waiting, []
        self._metrics.syncs += 1
        self._work.put((log, log.take_unsynced()))

    def _sync_until_closed(self) -> None:
        while (item := self._work.get()) is not None:
            log, ticket = item
            error: Exception | None = None
            try:
                ticket.sync()
            except OSError as failure:
                error = failure
            self._call_threadsafe(partial(self._finish, log, ticket, error))

    def _finish(self, log: SyncableLog, ticket: Any, error: Exception | None) -> None:
        rounds = self._rounds[log]
        if error is None:
            log.synced(ticket)
        elif rounds.deleted:
            error = UnknownTopicOrPartitionError("the topic was deleted meanwhile")
        else:
            self._metrics.failed_syncs += 1
            log.sync_failed(ticket, error)
        covered, rounds.covered = rounds.covered, []
        if error is not None:
            # The log has cut its unsynced tail: those who appended to it since then have lost their data too.
            covered += rounds.waiting
            rounds.waiting = []
        if rounds.waiting:
            self._start(log, rounds)
        else:
            del self._rounds[log]
        for waiter in covered:
            waiter.one_finished(log, error)
