"""Decides when a log is compacted, and puts the compacted segments in place."""

from __future__ import annotations

import os

from millstream.broker.log.recovery import checkpoints
from millstream.broker.log.recovery.loading import CLEANER_FILE
from millstream.broker.log.segments.segment import LOG_SUFFIX, Segment
from millstream.broker.log.store import LogStore
from millstream.broker.log.upkeep.compaction import CompactionPlan, CompactionResult, SegmentFile
from millstream.broker.log.upkeep.swap import SwapName, swap_in
from millstream.errors import KafkaStorageError


def plan(store: LogStore, now_ms: int) -> CompactionPlan | None:
    """Return what to compact; None if too little of the log is new and nothing has waited too long."""
    config = store.config
    closed = _compactable(store, now_ms) if config.compacts and store.pending_repair is None else []
    dirty = [segment for segment in closed if segment.next_offset > store.clean_below]
    if not dirty:
        return None
    ratio = sum(segment.size for segment in dirty) / max(1, sum(segment.size for segment in closed))
    waited_ms = now_ms - dirty[0].first_timestamp()
    if ratio <= config.min_cleanable_dirty_ratio and waited_ms <= config.max_compaction_lag_ms:
        return None
    return CompactionPlan(
        directory=store.directory,
        files=store.files,
        sources=tuple(map(_source, closed)),
        dirty_from=store.clean_below,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        last_offsets=store.producers.last_offsets(),
    )


def _compactable(store: LogStore, now_ms: int) -> list[Segment]:
    """Return the closed, durable segments whose records are older than min.compaction.lag.ms."""
    found: list[Segment] = []
    lag_ms = store.config.min_compaction_lag_ms
    for segment in store.segments.up_to(len(store.segments) - 1):
        is_young = lag_ms > 0 and now_ms - segment.latest_ms < lag_ms
        if segment.next_offset > store.durable_offset or is_young:
            break
        found.append(segment)
    return found


def install(store: LogStore, result: CompactionResult) -> list[str]:
    """Replace segments by compacted ones; return files to be removed.

    A compacted segment is removed instead if retention has deleted one of its sources meanwhile.
    """
    store.run_pending_repair()
    known = {_source(segment): segment for segment in store.segments}
    usable = [each for each in result.cleaned if all(source in known for source in each.sources)]
    trash = [path for each in result.cleaned if each not in usable for path in each.paths(store.directory)]
    path = os.path.join(store.directory, CLEANER_FILE)
    try:
        checkpoints.write(store.files, path, result.clean_below, store.clean_below)
        for each in usable:
            trash += _swap_in(store, each.swap, each.size, [known[source] for source in each.sources])
        if len(usable) == len(result.cleaned):
            checkpoints.write(store.files, path, result.clean_below, result.clean_below)
            store.clean_below = result.clean_below
    except OSError as error:
        raise KafkaStorageError(f"{store.directory}: {error}") from error
    return trash


def _swap_in(store: LogStore, swap: SwapName, size: int, replaced: list[Segment]) -> list[str]:
    """Put a compacted segment in the place of others; return their files, to be removed."""
    bases = [segment.base_offset for segment in replaced]
    trash: list[str] = []

    def finish() -> None:
        trash.extend(swap_in(store.files, store.directory, swap, bases))
        segment = Segment(store.pool, store.directory, swap.base_offset, swap.end_offset, size)
        store.segments.replace(replaced, [segment])

    try:
        finish()
    except OSError:
        store.pending_repair = finish  # a swap that has begun must be finished
        raise
    return trash


def _source(segment: Segment) -> SegmentFile:
    return SegmentFile(segment.path(LOG_SUFFIX), segment.base_offset, segment.next_offset, segment.size)
