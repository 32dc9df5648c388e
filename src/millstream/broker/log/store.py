"""The state of one partition's log, in memory and on the disk: segments, leader epochs and producers.

``PartitionLog`` appends to it and reads from it, ``repair`` cuts it after a failed write, and ``upkeep``
removes and replaces segments.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from millstream.broker.log.config import LogConfig
from millstream.broker.log.durability import Unsynced
from millstream.broker.log.epochs import LeaderEpochs
from millstream.broker.log.files import TEMPORARY_SUFFIX
from millstream.broker.log.producers import ProducerStates
from millstream.broker.log.recovery.loading import EPOCHS_FILE, LoadedLog, RecoveryReport
from millstream.broker.log.recovery.snapshots import LogSnapshot, SnapshotFiles
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.log_segments import LogSegments
from millstream.broker.log.segments.segment import (
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    Segment,
)
from millstream.broker.log.upkeep.swap import take_out
from millstream.errors import CorruptBatch, KafkaStorageError


class LogStore:
    """Segments, epochs and producers of one partition. ``loaded`` is None for a log without a directory."""

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
        self.pool = pool
        self.files = pool.files
        self.segments = LogSegments(loaded.segments)
        self.epochs = loaded.epochs
        self.epochs_saved = bool(loaded.segments)
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.unsynced = Unsynced(pool.files)
        for path in loaded.unsynced:
            self.unsynced.add_path(path)
        if loaded.unsynced:
            self.unsynced.add_directory(directory)
            self.unsynced.add_directory(os.path.dirname(directory))
        self.changed = loaded.report.scanned
        """Whether the log differs from what the last clean stop left."""
        self.recovered_end = loaded.end_offset
        self.last_append_ms = now_ms
        self.clean_below = loaded.clean_below
        self.cuts = 0
        """How often the end of the log was cut off."""
        self.pending_repair: Callable[[], None] | None = None
        """What must succeed before the next append."""
        self.on_change: Callable[[], None] | None = None
        """Called after the log's start, end or epoch has changed in any way but an append."""

    def notify_changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # -- segments

    def segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        """Return the segment to append ``size`` bytes to: a new one if the last is full or old."""
        if not len(self.segments):
            self.begin_segment()
        segment = self.segments.last
        if segment.size and (
            segment.size + size > self.config.segment_bytes
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or self.is_old(segment, now_ms)
        ):
            self.roll()
            segment = self.segments.last
        if not segment.size:
            segment.first_append_ms = now_ms
        return segment

    def is_old(self, segment: Segment, now_ms: int) -> bool:
        """Return whether the segment has reached segment.ms and must be closed."""
        if segment.first_append_ms is None:  # from before a restart: use its first batch
            segment.first_append_ms = min(segment.first_timestamp(), now_ms)
        config = self.config
        limit_ms = (
            min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        )
        return now_ms - segment.first_append_ms >= limit_ms

    def begin_segment(self) -> None:
        """Create the segment that begins at the end offset."""
        if not len(self.segments):
            self.files.mkdir(self.directory)
            self.unsynced.add_directory(os.path.dirname(self.directory))
        segment = Segment.create(self.pool, self.directory, self.end_offset)
        self.unsynced.add(segment.file)
        self.unsynced.add_directory(self.directory)
        self.segments.append(segment)
        self.changed = True

    def roll(self) -> None:
        """Close the last segment and begin another. After an OSError the last one stays in use."""
        self.pool.make_room()
        for file in self.segments.last.save_index():
            self.unsynced.add(file)
        snapshot = LogSnapshot(self.end_offset, self.end_offset, 0, 0, self.producers)
        self.unsynced.add(self.snapshots.write(snapshot))
        self.begin_segment()

    def delete_oldest(self, count: int) -> list[str]:
        """Take the oldest ``count`` segments out of the log; return their files, to be removed."""
        # What stays must survive a power cut, or offsets would be assigned twice.
        self.unsynced.sync_directories()
        oldest = self.segments.up_to(count)
        trash = []
        for segment in oldest:
            trash += take_out(self.files, self.directory, segment.base_offset)
            self.forget_unsynced(segment)
        self.segments.replace(oldest, [])
        self.start_offset = max(self.start_offset, self.segments.first.base_offset)
        self.epochs.cut_start(self.start_offset)
        self.changed = True
        self.notify_changed()
        return trash

    def forget_unsynced(self, segment: Segment) -> None:
        """Do not sync the files of a segment that left the log."""
        for suffix in SEGMENT_SUFFIXES:
            self.unsynced.discard(segment.path(suffix))

    # -- leader epochs

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    def begin_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the end offset; it is saved with the next append."""
        self.epochs.begin(epoch, self.end_offset)
        self.epochs_saved = False

    def begin_epoch_at_open(self, *, is_new: bool, clean: bool, epoch_floor: int) -> None:
        """Begin a new epoch after a crash, because readers may have seen records that are gone."""
        if is_new:
            if epoch_floor > self.leader_epoch:
                self.begin_epoch(epoch_floor)
        elif not clean:
            self.begin_epoch(max(epoch_floor, self.leader_epoch + 1))
            if self.leader_epoch != epoch_floor:
                self.write_epochs_durably()

    def save_epochs(self) -> None:
        """Write the epochs; the sync of what is appended in them makes them durable."""
        path = os.path.join(self.directory, EPOCHS_FILE)
        self.files.write(path + TEMPORARY_SUFFIX, self.epochs.to_bytes())
        self.files.rename(path + TEMPORARY_SUFFIX, path)
        self.unsynced.add_path(path)
        self.unsynced.add_directory(self.directory)
        self.epochs_saved = True

    def write_epochs_durably(self) -> None:
        """Write the epochs and wait for the disk."""
        self.files.write_atomically(os.path.join(self.directory, EPOCHS_FILE), self.epochs.to_bytes())
        self.files.sync_directory(os.path.dirname(self.directory))  # the log's directory may be new
        self.epochs_saved = True

    # -- durability

    def sync(self) -> None:
        """Make everything durable now. Raises OSError."""
        self.unsynced.take(self.end_offset, self.cuts).sync()
        self.durable_offset = max(self.durable_offset, self.end_offset)

    def write_snapshot(self) -> None:
        """Write what a clean start needs, unless nothing has changed since the last one."""
        if self.changed:
            last = self.segments.last
            state = (self.end_offset, last.base_offset, last.size, last.first_append_ms or 0)
            self.snapshots.write(LogSnapshot(*state, self.producers), last.index_bytes())
            self.changed = False

    # -- repair

    def try_repair(self, repair: Callable[[], None]) -> None:
        """Repair the files now, or before the next append if that fails."""
        try:
            repair()
        except (OSError, CorruptBatch, KafkaStorageError):
            self.pending_repair = repair

    def run_pending_repair(self) -> None:
        """Make up for a repair that failed. Raises KafkaStorageError if it fails again."""
        if self.pending_repair is None:
            return
        try:
            self.pending_repair()
        except (OSError, CorruptBatch) as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        self.pending_repair = None
