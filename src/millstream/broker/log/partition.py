"""The log of one partition: an ordered run of batches in segment files.

Everything here runs on one thread, the owner's, but for ``SyncTicket.sync`` and the heavy part of compaction.
Durability is the owner's to arrange: ``take_unsynced``, sync on another thread, then ``synced`` or
``sync_failed``. What lies below ``durable_offset`` survives a power cut.

A log that never had data has no directory yet, so a thousand empty partitions cost nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from millstream.broker.log.config import LogConfig
from millstream.broker.log.files import Files, StrPath
from millstream.broker.log.producers import ProducedBatch, follows, refuse
from millstream.broker.log.recovery import checkpoints
from millstream.broker.log.recovery import opening as recovery
from millstream.broker.log.recovery.opening import CLEANER_FILE, START_OFFSET_FILE
from millstream.broker.log.segments.segment import LOG_SUFFIX, FilePool, Placed, Segment
from millstream.broker.log.store import LogStore
from millstream.broker.log.upkeep import retention
from millstream.broker.log.upkeep.compaction import CompactionPlan, CompactionResult, Source
from millstream.broker.log.validation import recompress, validate
from millstream.errors import InvalidRecordError, KafkaStorageError, OffsetOutOfRangeError
from millstream.model import TimestampType
from millstream.wire.records.batches import NO_TIMESTAMP, BatchHeader, iter_headers, patch_batch
from millstream.wire.records.primitives import Buffer
from millstream.wire.slices import EMPTY_SLICE, FileSlice


class Appended(NamedTuple):
    """Where batches went. A duplicate is answered with where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time that the broker gave the records; -1 where they keep the producer's."""
    start_offset: int
    duplicate: bool = False


class Maintenance(NamedTuple):
    """What ``maintain`` did. ``trash`` is out of the log: remove these files, on any thread."""

    rolled: bool = False
    deleted_segments: int = 0
    deleted_bytes: int = 0
    expired_producers: int = 0
    trash: tuple[str, ...] = ()


class PartitionLog(LogStore):
    """One partition's batches, from ``start_offset`` to ``end_offset``. Times are epoch milliseconds."""

    @classmethod
    def open(
        cls,
        directory: StrPath,
        config: LogConfig,
        *,
        files: Files | None = None,
        pool: FilePool | None = None,
        clean: bool,
        now_ms: int,
        recovery_point: int = 0,
        epoch_floor: int = 0,
    ) -> PartitionLog:
        """Open a log, or begin one where there is no directory yet.

        After a stop that was not ``clean`` the log is recovered: what lies before ``recovery_point`` is known
        to be on the disk. Records behind it may be lost that readers have seen, so a new leader epoch begins.

        ``epoch_floor`` is a number that the caller keeps durably and raises before each start that is not
        clean. It becomes the new epoch where it can; otherwise the log has to write one down before it opens.
        """
        pool = pool or FilePool(files or Files())
        path = os.fspath(directory)
        loaded = None
        try:
            loaded = recovery.load(
                path,
                pool,
                clean=clean,
                recovery_point=recovery_point,
                now_ms=now_ms,
                index_interval_bytes=config.index_interval_bytes,
                epoch_floor=epoch_floor,
            )
        except FileNotFoundError:
            pass
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be opened: {error}") from error
        log = cls(path, config, pool, loaded, now_ms)
        log._begin_epoch_at_open(is_new=loaded is None, clean=clean, epoch_floor=epoch_floor)
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, offsets {self.start_offset} to {self.end_offset})"

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    def update_config(self, config: LogConfig) -> None:
        """Go on under other settings; they hold from the next call."""
        self.config = config

    # -- appending

    def append(self, batches: Buffer, now_ms: int, *, allow_transactional: bool = False) -> Appended:
        """Append one or more whole batches, giving them offsets and the leader epoch, in place if writable.

        Raises CorruptBatch for bytes that are no batches, Kafka's error for what the topic refuses or for
        sequences out of order, and KafkaStorageError when the disk fails: then nothing was appended, and the
        next try may succeed.
        """
        if self._repair is not None:
            self._run_repair()
        view = memoryview(batches)
        headers = validate(view, self.config, now_ms, allow_transactional=allow_transactional)
        duplicate = self._check_producers(headers)
        if duplicate is not None:
            return duplicate
        codec = self.config.codec
        if codec is not None and any(header.codec is not codec for header in headers):
            view = memoryview(recompress(view, headers, codec, self.config.compression_level))
            headers = [header for _, header in iter_headers(view)]
        elif view.readonly:
            view = memoryview(bytearray(view))
        by_broker = self.config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._write(view, self._place(view, headers, now_ms if by_broker else None), now_ms)
        return self._appended(headers, now_ms, now_ms if by_broker else NO_TIMESTAMP)

    def _check_producers(self, headers: list[BatchHeader]) -> Appended | None:
        """Check the sequences of idempotent producers; returns the answer when all was appended before."""
        states, duplicates = self._producers, []
        latest: dict[int, tuple[int, int] | None] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0 or header.is_control:
                continue
            epoch, base, last = header.producer_epoch, header.base_sequence, header.last_sequence
            known = latest[producer_id] if producer_id in latest else states.last_of(producer_id)
            if known is not None and not follows(epoch, base, known):
                found = states.duplicate(producer_id, epoch, base, last)
                if found is not None:
                    duplicates.append(found)
                    continue
                refuse(producer_id, epoch, base, known)
            latest[producer_id] = (epoch, last)
        if not duplicates:
            return None
        if len(duplicates) < len(headers):
            raise InvalidRecordError("some of these batches were appended before, others were not")
        first = duplicates[0]
        offsets = (first.base_offset, duplicates[-1].last_offset)
        return Appended(*offsets, first.timestamp, self.start_offset, duplicate=True)

    def _place(self, view: memoryview, headers: list[BatchHeader], append_time: int | None) -> list[Placed]:
        placed: list[Placed] = []
        offset, position, epoch = self.end_offset, 0, self._epochs.latest
        for header in headers:
            patch_batch(
                view,
                base_offset=offset,
                partition_leader_epoch=epoch,
                max_timestamp=append_time,
                position=position,
            )
            last_offset = offset + header.last_offset_delta
            timestamp = header.max_timestamp if append_time is None else append_time
            placed.append(Placed(header.size, last_offset, timestamp))
            offset, position = last_offset + 1, position + header.size
        return placed

    def _write(self, view: memoryview, placed: list[Placed], now_ms: int) -> None:
        try:
            segment = self._segment_for(len(view), placed[-1].last_offset, now_ms)
            if not self._epochs_saved:
                self._save_epochs()
            segment.append(view, placed, self.config.index_interval_bytes)
        except OSError as error:
            self._try_repair(self._cut_back)
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        self._unsynced.add(segment.file)
        self._changed = True

    def _appended(self, headers: list[BatchHeader], now_ms: int, append_time: int) -> Appended:
        base_offset = offset = self.end_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            if header.producer_id >= 0 and not header.is_control:
                sequences = (header.base_sequence, header.last_sequence)
                batch = ProducedBatch(*sequences, offset, last_offset, append_time)
                self._producers.note(header.producer_id, header.producer_epoch, batch, now_ms)
            offset = last_offset + 1
        self.end_offset = offset
        self._last_append_ms = now_ms
        return Appended(base_offset, offset - 1, append_time, self.start_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileSlice:
        """Whole batches from the one that holds ``offset`` on, from one file; nothing at the end of the log.

        With ``at_least_one`` a first batch that is larger than ``max_bytes`` is given nevertheless.
        """
        if offset == self.end_offset:
            return EMPTY_SLICE
        if not self.start_offset <= offset < self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not between {self.start_offset} and {self.end_offset}"
            )
        try:
            return self._segments.read(offset, max_bytes, at_least_one)
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The first record that is not older than ``timestamp``, as its offset and timestamp."""
        return self._segments.first_since(timestamp, self.start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """The record with the largest timestamp, the first of several, as its offset and timestamp."""
        return self._segments.latest(self.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and where it ends; (-1, -1) when the log does not know it."""
        return self._epochs.end_offset_for(epoch, self.end_offset)

    # -- keeping house

    def maintain(self, now_ms: int) -> Maintenance:
        """Close a segment that is old enough, delete what retention does not keep, forget idle producers."""
        try:
            rolled = self._roll_if_old(now_ms)
            before = self.size_bytes
            count = self._count_expired(now_ms)
            trash = self._delete_oldest(count) if count else []
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        expired = self._producers.expire(now_ms, self.config.producer_id_expiration_ms)
        return Maintenance(rolled, count, before - self.size_bytes, expired, tuple(trash))

    def _roll_if_old(self, now_ms: int) -> bool:
        if not len(self._segments) or not self._segments.last.size:
            return False
        is_old = self._is_old(self._segments.last, now_ms)
        if is_old:
            self._roll()
        return is_old

    def _count_expired(self, now_ms: int) -> int:
        """How many segments to delete. There is always one to append to: an empty one, if all others go."""
        segments = list(self._segments)
        if segments and not segments[-1].size:
            segments.pop()
        count = retention.expired(segments, self.config, self.start_offset, now_ms)
        if count and count == len(self._segments):
            self._roll()
        return count

    def delete_records(self, before_offset: int) -> int:
        """Delete the records before an offset, durably; -1 for all. Returns the new start offset."""
        target = self.end_offset if before_offset == -1 else before_offset
        if not 0 <= target <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {before_offset} is not between 0 and {self.end_offset}")
        if target > self.start_offset:
            path = os.path.join(self.directory, START_OFFSET_FILE)
            try:
                self._unsynced.sync_directories()  # that of the log may be new
                checkpoints.write(self._files, path, target)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error}") from error
            self.start_offset = target
            self._epochs.cut_start(target)
        return self.start_offset

    # -- compaction

    def plan_compaction(self, now_ms: int) -> CompactionPlan | None:
        """Decide what to compact, if it is worth while: enough of the log is new, or has waited too long."""
        config = self.config
        closed = self._compactable(now_ms) if config.compacts and self._repair is None else []
        dirty = [segment for segment in closed if segment.next_offset > self._clean_below]
        if not dirty:
            return None
        ratio = sum(segment.size for segment in dirty) / max(1, sum(segment.size for segment in closed))
        waited_ms = now_ms - dirty[0].first_timestamp()
        if ratio <= config.min_cleanable_dirty_ratio and waited_ms <= config.max_compaction_lag_ms:
            return None
        return CompactionPlan(
            directory=self.directory,
            files=self._files,
            sources=tuple(map(_source, closed)),
            dirty_from=self._clean_below,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            last_offsets=self._producers.last_offsets(),
        )

    def _compactable(self, now_ms: int) -> list[Segment]:
        """The segments that neither grow nor could be cut, and whose records have rested long enough."""
        found: list[Segment] = []
        lag_ms = self.config.min_compaction_lag_ms
        for segment in self._segments.up_to(len(self._segments) - 1):
            is_young = lag_ms > 0 and now_ms - segment.latest_ms < lag_ms
            if segment.next_offset > self.durable_offset or is_young:
                break
            found.append(segment)
        return found

    def install(self, result: CompactionResult) -> list[str]:
        """Put compacted segments in place; returns files to be removed.

        Those whose sources are gone meanwhile, by retention, are left out and removed.
        """
        self._run_repair()
        known = {_source(segment): segment for segment in self._segments}
        usable = [each for each in result.cleaned if all(source in known for source in each.sources)]
        trash = [path for each in result.cleaned if each not in usable for path in each.paths(self.directory)]
        path = os.path.join(self.directory, CLEANER_FILE)
        try:
            checkpoints.write(self._files, path, result.clean_below, self._clean_below)
            for each in usable:
                trash += self._swap_in(each.swap, each.size, [known[source] for source in each.sources])
            if len(usable) == len(result.cleaned):
                checkpoints.write(self._files, path, result.clean_below, result.clean_below)
                self._clean_below = result.clean_below
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        return trash


def _source(segment: Segment) -> Source:
    return Source(segment.path(LOG_SUFFIX), segment.base_offset, segment.next_offset, segment.size)
