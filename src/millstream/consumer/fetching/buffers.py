"""Fetched data that waits for the user, as raw bytes: decoded batch by batch, when it is returned.

A fetch response is one frame in memory, and holds a chunk for each partition that has data. A chunk keeps its
whole frame alive, so frames are what is counted against the limit.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.config import ConsumerConfig
from millstream.consumer.decoding.columns import Columns, decode_columns, decode_stretch
from millstream.consumer.decoding.decoder import kernels
from millstream.consumer.fetching.partition_state import FetchPosition
from millstream.consumer.fetching.positions import Positions
from millstream.errors import CorruptBatch
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import AbortedTransaction
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    read_header,
)
from millstream.wire.records.batches import ControlType, decode_batch, read_control_type
from millstream.wire.records.primitives import INT64_MAX

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""The largest batch, decompressed, that is read: a limit to decompression bombs."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8


class Frame:
    """One fetch response: where it came from, and how much memory it holds while any chunk of it waits."""

    __slots__ = ("chunks", "node_id", "size")

    def __init__(self, node_id: int, size: int) -> None:
        self.node_id = node_id
        self.size = size
        self.chunks = 0


class BatchCursor:
    """A position in a chunk. Reading moves it; a copy can be moved, and kept or discarded.

    With read_committed, batches of aborted transactions are skipped: the broker lists these transactions, and
    each ends at its marker. Markers and other control batches are never returned.
    """

    __slots__ = (
        "_aborted",
        "_aborting",
        "_at",
        "_begun",
        "_columns",
        "_config",
        "_end",
        "_end_offset",
        "_row",
        "_view",
        "partition",
        "position",
    )

    def __init__(
        self,
        partition: TopicPartition,
        position: FetchPosition,
        view: memoryview,
        aborted: Iterable[AbortedTransaction],
        config: ConsumerConfig,
    ) -> None:
        self.partition = partition
        self.position = position
        """Where reading goes on after what was read so far."""
        self._view = view
        self._config = config
        self._at = 0
        self._columns: Columns | None = None
        self._row = 0
        # Where reading goes on after the current columns: in the data, and in the log.
        self._end = 0
        self._end_offset = 0
        self._aborted = sorted((one.first_offset, one.producer_id) for one in aborted)
        self._begun = 0
        self._aborting: frozenset[int] = frozenset()

    def copy(self) -> BatchCursor:
        """An independent copy. (Each poll makes one, so it is spelled out: that is faster.)"""
        twin = BatchCursor.__new__(BatchCursor)
        twin.partition, twin.position = self.partition, self.position
        twin._view, twin._config = self._view, self._config
        twin._at, twin._end, twin._end_offset = self._at, self._end, self._end_offset
        twin._columns, twin._row = self._columns, self._row
        twin._aborted, twin._begun, twin._aborting = self._aborted, self._begun, self._aborting
        return twin

    @property
    def at_end(self) -> bool:
        """Whether nothing is left but, perhaps, a batch that the end of the response has cut."""
        try:
            return self._columns is None and self._whole_batch() is None
        except CorruptBatch:  # for the next peek to report
            return False

    def peek(self, limit: int) -> Columns | None:
        """The next records, at most ``limit``; None at the end. Raises CorruptBatch, and stays before it."""
        while self._columns is None:
            if self._open_stretch():
                continue
            header = self._next_header()
            if header is None:
                return None
            self._open(header)
        return self._columns.rows(self._row, min(self._row + limit, len(self._columns)))

    def advance(self, rows: int) -> None:
        """``rows`` of the columns that ``peek`` returned have been read."""
        columns = self._columns
        assert columns is not None and self._row + rows <= len(columns)
        if rows == 0:
            return
        self._row += rows
        self.position = FetchPosition(columns.offsets[self._row - 1] + 1, columns.leader_epoch)
        if self._row == len(columns):
            self._leave(columns.leader_epoch)

    def _next_header(self) -> BatchHeader | None:
        header = self._whole_batch()
        if header is None and self._at == 0:
            raise self._named(CorruptBatch(f"no whole batch among {len(self._view)} bytes"), None)
        return header

    def _whole_batch(self) -> BatchHeader | None:
        """The header of the current batch; None at the end, and where the rest is too short for a batch."""
        if len(self._view) - self._at < BATCH_OVERHEAD:
            return None
        try:
            header = read_header(self._view, self._at)
        except CorruptBatch as error:
            raise self._named(error, None) from None
        return header if header.size <= len(self._view) - self._at else None

    def _open_stretch(self) -> bool:
        """Decode the next batches in one go, as far as the compiled decoder can; whether there were any."""
        loops = kernels()
        if loops is None or len(self._view) - self._at < BATCH_OVERHEAD:
            return False
        stretch = decode_stretch(
            loops,
            self._view,
            self._at,
            self.partition,
            check_crcs=self._config.check_crcs,
            skip_transactional=self._config.read_committed,
            max_payload_bytes=MAX_DECOMPRESSED_BYTES,
        )
        if stretch is None:
            return False
        self._end, self._end_offset = stretch.end, stretch.next_offset
        self._show(stretch.columns)
        return True

    def _open(self, header: BatchHeader) -> None:
        """Decode the current batch, or skip it if it has nothing for the user."""
        self._end, self._end_offset = self._at + header.size, header.next_offset
        epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
        batch = self._view[self._at : self._at + header.size]
        try:
            if not 0 <= header.base_offset <= INT64_MAX - header.last_offset_delta - 1:
                raise CorruptBatch(f"offsets from {header.base_offset}")
            if self._config.check_crcs:
                check_crc(batch, header)
            if self._is_hidden(batch, header) or header.next_offset <= self.position.offset:
                self._leave(epoch)
                return
            columns = decode_columns(
                batch,
                header,
                self.partition,
                max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
            )
        except CorruptBatch as error:
            raise self._named(error, header) from None
        self._show(columns)

    def _show(self, columns: Columns) -> None:
        """Return these from the position on; a batch may begin before it, or end there."""
        offsets = columns.offsets
        is_behind = len(columns) > 0 and offsets[0] >= self.position.offset  # nearly always: no search then
        self._row = 0 if is_behind else bisect_left(offsets, self.position.offset)
        if self._row == len(columns):
            self._leave(columns.leader_epoch)
        else:
            self._columns = columns

    def _leave(self, leader_epoch: int | None) -> None:
        """Go on after the current columns, also past offsets that compaction removed at their end."""
        self._at = self._end
        self._columns, self._row = None, 0
        if self._end_offset > self.position.offset:
            self.position = FetchPosition(self._end_offset, leader_epoch)

    def _is_hidden(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether the batch is not for users: control records, or data of an aborted transaction."""
        if self._config.read_committed and header.producer_id >= 0:
            self._begin_aborted(header.last_offset)
            if header.is_control and self._is_abort_marker(batch):
                self._aborting -= {header.producer_id}
            elif header.is_transactional and header.producer_id in self._aborting:
                return True
        return header.is_control

    def _begin_aborted(self, offset: int) -> None:
        """Note the aborted transactions that have begun at this offset."""
        while self._begun < len(self._aborted) and self._aborted[self._begun][0] <= offset:
            self._aborting |= {self._aborted[self._begun][1]}
            self._begun += 1

    def _is_abort_marker(self, batch: memoryview) -> bool:
        records = decode_batch(batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, verify_crc=False)
        return bool(records) and read_control_type(records[0].key) == ControlType.ABORT

    def _named(self, error: CorruptBatch, header: BatchHeader | None) -> CorruptBatch:
        """The same error, with its place and how to skip it."""
        past = f"; seek to {header.next_offset} to go past it" if header is not None else ""
        return type(error)(f"{self.partition} at offset {self.position.offset}: {error}{past}")


class Chunk:
    """The data of one partition from one response that was not returned yet."""

    __slots__ = ("cursor", "end_offset", "frame", "generation", "partition", "start_offset")

    def __init__(self, cursor: BatchCursor, view: memoryview, generation: int, frame: Frame) -> None:
        self.cursor = cursor
        self.partition = cursor.partition
        self.generation = generation
        self.frame = frame
        self.start_offset = cursor.position.offset
        self.end_offset = _end_offset(view)
        """The offset after the data, by its headers; None when they are invalid."""


def _end_offset(view: memoryview) -> int | None:
    """Where the last whole batch ends. Each fetch waits for this: only that batch is looked at closely."""
    at, last, end = 0, -1, len(view)
    while end - at >= BATCH_OVERHEAD:
        size = LOG_OVERHEAD + _LENGTH.unpack_from(view, at + _LENGTH_AT)[0]
        if size < BATCH_OVERHEAD:
            return None
        if size > end - at:
            break
        last, at = at, at + size
    try:
        offset = read_header(view, last).next_offset
    except CorruptBatch:
        return None
    return offset if offset <= INT64_MAX else None


class Buffer:
    """The chunks that wait, in the order in which they came, and the memory that they hold."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._chunks: dict[Chunk, None] = {}
        self._by_partition: defaultdict[TopicPartition, list[Chunk]] = defaultdict(list)
        self._held: defaultdict[int, int] = defaultdict(int)

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def held_from(self, node_id: int) -> int:
        return self._held.get(node_id, 0)

    def add(self, chunk: Chunk) -> None:
        if chunk.frame.chunks == 0:
            self._held[chunk.frame.node_id] += chunk.frame.size
        chunk.frame.chunks += 1
        self._chunks[chunk] = None
        self._by_partition[chunk.partition].append(chunk)
        self._positions.touch(chunk.partition)

    def drop(self, chunk: Chunk) -> None:
        """Drop a chunk, if it is still here."""
        if chunk not in self._chunks:
            return
        del self._chunks[chunk]
        self._positions.touch(chunk.partition)
        waiting = self._by_partition[chunk.partition]
        waiting.remove(chunk)
        if not waiting:
            del self._by_partition[chunk.partition]
        chunk.frame.chunks -= 1
        if chunk.frame.chunks == 0:
            self._held[chunk.frame.node_id] -= chunk.frame.size
            if not self._held[chunk.frame.node_id]:
                del self._held[chunk.frame.node_id]

    def drop_stale(self) -> None:
        """Drop everything that was fetched for an earlier position."""
        for chunk in [chunk for chunk in self._chunks if self._is_stale(chunk)]:
            self.drop(chunk)

    def drop_paused(self) -> None:
        """Make room: data of paused partitions can be fetched again when they are resumed."""
        for chunk in [chunk for chunk in self._chunks if self._is_paused(chunk)]:
            self.drop(chunk)

    def drop_partition(self, partition: TopicPartition) -> None:
        for chunk in list(self._by_partition.get(partition, ())):
            self.drop(chunk)

    def defer(self, partition: TopicPartition) -> None:
        """Let the chunks of the other partitions go first."""
        for chunk in self._by_partition.get(partition, ()):
            del self._chunks[chunk]
            self._chunks[chunk] = None

    def waiting(self, partition: TopicPartition) -> list[Chunk]:
        return self._by_partition.get(partition, [])

    def ready(self) -> Iterator[Chunk]:
        """The chunks that may be drained, in order."""
        return (chunk for chunk in self._chunks if not self._is_stale(chunk) and not self._is_paused(chunk))

    def _is_stale(self, chunk: Chunk) -> bool:
        return self._positions.current(chunk.partition, chunk.generation) is None

    def _is_paused(self, chunk: Chunk) -> bool:
        state = self._positions.get(chunk.partition)
        return state is not None and state.paused
