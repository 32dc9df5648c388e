"""Cuts a log after a failed write or sync, so that it holds nothing that may never reach the disk."""

from __future__ import annotations

from millstream.broker.log.files import write_all
from millstream.broker.log.recovery.loading import check_crc_in_file, replay_producers
from millstream.broker.log.segments.segment import SEGMENT_SUFFIXES
from millstream.broker.log.store import LogStore


def cut_failed_write(store: LogStore) -> None:
    """Cut off what a failed write may have left in the last segment."""
    if len(store.segments):
        last = store.segments.last
        store.unsynced.add(last.file)
        last.cut(last.size, last.next_offset)


def cut_to_durable(store: LogStore) -> None:
    """Cut off what is not durable, and begin a new leader epoch. May be retried after it fails."""
    if not len(store.segments):
        return
    kept_end = max(store.durable_offset, store.recovered_end)
    nothing_left = kept_end < store.start_offset
    store.end_offset = store.start_offset if nothing_left else kept_end
    store.notify_changed()
    store.segments.forget_hints()
    if nothing_left:
        _drop_from(store, 0)
        store.begin_segment()
    else:
        # The segment of the last kept record stays the last, so that its indexes are written again.
        _drop_from(store, store.segments.index_of(max(0, kept_end - 1)) + 1)
        _cut_last(store, store.end_offset)
    store.segments.last.file.fdatasync()  # otherwise the tail could come back after a crash
    store.snapshots.drop_after(-1 if nothing_left else store.end_offset)
    store.producers = replay_producers(
        list(store.segments), store.snapshots, store.end_offset, store.last_append_ms
    )
    store.begin_epoch(store.leader_epoch + 1)
    store.write_epochs_durably()
    _rewrite_recovered(store)
    store.changed = True


def _rewrite_recovered(store: LogStore) -> None:
    """Write again what recovery found but no sync has confirmed.

    It may have been durable before the crash, so it is not cut. But after a failed sync the system takes it
    for written, and would report success for the next sync without writing anything.
    """
    if store.durable_offset >= store.recovered_end:
        store.durable_offset = store.end_offset
    for segment in store.segments:
        if segment.next_offset >= store.durable_offset:  # recovery has rewritten their indexes
            store.unsynced.add(segment.file)
            for position, header in segment.batches_from(store.durable_offset):
                check_crc_in_file(segment.file, header, position)
                write_all(segment.file, segment.file.pread(header.size, position), position)
            if segment is not store.segments.last:
                for file in segment.save_index():
                    store.unsynced.add(file)


def _drop_from(store: LogStore, index: int) -> None:
    dropped = store.segments.from_index(index)
    for segment in dropped:
        for suffix in SEGMENT_SUFFIXES:
            store.files.unlink(segment.path(suffix))
        store.forget_unsynced(segment)
    if dropped:
        store.segments.replace(dropped, [])


def _cut_last(store: LogStore, end_offset: int) -> None:
    last = store.segments.last
    found = last.locate(end_offset) if end_offset < last.next_offset else None
    last.cut(last.size if found is None else found[0], end_offset)
