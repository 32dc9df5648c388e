"""Loads a partition's directory: as a clean stop left it, or by scanning it after a crash.

After a crash the log is the longest run of valid batches. What lies below the recovery point was synced, so
only its headers are read; beyond it every checksum is verified. At the first batch that is torn, damaged, out
of order, or of an epoch that had ended before it, the log is cut: what follows was never reported as durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from millstream.broker.log.epochs import LeaderEpochs
from millstream.broker.log.files import TEMPORARY_SUFFIX, OpenFile, read_in_chunks
from millstream.broker.log.producers import ProducedBatch, ProducerStates
from millstream.broker.log.recovery import checkpoints
from millstream.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX, SnapshotFiles
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    Segment,
    placed,
    walk,
)
from millstream.broker.log.upkeep.swap import DELETED_SUFFIX, finish_interrupted_swap
from millstream.errors import CorruptBatch
from millstream.wire.records.batch_header import CRC_START, NO_PRODUCER_ID, BatchHeader
from millstream.wire.records.crc32c import extend_crc32c
from millstream.wire.records.primitives import INT32_MAX, INT64_MAX

EPOCHS_FILE = "leader-epoch-checkpoint"
START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
"""Two offsets: compaction may have left gaps below the first, and is done below the second."""
_SCAN_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a log found and did, for the broker to log."""

    scanned: bool = False
    """Whether batches had to be read, as after a crash."""
    cut_bytes: int = 0
    dropped_segments: int = 0
    missing_offsets: int = 0
    """How many offsets were reported as durable and are lost: the disk's fault, not the crash's."""
    reason: str = ""
    """Why the log was cut, if it was."""


@dataclass(slots=True)
class LoadedLog:
    """The contents of a partition's directory, ready to use."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    durable_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: SnapshotFiles
    report: RecoveryReport
    unsynced: list[str] = field(default_factory=list)
    """Files that are part of the log but perhaps not on the disk yet."""
    clean_below: int = 0
    """What lies before this offset is compacted."""


class _Loader:
    """Reads one directory into a LoadedLog."""

    def __init__(self, directory: str, pool: FilePool, index_interval_bytes: int, epoch_floor: int) -> None:
        self.directory = directory
        self.pool = pool
        self.files = pool.files
        self.interval = index_interval_bytes
        self.epoch_floor = epoch_floor
        self.sizes = dict(self.files.scan(directory))
        self.removed = False
        self.gaps_below, self.clean_below = 0, 0
        if CLEANER_FILE in self.sizes:
            self.gaps_below, self.clean_below = checkpoints.read(self.files, self.path(CLEANER_FILE))

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def remove(self, name: str) -> None:
        self.files.unlink(self.path(name))
        self.sizes.pop(name, None)
        self.removed = True

    def tidy(self) -> None:
        """Finish or undo what a crash interrupted, and remove leftovers."""
        if finish_interrupted_swap(self.files, self.directory, list(self.sizes)):
            self.sizes = dict(self.files.scan(self.directory))
        for name in list(self.sizes):
            if name.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX)):
                self.remove(name)
        for name in list(self.sizes):
            stem, suffix = os.path.splitext(name)
            if suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and stem + LOG_SUFFIX not in self.sizes:
                self.remove(name)

    def offsets_named(self, suffix: str) -> list[int]:
        stems = (name.removesuffix(suffix) for name in self.sizes if name.endswith(suffix))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def start_offset(self) -> int:
        if START_OFFSET_FILE not in self.sizes:
            return 0
        return checkpoints.read(self.files, self.path(START_OFFSET_FILE))[0]

    def segments(self, start_offset: int) -> list[Segment]:
        """Return the segments by their names; those that end before ``start_offset`` are removed."""
        bases = self.offsets_named(LOG_SUFFIX)
        found = []
        for base, following in zip(bases, [*bases[1:], None], strict=False):
            size = self.sizes[f"{base:020d}{LOG_SUFFIX}"]
            segment = Segment(self.pool, self.directory, base, base if following is None else following, size)
            if following is not None and following <= start_offset:
                self.drop(segment)
            else:
                found.append(segment)
        return found

    def drop(self, segment: Segment) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self.remove(os.path.basename(segment.path(suffix)))

    def epochs(self) -> LeaderEpochs | None:
        """Read the epochs from their file; None if there is no valid one."""
        if EPOCHS_FILE not in self.sizes:
            return None
        return LeaderEpochs.from_bytes(self.files.read(self.path(EPOCHS_FILE)))


def load(
    directory: str,
    pool: FilePool,
    *,
    clean: bool,
    recovery_point: int,
    now_ms: int,
    index_interval_bytes: int,
    epoch_floor: int,
) -> LoadedLog:
    """Load a directory. Raises FileNotFoundError if there is none, OSError if reading fails."""
    loader = _Loader(directory, pool, index_interval_bytes, epoch_floor)
    loader.tidy()
    start_offset = loader.start_offset()
    segments = loader.segments(start_offset)
    snapshots = SnapshotFiles(pool.files, directory, loader.offsets_named(SNAPSHOT_SUFFIX))
    epochs = loader.epochs() or (None if segments else LeaderEpochs())
    loaded = _trust(segments, snapshots, epochs) if clean and epochs is not None else None
    if loaded is None:
        loaded = _Scan(loader, segments, snapshots, epochs, recovery_point).run(start_offset, now_ms)
    loaded.clean_below = loader.clean_below
    loaded.start_offset = max(start_offset, loaded.segments[0].base_offset if loaded.segments else 0)
    loaded.end_offset = max(loaded.end_offset, start_offset)
    if loader.removed:
        pool.files.sync_directory(directory)
    return loaded


def _trust(segments: list[Segment], snapshots: SnapshotFiles, epochs: LeaderEpochs) -> LoadedLog | None:
    """Accept the log as a clean stop left it; None if it does not match its snapshot."""
    if not segments:
        return LoadedLog([], 0, 0, 0, epochs, ProducerStates(), snapshots, RecoveryReport())
    last, snapshot = segments[-1], snapshots.newest(up_to=INT64_MAX)
    if snapshot is None or (snapshot.segment_base, snapshot.segment_size) != (last.base_offset, last.size):
        return None
    end_offset = last.next_offset = snapshot.end_offset
    last.load_index_from(partial(snapshots.read_index, end_offset))
    last.first_append_ms = snapshot.segment_began_ms or None
    return LoadedLog(
        segments, 0, end_offset, end_offset, epochs, snapshot.producers, snapshots, RecoveryReport()
    )


class _Scan:
    """Scans the segments after a crash."""

    def __init__(
        self,
        loader: _Loader,
        segments: list[Segment],
        snapshots: SnapshotFiles,
        epochs: LeaderEpochs | None,
        recovery_point: int,
    ) -> None:
        self._loader = loader
        self._segments = segments
        self._snapshots = snapshots
        self._recovery_point = recovery_point
        self._first = self._first_to_scan()
        self._epochs = epochs or _epochs_in(segments[: self._first])
        # An epoch that is not in the file yet came from the floor. Without a file, any epoch is accepted.
        self._highest_epoch = INT32_MAX if epochs is None else max(epochs.latest, loader.epoch_floor)
        self._cut_bytes = 0
        self._dropped = 0
        self._reason = ""

    def run(self, start_offset: int, now_ms: int) -> LoadedLog:
        sound = self._valid_segments()
        end_offset = sound[-1].next_offset if sound else 0
        known_up_to = end_offset
        if end_offset < start_offset:  # records were deleted beyond the end that is left
            for segment in sound:
                self._loader.drop(segment)
            sound, end_offset, known_up_to = [], start_offset, -1
        if self._snapshots.drop_after(known_up_to):
            self._loader.removed = True
        producers = replay_producers(sound, self._snapshots, end_offset, now_ms)
        unsynced = [path for segment in sound[self._first :] for path in self._save(segment, sound[-1])]
        missing = max(0, self._recovery_point - end_offset)
        report = RecoveryReport(True, self._cut_bytes, self._dropped, missing, self._reason)
        durable = min(max(self._recovery_point, start_offset), end_offset)
        return LoadedLog(
            sound, 0, end_offset, durable, self._epochs, producers, self._snapshots, report, unsynced
        )

    def _first_to_scan(self) -> int:
        """Return the index of the segment with the recovery point, or that ends there; at most the last one.

        A segment that ends there may have been closed after the sync: its indexes may not be on the disk.
        """
        ends = [segment.next_offset for segment in self._segments[:-1]]
        return next((index for index, end in enumerate(ends) if end >= self._recovery_point), len(ends))

    def _valid_segments(self) -> list[Segment]:
        for index, segment in enumerate(self._segments[self._first :], self._first):
            expected_end = segment.next_offset
            self._scan(segment)
            is_last = index == len(self._segments) - 1
            if not is_last and (self._reason or segment.next_offset != expected_end):
                self._reason = self._reason or f"{segment} does not reach offset {expected_end}"
                for lost in self._segments[index + 1 :]:
                    self._dropped += 1
                    self._cut_bytes += lost.size
                    self._loader.drop(lost)
                return self._segments[: index + 1]
        return self._segments

    def _scan(self, segment: Segment) -> None:
        """Index the valid batches of a segment, and cut the rest off."""
        size, segment.size, segment.next_offset = segment.size, 0, segment.base_offset
        segment.reset_index()
        try:
            for position, header in walk(segment.file, 0, size, _SCAN_CHUNK):
                self._check(segment, header, position)
                segment.note(placed(header), position, self._loader.interval)
        except CorruptBatch as error:
            self._reason = str(error)
            self._cut_bytes += size - segment.size
            # Synced at once: if the tail came back after another crash, it would be taken for new data.
            segment.file.truncate(segment.size)
            segment.file.fdatasync()

    def _check(self, segment: Segment, header: BatchHeader, position: int) -> None:
        """Check the offset and the epoch, which the checksum does not cover, and then the checksum."""
        expected, base_offset = segment.next_offset, header.base_offset
        if base_offset < expected or (base_offset > expected >= self._loader.gaps_below):
            raise CorruptBatch(f"byte {position} has offset {base_offset} instead of {expected}")
        self._check_epoch(header)
        if header.last_offset >= self._recovery_point:
            check_crc_in_file(segment.file, header, position)

    def _check_epoch(self, header: BatchHeader) -> None:
        epoch, known = header.partition_leader_epoch, self._epochs
        if epoch > known.latest:
            if epoch > self._highest_epoch:
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} has epoch {epoch}, not begun yet"
                )
            known.begin(epoch, header.base_offset)
        elif epoch < known.latest and header.base_offset >= known.entries[-1][1]:
            raise CorruptBatch(f"the batch at offset {header.base_offset} has epoch {epoch}, ended before it")

    def _save(self, segment: Segment, last: Segment) -> list[str]:
        """Rewrite the indexes of a closed segment; return the files that may not be on the disk."""
        written = [] if segment is last else [file.path for file in segment.save_index()]
        return [segment.path(LOG_SUFFIX), *written]


def _epochs_in(segments: list[Segment]) -> LeaderEpochs:
    """Return the epochs in the batches."""
    epochs = LeaderEpochs()
    for header in headers_from(segments, 0):
        if header.partition_leader_epoch > epochs.latest:
            epochs.begin(header.partition_leader_epoch, header.base_offset)
    return epochs


def headers_from(segments: list[Segment], offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of all batches from an offset on."""
    for segment in segments:
        if segment.next_offset > offset:
            for _, header in segment.batches_from(offset):
                yield header


def replay_producers(
    segments: list[Segment], snapshots: SnapshotFiles, end_offset: int, now_ms: int
) -> ProducerStates:
    """Restore the producers from the newest snapshot and the batches after it."""
    snapshot = snapshots.newest(end_offset)
    first_offset = segments[0].base_offset if segments else end_offset
    if snapshot is None or snapshot.end_offset < first_offset:
        # Batches after the snapshot are deleted: an unknown producer is better than an outdated one.
        producers, start = ProducerStates(), first_offset
    else:
        producers, start = snapshot.producers, snapshot.end_offset
    for header in headers_from(segments, start):
        note_producer(producers, header, now_ms)
    return producers


def note_producer(producers: ProducerStates, header: BatchHeader, now_ms: int) -> None:
    """Record a batch of an idempotent producer that is in the log."""
    if header.producer_id == NO_PRODUCER_ID or header.is_control:
        return
    told = header.max_timestamp if header.timestamp_type else -1
    place = (header.base_offset, header.last_offset, told)
    batch = ProducedBatch(header.base_sequence, header.last_sequence, *place)
    producers.note(header.producer_id, header.producer_epoch, batch, now_ms)


def check_crc_in_file(file: OpenFile, header: BatchHeader, position: int) -> None:
    """Verify a batch's checksum in chunks, so that a damaged length takes no memory."""
    crc = 0
    for chunk in read_in_chunks(file, position + CRC_START, position + header.size, _SCAN_CHUNK):
        crc = extend_crc32c(crc, chunk)
    if crc != header.crc:
        raise CorruptBatch(f"{file.path}: the checksum of the batch at byte {position} is wrong")
