"""Compaction: keeps only the latest record of each key in the closed part of a log.

There are three steps, so that the heavy one can run on another thread: ``PartitionLog.plan_compaction``
decides, ``CompactionPlan.run`` reads closed segments and writes new files beside them, and
``PartitionLog.install`` puts those in place.

- Offsets stay: a batch keeps its first and last offset, also if records inside are dropped.
- A record stays if no later record of the cleaned part has its key. A tombstone (a null value) stays too,
  until delete.retention.ms after its first cleaning. Its batch keeps that time, the delete horizon (KIP-534).
- The last batch of every producer stays, perhaps without records, so that its sequence is known after a
  restart; and the last batch of every new segment, so that segments join without a gap.
- Memory is bounded: keys are kept as digests, and keys beyond ``MAX_KEYS`` wait for the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from millstream.broker.log.files import Files
from millstream.broker.log.segments.file_pool import FilePool
from millstream.broker.log.segments.raw_records import (
    RawRecord,
    iter_raw_records,
    plain_records,
    with_timestamp_delta,
)
from millstream.broker.log.segments.segment import (
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    Segment,
    placed,
    walk,
)
from millstream.broker.log.upkeep.swap import CLEANED_SUFFIX, SwapName
from millstream.errors import CorruptBatch, KafkaStorageError
from millstream.model import TimestampType
from millstream.wire.records.batch_header import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    assemble_batch,
    check_crc,
    read_header,
)
from millstream.wire.records.codecs import Codec, compress

MAX_KEYS = 250_000
"""The most keys in memory at once: about 50 MB."""
_DIGEST_BYTES = 16


class CompactionCancelled(Exception):  # noqa: N818 - nothing is wrong
    """The broker stops: what was written beside the log is removed again."""


class SegmentFile(NamedTuple):
    """The file of a closed segment, which another thread may read."""

    path: str
    base_offset: int
    next_offset: int
    size: int


class Cleaned(NamedTuple):
    """A compacted segment, and the segments that it replaces."""

    swap: SwapName
    size: int
    sources: tuple[SegmentFile, ...]

    def paths(self, directory: str) -> list[str]:
        return [self.swap.path(directory, suffix, CLEANED_SUFFIX) for suffix in SEGMENT_SUFFIXES]


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What ``run`` has written. ``clean_below`` is the offset up to which the log is compacted then."""

    cleaned: tuple[Cleaned, ...]
    clean_below: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to compact. Nothing in it changes, so ``run`` may run on any thread."""

    directory: str
    files: Files
    sources: tuple[SegmentFile, ...]
    dirty_from: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    last_offsets: Mapping[int, int]
    """The last offset of each idempotent producer."""
    max_keys: int = MAX_KEYS
    is_cancelled: Callable[[], bool] = lambda: False  # asked before each batch

    def run(self) -> CompactionResult:
        """Write the compacted segments durably beside the old ones.

        Raises CompactionCancelled, or KafkaStorageError if the disk fails, or a segment is damaged or was
        deleted meanwhile. Leftovers are removed at the next start, or overwritten by the next run.
        """
        try:
            return self._run()
        except (OSError, CorruptBatch) as error:
            raise KafkaStorageError(f"{self.directory} cannot be compacted: {error}") from error

    def _run(self) -> CompactionResult:
        latest, mapped_to = self._latest_offsets()
        sources = [source for source in self.sources if source.base_offset < mapped_to]
        cleaned: list[Cleaned] = []
        before = after = 0
        for group in _groups(sources, self.segment_bytes):
            size = sum(source.size for source in group)
            cleaner = _Cleaner(self, group, latest)
            try:
                result = cleaner.run()
            except CompactionCancelled:
                for each in (*cleaned, Cleaned(cleaner.swap, 0, group)):
                    self._discard(each)
                raise
            before, after = before + size, after + result.size
            if result.size == size and len(group) == 1:
                self._discard(result)  # nothing to compact
            else:
                cleaned.append(result)
        return CompactionResult(tuple(cleaned), mapped_to, before, after)

    def _latest_offsets(self) -> tuple[dict[bytes, int], int]:
        """Return the latest offset of each key in the dirty part, and up to which offset it is known."""
        latest: dict[bytes, int] = {}
        dirty = [source for source in self.sources if source.next_offset > self.dirty_from]
        for header, batch in _batches(self, dirty):
            if header.last_offset < self.dirty_from or header.is_control:
                continue
            if len(latest) >= self.max_keys:
                return latest, header.base_offset
            for record in _records(batch, header) or ():
                if record.key is not None:
                    latest[digest(record.key)] = header.base_offset + record.offset_delta
        return latest, self.sources[-1].next_offset

    def _discard(self, cleaned: Cleaned) -> None:
        for path in cleaned.paths(self.directory):
            self.files.unlink(path)


def digest(key: bytes) -> bytes:
    """Return the digest that represents a key in memory, because keys may be long and many."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _groups(sources: Iterable[SegmentFile], segment_bytes: int) -> Iterator[tuple[SegmentFile, ...]]:
    """Yield adjacent segments that together fit into one."""
    group: list[SegmentFile] = []
    for source in sources:
        if group and (
            sum(each.size for each in group) + source.size > segment_bytes
            or source.next_offset - group[0].base_offset > MAX_RELATIVE_OFFSET
        ):
            yield tuple(group)
            group = []
        group.append(source)
    if group:
        yield tuple(group)


def _batches(plan: CompactionPlan, sources: Iterable[SegmentFile]) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield all batches of some segments. Checksums are verified, so that damage is not copied."""
    for source in sources:
        file = plan.files.open(source.path)
        for position, header in walk(file, 0, source.size):
            if plan.is_cancelled():
                raise CompactionCancelled
            batch = file.pread(header.size, position)
            check_crc(batch, header)
            yield header, batch


def _records(batch: bytes, header: BatchHeader) -> list[RawRecord] | None:
    """Return the records of a batch; None if decoding would take too much memory."""
    try:
        return list(iter_raw_records(plain_records(batch, header), header.record_count))
    except CorruptBatch:
        return None


class _CleanedSegment(Segment):
    """A segment whose files have temporary names."""

    __slots__ = ("swap",)

    swap: SwapName

    def path(self, suffix: str) -> str:
        return self.swap.path(self.directory, suffix, CLEANED_SUFFIX)

    @classmethod
    def begin(cls, files: Files, directory: str, swap: SwapName) -> _CleanedSegment:
        pool = FilePool(files)
        segment = cls(pool, directory, swap.base_offset, swap.base_offset, 0)
        segment.swap = swap
        segment.begin_file()
        return segment


class _Cleaner:
    """Compacts one group of segments into a new one."""

    def __init__(
        self, plan: CompactionPlan, group: tuple[SegmentFile, ...], latest: Mapping[bytes, int]
    ) -> None:
        self._plan = plan
        self._group = group
        self._latest = latest
        self.swap = SwapName(group[0].base_offset, group[-1].next_offset)

    def run(self) -> Cleaned:
        plan = self._plan
        segment = _CleanedSegment.begin(plan.files, plan.directory, self.swap)
        for header, batch in _batches(plan, self._group):
            kept = self._clean(header, batch)
            if kept is not None:
                segment.append(kept, [placed(read_header(kept))], plan.index_interval_bytes)
        segment.file.fdatasync()
        for file in segment.save_index():
            file.fdatasync()
        return Cleaned(self.swap, segment.size, self._group)

    def _clean(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """Return what stays of a batch; None if nothing does."""
        if header.is_control:
            return batch
        records = _records(batch, header)
        if records is None:
            return batch
        kept = [record for record in records if self._stays(record, header)]
        if not kept:
            return _without_records(header) if self._is_needed(header) else None
        horizon = None
        if not header.has_delete_horizon and any(record.is_tombstone for record in kept):
            horizon = self._plan.now_ms + self._plan.delete_retention_ms
        if len(kept) == len(records) and horizon is None:
            return batch
        return _with_records(header, plain_records(batch, header), kept, horizon)

    def _stays(self, record: RawRecord, header: BatchHeader) -> bool:
        if record.key is None:
            return False  # from before the topic was compacted: no later record could ever replace it
        offset = header.base_offset + record.offset_delta
        if offset < self._latest.get(digest(record.key), -1):
            return False
        horizon = header.delete_horizon_ms
        return not record.is_tombstone or horizon is None or self._plan.now_ms < horizon

    def _is_needed(self, header: BatchHeader) -> bool:
        is_last_of_segment = header.next_offset == self.swap.end_offset
        return is_last_of_segment or self._plan.last_offsets.get(header.producer_id) == header.last_offset


def _without_records(header: BatchHeader) -> bytes:
    """Return a batch with only its offsets and its producer's sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _rebuilt(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _with_records(header: BatchHeader, plain: bytes, kept: list[RawRecord], horizon: int | None) -> bytes:
    """Return a batch with some of its records, unchanged except for a new base timestamp."""
    base, attributes = header.base_timestamp, header.attributes
    if horizon is None:
        payload = b"".join([plain[record.start : record.end] for record in kept])
    else:
        shifted = [with_timestamp_delta(plain, each, base + each.timestamp_delta - horizon) for each in kept]
        payload, attributes = b"".join(shifted), attributes | DELETE_HORIZON_BIT
    newest = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        newest = max(base + record.timestamp_delta for record in kept)
    codec = header.codec
    packed = payload if codec is Codec.NONE else compress(codec, payload)
    return _rebuilt(header, packed, attributes, base if horizon is None else horizon, newest, len(kept))


def _rebuilt(
    header: BatchHeader, payload: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    return assemble_batch(
        payload,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=count,
    )
