"""Background work on the logs: retention, compaction, recovery points, removal of deleted files.

Quick steps run on the event loop between requests. What waits for the disk or takes long runs on one worker
thread, one job after another.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from millstream.broker.flusher import Flusher
from millstream.broker.log.directory import LogDirectory
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.upkeep.compaction import CompactionCancelled, CompactionPlan, CompactionResult
from millstream.broker.settings import BrokerSettings
from millstream.errors import KafkaStorageError
from millstream.model import TopicPartition
from millstream.net.reactor import Reactor

log = logging.getLogger("millstream.broker")

_CHECKPOINT_MS: Final = 60_000
_LOGS_A_TURN: Final = 50
"""How many logs are checked in one turn of the event loop."""

Job = Callable[[], None]


class Maintenance:
    """Runs the background work of one broker."""

    def __init__(
        self,
        directory: LogDirectory,
        reactor: Reactor,
        settings: BrokerSettings,
        flusher: Flusher,
        epoch_ms: Callable[[], int],
    ) -> None:
        """Start the worker thread and the periodic tasks."""
        self._directory = directory
        self._reactor = reactor
        self._flusher = flusher
        self._epoch_ms = epoch_ms
        self._compacting: set[TopicPartition] = set()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="millstream-maintenance", daemon=True)
        self._thread.start()
        self.remove(directory.trash)
        self._repeat(settings.log_retention_check_interval_ms, self._apply_retention)
        self._repeat(_CHECKPOINT_MS, self._checkpoint)
        self._is_relieving = False
        directory.on_crowded(self._relieve_soon)
        if settings.log_cleaner_enable:
            self._repeat(max(1, settings.log_cleaner_backoff_ms), self._compact)

    def close(self) -> None:
        """Finish the queued jobs, but cancel compactions, and end the thread."""
        self._stopping.set()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and directories that left the log, in the background."""
        for path in paths:
            self._jobs.put(partial(self._remove, path))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except OSError as error:
                log.error("background work failed, and will be tried again: %s", error)

    def _remove(self, path: str) -> None:
        if os.path.isdir(path):
            self._directory.files.remove_tree(path)
        else:
            self._directory.files.unlink(path)

    def _repeat(self, every_ms: int, task: Callable[[], None]) -> None:
        def again() -> None:
            task()
            self._repeat(every_ms, task)

        self._reactor.call_at(self._reactor.now_ms() + every_ms, again)

    # --- periodic tasks

    def _checkpoint(self) -> None:
        """Sync what no request waited for (acks=1), then write the recovery points."""
        directory = self._directory
        self._flusher.when_durable(
            directory.unsynced_logs(), lambda _: self._jobs.put(directory.checkpoint())
        )

    def _relieve_soon(self) -> None:
        """Too many files are open: see to it that those which wait to be synced can be closed."""
        if not self._is_relieving:
            self._is_relieving = True
            self._reactor.call_threadsafe(self._relieve)

    def _relieve(self) -> None:
        logs = self._directory.unsynced_logs() if self._directory.is_crowded else []
        self._flusher.when_durable(logs, lambda _: self._end_relief())

    def _end_relief(self) -> None:
        self._is_relieving = False

    def _apply_retention(self) -> None:
        self._retain_some(list(self._directory.logs.items()))

    def _retain_some(self, logs: list[tuple[TopicPartition, PartitionLog]]) -> None:
        """Check some logs now, and the others in later turns of the loop."""
        for partition, one in logs[:_LOGS_A_TURN]:
            if self._directory.logs.get(partition) is one:
                self._retain(partition, one)
        rest = logs[_LOGS_A_TURN:]
        if rest:
            self._reactor.call_at(self._reactor.now_ms() + 1, partial(self._retain_some, rest))

    def _retain(self, partition: TopicPartition, one: PartitionLog) -> None:
        try:
            done = one.maintain(self._epoch_ms())
        except KafkaStorageError as error:
            log.error("%s: retention failed, and will be tried again: %s", partition, error)
            return
        if done.deleted_segments:
            count, size = done.deleted_segments, done.deleted_bytes
            log.info("%s: deleted %d segments of %d bytes", partition, count, size)
        self.remove(done.trash)

    # --- compaction

    def _compact(self) -> None:
        """Compact every log that is worth it, unless its last compaction is still running."""
        for partition, one in self._directory.logs.items():
            if not one.config.compacts or partition in self._compacting:
                continue
            if one.durable_offset < one.end_offset:  # only what is on the disk may be compacted
                self._flusher.when_durable([one], lambda _: None)
            plan = one.plan_compaction(self._epoch_ms())
            if plan is not None:
                self._compacting.add(partition)
                self._jobs.put(partial(self._run_compaction, partition, one, plan))

    def _run_compaction(self, partition: TopicPartition, one: PartitionLog, plan: CompactionPlan) -> None:
        """Run on the worker thread; reads closed files only."""
        result: CompactionResult | None = None
        try:
            result = replace(plan, is_cancelled=self._stopping.is_set).run()
        except CompactionCancelled:
            log.info("%s: compaction cancelled, as the broker stops", partition)
        except KafkaStorageError as error:
            log.error("%s: compaction failed, and will be tried again: %s", partition, error)
        self._reactor.call_threadsafe(partial(self._install, partition, one, result))

    def _install(self, partition: TopicPartition, one: PartitionLog, result: CompactionResult | None) -> None:
        self._compacting.discard(partition)
        if result is None or self._directory.logs.get(partition) is not one:
            return
        try:
            self.remove(one.install(result))
        except KafkaStorageError as error:
            log.error("%s: compaction failed, and will be tried again: %s", partition, error)
            return
        log.info("%s: compacted %d bytes to %d", partition, result.bytes_before, result.bytes_after)
