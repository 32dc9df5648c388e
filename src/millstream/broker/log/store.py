"""The files behind a partition's log: beginning and closing segments, syncing, cutting, stopping.

``PartitionLog`` builds on this; what it adds is what the broker asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from millstream.broker.log.config import LogConfig
from millstream.broker.log.durability import SyncTicket, Unsynced
from millstream.broker.log.epochs import LeaderEpochs
from millstream.broker.log.files import TEMPORARY_SUFFIX, write_all
from millstream.broker.log.producers import ProducerStates
from millstream.broker.log.recovery import opening as recovery
from millstream.broker.log.recovery.opening import EPOCHS_FILE, LoadedLog, RecoveryReport
from millstream.broker.log.recovery.snapshots import Snapshot, SnapshotFiles
from millstream.broker.log.segments.ordered import Segments
from millstream.broker.log.segments.segment import (
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    FilePool,
    Segment,
)
from millstream.broker.log.upkeep.swap import SwapName, put_out, swap_in
from millstream.errors import CorruptBatch, KafkaStorageError


class LogStore:
    """Segments, epochs and producers of one partition, in memory and on the disk."""

    def __init__(
        self, directory: str, config: LogConfig, pool: FilePool, loaded: LoadedLog | None, now_ms: int
    ) -> None:
        if loaded is None:
            snapshots = SnapshotFiles(pool.files, directory, [])
            loaded = LoadedLog([], 0, 0, 0, LeaderEpochs(), ProducerStates(), snapshots, RecoveryReport())
        self.directory = directory
        self.config = config
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.durable_offset = loaded.durable_offset
        self.recovery = loaded.report
        self._pool = pool
        self._files = pool.files
        self._segments = Segments(loaded.segments)
        self._epochs = loaded.epochs
        self._epochs_saved = bool(loaded.segments)
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._unsynced = Unsynced(pool.files)
        for path in loaded.unsynced:
            self._unsynced.add_path(path)
        if loaded.unsynced:
            self._unsynced.add_directory(directory)
            self._unsynced.add_directory(os.path.dirname(directory))
        self._changed = loaded.report.scanned  # against what the last clean stop left
        self._recovered_end = loaded.end_offset
        self._last_append_ms = now_ms
        self._clean_below = loaded.clean_below
        self._cuts = 0
        self._repair: Callable[[], None] | None = None

    # -- segments

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        """The segment to append to, a new one where the last is full or old."""
        if not len(self._segments):
            self._begin_segment()
        segment = self._segments.last
        if segment.size and (
            segment.size + size > self.config.segment_bytes
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or self._is_old(segment, now_ms)
        ):
            self._roll()
            segment = self._segments.last
        if not segment.size:
            segment.first_append_ms = now_ms
        return segment

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        if segment.first_append_ms is None:  # from before a restart: its first batch tells
            segment.first_append_ms = min(segment.first_timestamp(), now_ms)
        config = self.config
        limit_ms = (
            min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        )
        return now_ms - segment.first_append_ms >= limit_ms

    def _begin_segment(self) -> None:
        if not len(self._segments):
            self._files.mkdir(self.directory)
            self._unsynced.add_directory(os.path.dirname(self.directory))
        segment = Segment.create(self._pool, self.directory, self.end_offset)
        self._unsynced.add(segment.file)
        self._unsynced.add_directory(self.directory)
        self._segments.append(segment)
        self._changed = True

    def _roll(self) -> None:
        """Close the last segment and begin another. On an OSError the last one stays in use."""
        for file in self._segments.last.save_index():
            self._unsynced.add(file)
        snapshot = Snapshot(self.end_offset, self.end_offset, 0, 0, self._producers)
        self._unsynced.add(self._snapshots.write(snapshot))
        self._begin_segment()

    def _delete_oldest(self, count: int) -> list[str]:
        """Put the oldest segments out of the log; returns their files, to be removed."""
        # What stays must be there after a power cut, or offsets would be given twice.
        self._unsynced.sync_directories()
        oldest = self._segments.up_to(count)
        trash = []
        for segment in oldest:
            trash += put_out(self._files, self.directory, segment.base_offset)
            self._forget_unsynced(segment)
        self._segments.replace(oldest, [])
        self.start_offset = max(self.start_offset, self._segments.first.base_offset)
        self._epochs.cut_start(self.start_offset)
        self._changed = True
        return trash

    def _swap_in(self, swap: SwapName, size: int, replaced: list[Segment]) -> list[str]:
        """Put a compacted segment in the place of others; returns their files, to be removed."""
        bases = [segment.base_offset for segment in replaced]
        trash: list[str] = []

        def finish() -> None:
            trash.extend(swap_in(self._files, self.directory, swap, bases))
            segment = Segment(self._pool, self.directory, swap.base_offset, swap.end_offset, size)
            self._segments.replace(replaced, [segment])

        try:
            finish()
        except OSError:
            self._repair = finish  # from here it must go on
            raise
        return trash

    def _forget_unsynced(self, segment: Segment) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._unsynced.discard(segment.path(suffix))

    # -- durability

    @property
    def has_unsynced(self) -> bool:
        """Whether there is anything that a sync would have to do."""
        return bool(self._unsynced)

    def take_unsynced(self) -> SyncTicket:
        """What must be synced so that all that is in the log now is durable."""
        return self._unsynced.take(self.end_offset, self._cuts)

    def synced(self, ticket: SyncTicket) -> None:
        """A ticket's sync has succeeded."""
        if ticket.cuts == self._cuts:
            self.durable_offset = max(self.durable_offset, ticket.end_offset)

    def sync_failed(self, ticket: SyncTicket, error: Exception) -> None:
        """A ticket's sync has failed: what it covered may never reach the disk, whatever a later sync says.

        All that is not known to be durable is cut off, and a new leader epoch begins. Should the disk refuse
        that too, appending fails until it succeeds.
        """
        if ticket.cuts == self._cuts:
            self._cuts += 1
            self._unsynced.clear()
            self._try_repair(self._cut_to_durable)

    def _try_repair(self, repair: Callable[[], None]) -> None:
        """Put the files in order, now or before the next append."""
        try:
            repair()
        except (OSError, CorruptBatch, KafkaStorageError):
            self._repair = repair

    def _run_repair(self) -> None:
        """Catch up on what could not be put in order before."""
        if self._repair is None:
            return
        try:
            self._repair()
        except (OSError, CorruptBatch) as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        self._repair = None

    def _cut_back(self) -> None:
        """Cut off what a failed write may have left in the last segment."""
        if len(self._segments):
            last = self._segments.last
            self._unsynced.add(last.file)
            last.cut(last.size, last.next_offset)

    def _cut_to_durable(self) -> None:
        """Cut off what is not durable. May be tried again when it fails half-way."""
        if not len(self._segments):
            return
        kept_end = max(self.durable_offset, self._recovered_end)
        nothing_left = kept_end < self.start_offset
        self.end_offset = self.start_offset if nothing_left else kept_end
        self._segments.forget_hints()
        if nothing_left:
            self._drop_from(0)
            self._begin_segment()
        else:
            # The segment that holds the last kept record grows on, so that its indexes are written anew.
            self._drop_from(self._segments.index_of(max(0, kept_end - 1)) + 1)
            self._cut_last(self.end_offset)
        self._segments.last.file.fdatasync()  # or the tail could come back after a crash
        self._snapshots.drop_after(-1 if nothing_left else self.end_offset)
        self._producers = recovery.replay_producers(
            list(self._segments), self._snapshots, self.end_offset, self._last_append_ms
        )
        self._begin_epoch(self.leader_epoch + 1)
        self._write_epochs_durably()
        self._rewrite_recovered()
        self._changed = True

    def _rewrite_recovered(self) -> None:
        """Write once more what recovery found but no sync has confirmed.

        It may have been durable before the crash, so it is not cut. But the system takes it for written after
        a failed sync, and would report the next one as a success without doing anything.
        """
        if self.durable_offset >= self._recovered_end:
            self.durable_offset = self.end_offset
        for segment in self._segments:
            if segment.next_offset >= self.durable_offset:  # recovery has written the indexes of these anew
                self._unsynced.add(segment.file)
                for position, header in segment.batches_from(self.durable_offset):
                    recovery.check_crc_in_file(segment.file, header, position)
                    write_all(segment.file, segment.file.pread(header.size, position), position)
                if segment is not self._segments.last:
                    for file in segment.save_index():
                        self._unsynced.add(file)

    def _drop_from(self, index: int) -> None:
        dropped = self._segments.from_index(index)
        for segment in dropped:
            for suffix in SEGMENT_SUFFIXES:
                self._files.unlink(segment.path(suffix))
            self._forget_unsynced(segment)
        if dropped:
            self._segments.replace(dropped, [])

    def _cut_last(self, end_offset: int) -> None:
        last = self._segments.last
        found = last.locate(end_offset) if end_offset < last.next_offset else None
        last.cut(last.size if found is None else found[0], end_offset)

    # -- leader epochs

    @property
    def leader_epoch(self) -> int:
        return self._epochs.latest

    def _begin_epoch(self, epoch: int) -> None:
        self._epochs.begin(epoch, self.end_offset)
        self._epochs_saved = False

    def _begin_epoch_at_open(self, *, is_new: bool, clean: bool, epoch_floor: int) -> None:
        """After a crash, readers may have seen records that are gone: what is appended now is told apart."""
        if is_new:
            if epoch_floor > self.leader_epoch:
                self._begin_epoch(epoch_floor)
        elif not clean:
            self._begin_epoch(max(epoch_floor, self.leader_epoch + 1))
            if self.leader_epoch != epoch_floor:
                self._write_epochs_durably()

    def _save_epochs(self) -> None:
        """Write the epochs, to become durable with what is appended in them."""
        path = os.path.join(self.directory, EPOCHS_FILE)
        self._files.write(path + TEMPORARY_SUFFIX, self._epochs.to_bytes())
        self._files.rename(path + TEMPORARY_SUFFIX, path)
        self._unsynced.add_path(path)
        self._unsynced.add_directory(self.directory)
        self._epochs_saved = True

    def _write_epochs_durably(self) -> None:
        self._files.write_atomically(os.path.join(self.directory, EPOCHS_FILE), self._epochs.to_bytes())
        self._files.sync_directory(os.path.dirname(self.directory))  # the log's own may be new
        self._epochs_saved = True

    # -- stopping

    def close(self, clean: bool) -> None:
        """Let go of all files. A clean stop syncs everything, and leaves what the next start needs.

        Raises KafkaStorageError when that fails: the next start must then recover this log.
        """
        try:
            if clean and len(self._segments):
                self._stop_cleanly()
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        finally:
            for segment in self._segments:
                segment.forget()

    def _stop_cleanly(self) -> None:
        self._run_repair()
        if not self._epochs_saved:
            self._save_epochs()
        ticket = self.take_unsynced()
        ticket.sync()
        self.synced(ticket)
        if self._changed:
            last = self._segments.last
            state = (self.end_offset, last.base_offset, last.size, last.first_append_ms or 0)
            self._snapshots.write(Snapshot(*state, self._producers), last.index_bytes())
            self._changed = False
