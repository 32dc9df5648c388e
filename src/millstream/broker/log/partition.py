"""The log of one partition, as the broker uses it: append, read, delete, sync, close.

Everything runs on the owner's thread, except ``SyncTicket.sync`` and ``CompactionPlan.run``. The owner makes
the log durable: it calls ``take_unsynced``, syncs the ticket on another thread, and then calls ``synced`` or
``sync_failed``.

A log that never had data has no directory, so a thousand empty partitions cost nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from millstream.broker.log.config import LogConfig
from millstream.broker.log.durability import SyncTicket
from millstream.broker.log.files import Files, StrPath, lacks_descriptors
from millstream.broker.log.producers import KnownProducer, ProducedBatch
from millstream.broker.log.recovery import checkpoints
from millstream.broker.log.recovery.loading import START_OFFSET_FILE, RecoveryReport, load
from millstream.broker.log.repair import cut_failed_write, cut_to_durable
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.segment import Placed
from millstream.broker.log.store import LogStore
from millstream.broker.log.upkeep import log_compaction, retention
from millstream.broker.log.upkeep.compaction import CompactionPlan, CompactionResult
from millstream.broker.log.validation import recompress, validate
from millstream.errors import KafkaStorageError, OffsetOutOfRangeError
from millstream.model import TimestampType
from millstream.wire.records.batch_header import (
    NO_TIMESTAMP,
    BatchHeader,
    iter_headers,
    patch_batch,
    set_max_timestamp,
)
from millstream.wire.records.primitives import Buffer
from millstream.wire.slices import EMPTY_SLICE, FileSlice


class Appended(NamedTuple):
    """The offsets of appended batches; for a duplicate, those of the first time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The timestamp that the broker gave the records; -1 if they keep the producer's."""
    start_offset: int
    duplicate: bool = False


class MaintenanceResult(NamedTuple):
    """What ``maintain`` did. ``trash`` are files that left the log, to be removed on any thread."""

    rolled: bool = False
    deleted_segments: int = 0
    deleted_bytes: int = 0
    expired_producers: int = 0
    trash: tuple[str, ...] = ()


class PartitionLog:
    """One partition's batches, from ``start_offset`` to ``end_offset``. Times are epoch milliseconds."""

    def __init__(self, store: LogStore) -> None:
        """Use ``open``."""
        self._store = store

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
        """Open a log, or begin one if there is no directory yet.

        After a stop that was not ``clean`` the log is recovered: what lies before ``recovery_point`` is known
        to be durable. Readers may have seen later records that are lost now, so a new leader epoch begins.

        ``epoch_floor`` is a number that the caller stores durably and raises before each start that is not
        clean. It becomes the new epoch if possible; otherwise the log writes one durably before it opens.
        """
        pool = pool or FilePool(files or Files())
        path = os.fspath(directory)
        loaded = None
        try:
            loaded = load(
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
        store = LogStore(path, config, pool, loaded, now_ms)
        store.begin_epoch_at_open(is_new=loaded is None, clean=clean, epoch_floor=epoch_floor)
        return cls(store)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, offsets {self.start_offset} to {self.end_offset})"

    @property
    def directory(self) -> str:
        return self._store.directory

    @property
    def config(self) -> LogConfig:
        return self._store.config

    @property
    def recovery(self) -> RecoveryReport:
        """What opening the log found."""
        return self._store.recovery

    @property
    def start_offset(self) -> int:
        return self._store.start_offset

    @property
    def end_offset(self) -> int:
        return self._store.end_offset

    @property
    def durable_offset(self) -> int:
        """What lies below this offset survives a power cut."""
        return self._store.durable_offset

    @property
    def leader_epoch(self) -> int:
        return self._store.leader_epoch

    @property
    def size_bytes(self) -> int:
        return self._store.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._store.segments)

    @property
    def producer_count(self) -> int:
        return len(self._store.producers)

    def producers(self) -> list[KnownProducer]:
        """Return the idempotent producers whose sequences are remembered."""
        return self._store.producers.known()

    @property
    def on_change(self) -> Callable[[], None] | None:
        """Called after the log's start, end or epoch has changed in any way but an append."""
        return self._store.on_change

    @on_change.setter
    def on_change(self, call: Callable[[], None]) -> None:
        self._store.on_change = call

    def update_config(self, config: LogConfig) -> None:
        """Replace the settings, from the next call on."""
        self._store.config = config

    # -- appending

    def append(
        self, batches: Buffer, now_ms: int, *, allow_transactional: bool = False, own: bool = False
    ) -> Appended:
        """Append whole batches, setting their offsets and leader epoch, in place if ``batches`` is writable.

        ``own``: the broker has encoded them itself, so the records need no check.
        Raises CorruptBatch for bytes that are not batches, Kafka's error for what the topic refuses or for
        sequences out of order, and KafkaStorageError if the disk fails. Nothing is appended then, and the
        next try may succeed.
        """
        self._store.run_pending_repair()
        view = memoryview(batches)
        headers = validate(view, self.config, now_ms, allow_transactional=allow_transactional, own=own)
        earlier = self._store.producers.check(headers)
        if earlier:
            first, last = earlier[0], earlier[-1]
            return Appended(first.base_offset, last.last_offset, first.timestamp, self.start_offset, True)
        codec = self.config.codec
        if codec is not None and any(header.codec is not codec for header in headers):
            view = memoryview(recompress(view, headers, codec, self.config.compression_level))
            fresh = [header for _, header in iter_headers(view)]
            headers = [
                header._replace(max_timestamp=checked.max_timestamp)
                for header, checked in zip(fresh, headers, strict=True)
            ]
        elif view.readonly:
            view = memoryview(bytearray(view))
        by_broker = self.config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._write(view, self._place(view, headers, now_ms if by_broker else None), now_ms)
        return self._appended(headers, now_ms, now_ms if by_broker else NO_TIMESTAMP)

    def _place(self, view: memoryview, headers: list[BatchHeader], append_time: int | None) -> list[Placed]:
        placed: list[Placed] = []
        offset, position, epoch = self.end_offset, 0, self._store.epochs.latest
        for header in headers:
            timestamp = header.max_timestamp if append_time is None else append_time
            set_max_timestamp(view, timestamp, append_time=append_time is not None, position=position)
            patch_batch(view, base_offset=offset, partition_leader_epoch=epoch, position=position)
            last_offset = offset + header.last_offset_delta
            placed.append(Placed(header.size, last_offset, timestamp))
            offset, position = last_offset + 1, position + header.size
        return placed

    def _write(self, view: memoryview, placed: list[Placed], now_ms: int) -> None:
        try:
            segment = self._store.segment_for(len(view), placed[-1].last_offset, now_ms)
            if not self._store.epochs_saved:
                self._store.save_epochs()
            segment.append(view, placed, self.config.index_interval_bytes)
        except OSError as error:
            if not lacks_descriptors(error):  # then nothing was written
                self._store.try_repair(partial(cut_failed_write, self._store))
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        self._store.unsynced.add(segment.file)
        self._store.changed = True

    def _appended(self, headers: list[BatchHeader], now_ms: int, append_time: int) -> Appended:
        base_offset = offset = self.end_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            if header.producer_id >= 0 and not header.is_control:
                sequences = (header.base_sequence, header.last_sequence)
                batch = ProducedBatch(*sequences, offset, last_offset, append_time)
                self._store.producers.note(header.producer_id, header.producer_epoch, batch, now_ms)
            offset = last_offset + 1
        self._store.end_offset = offset
        self._store.last_append_ms = now_ms
        return Appended(base_offset, offset - 1, append_time, self.start_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> FileSlice:
        """Return whole batches from the one with ``offset`` on, of one file; none at the end of the log.

        With ``at_least_one`` the first batch is returned even if it is larger than ``max_bytes``.
        """
        if offset == self.end_offset:
            return EMPTY_SLICE
        if not self.start_offset <= offset < self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not between {self.start_offset} and {self.end_offset}"
            )
        try:
            return self._store.segments.read(offset, max_bytes, at_least_one)
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return the offset and timestamp of the first record that is not older than ``timestamp``."""
        return self._store.segments.first_since(timestamp, self.start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Return the offset and timestamp of the first record with the largest timestamp."""
        return self._store.segments.latest(self.start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; (-1, -1) if it is unknown."""
        return self._store.epochs.end_offset_for(epoch, self.end_offset)

    # -- deleting

    def maintain(self, now_ms: int) -> MaintenanceResult:
        """Close a segment that is old enough, delete expired segments, and forget idle producers."""
        try:
            rolled = self._roll_if_old(now_ms)
            before = self.size_bytes
            count = self._count_expired(now_ms)
            trash = self._store.delete_oldest(count) if count else []
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        expired = self._store.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        return MaintenanceResult(rolled, count, before - self.size_bytes, expired, tuple(trash))

    def _roll_if_old(self, now_ms: int) -> bool:
        if not len(self._store.segments) or not self._store.segments.last.size:
            return False
        is_old = self._store.is_old(self._store.segments.last, now_ms)
        if is_old:
            self._store.roll()
        return is_old

    def _count_expired(self, now_ms: int) -> int:
        """Return how many segments to delete. If all are expired, first add an empty one to append to."""
        segments = list(self._store.segments)
        if segments and not segments[-1].size:
            segments.pop()
        count = retention.expired(segments, self.config, self.start_offset, now_ms)
        if count and count == len(self._store.segments):
            self._store.roll()
        return count

    def delete_records(self, before_offset: int) -> int:
        """Delete the records before an offset (-1: all), durably; return the new start offset."""
        target = self.end_offset if before_offset == -1 else before_offset
        if not 0 <= target <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {before_offset} is not between 0 and {self.end_offset}")
        if target > self.start_offset:
            path = os.path.join(self.directory, START_OFFSET_FILE)
            try:
                self._store.unsynced.sync_directories()  # the log's may be new
                checkpoints.write(self._store.files, path, target)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error}") from error
            self._store.start_offset = target
            self._store.epochs.cut_start(target)
            self._store.notify_changed()
        return self.start_offset

    # -- compaction

    def plan_compaction(self, now_ms: int) -> CompactionPlan | None:
        """Return what to compact; None if it is not worth while."""
        return log_compaction.plan(self._store, now_ms)

    def install(self, result: CompactionResult) -> list[str]:
        """Put compacted segments in place; return files to be removed."""
        return log_compaction.install(self._store, result)

    # -- durability

    @property
    def has_unsynced(self) -> bool:
        """Whether there is anything to sync."""
        return bool(self._store.unsynced)

    @property
    def unsynced_files(self) -> int:
        """How many files are kept open until they are synced."""
        return len(self._store.unsynced)

    def take_unsynced(self) -> SyncTicket:
        """Return what must be synced to make the log durable up to its present end."""
        return self._store.unsynced.take(self.end_offset, self._store.cuts)

    def synced(self, ticket: SyncTicket) -> None:
        """A ticket's sync has succeeded."""
        if ticket.cuts == self._store.cuts:
            self._store.durable_offset = max(self.durable_offset, ticket.end_offset)

    def sync_failed(self, ticket: SyncTicket, error: Exception) -> None:
        """A ticket's sync has failed: what it covered may never reach the disk, whatever a later sync says.

        All that is not known to be durable is cut off, and a new leader epoch begins. If the disk refuses
        that too, appending fails until it succeeds.
        """
        store = self._store
        if ticket.cuts == store.cuts:
            store.cuts += 1
            store.unsynced.clear()
            store.try_repair(partial(cut_to_durable, store))

    # -- stopping

    def close(self, clean: bool) -> None:
        """Close all files. A clean stop first syncs everything and writes what the next start needs.

        Raises KafkaStorageError when that fails: the next start must then recover this log.
        """
        try:
            if clean and self.segment_count:
                self._stop_cleanly()
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        finally:
            for segment in self._store.segments:
                segment.forget()
            self._store.unsynced.clear()  # or a deleted log keeps files open as long as anything refers to it

    def _stop_cleanly(self) -> None:
        self._store.run_pending_repair()
        if not self._store.epochs_saved:
            self._store.save_epochs()
        self._store.sync()
        self._store.write_snapshot()
