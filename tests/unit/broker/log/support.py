"""Batches to append, and ways to look into a log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.broker.log.config import LogConfig
from millstream.broker.log.files import Files, OpenFile, StrPath
from millstream.broker.log.partition import Appended, PartitionLog
from millstream.wire.records.batch_header import iter_headers
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch

NOW = 1_700_000_000_000
"""The time that tests begin at, in epoch milliseconds."""


class QuickFiles(Files):
    """The real file system, without waiting for the disk: tests that only read back need not."""

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        plain = super().open(path, create=create)
        return _QuickFile(os.dup(plain.fileno()), plain.path)

    def sync_directory(self, path: StrPath) -> None:
        assert os.path.isdir(path)


class _QuickFile(OpenFile):
    __slots__ = ()

    def fdatasync(self) -> None:
        pass


def make_batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = NOW,
    **options: Any,
) -> bytes:
    """One batch as a producer sends it. Timestamps count up by one millisecond a record."""
    named = keys if keys is not None else [None] * len(values)
    records = [
        RecordData(index, timestamp + index, key, value)
        for index, (key, value) in enumerate(zip(named, values, strict=True))
    ]
    return encode_batch(records, **options)


def open_log(directory: Path, *, clean: bool = True, now_ms: int = NOW, **options: Any) -> PartitionLog:
    """Open a log with default settings, but for those of LogConfig among the options."""
    names = LogConfig.__dataclass_fields__
    config = LogConfig(**{name: options.pop(name) for name in list(options) if name in names})
    options.setdefault("files", QuickFiles())
    return PartitionLog.open(directory, config, clean=clean, now_ms=now_ms, **options)


def read_all(log: PartitionLog, offset: int | None = None) -> list[RecordData]:
    """All records from an offset on, by reading as a consumer does."""
    position = log.start_offset if offset is None else offset
    records: list[RecordData] = []
    while position < log.end_offset:
        data = log.read(position, 1 << 20).read()
        assert data, f"nothing to read at {position}, the log ends at {log.end_offset}"
        for start, header in iter_headers(data):
            batch = data[start : start + header.size]
            found = decode_batch(batch, max_decompressed_bytes=1 << 24)
            records += [record for record in found if record.offset >= position]
            position = header.next_offset
    return records


def values(log: PartitionLog) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for record in read_all(log)]


def sync(log: PartitionLog) -> None:
    """Make everything durable, as the broker's flusher does."""
    ticket = log.take_unsynced()
    ticket.sync()
    log.synced(ticket)


def fill(
    log: PartitionLog, count: int, *, start: int = 0, size: int = 100, now_ms: int = NOW
) -> list[Appended]:
    """Append batches of one record each; their values tell them apart."""
    return [
        log.append(make_batch([b"%06d" % number + bytes(size)], timestamp=now_ms), now_ms)
        for number in range(start, start + count)
    ]


def numbers(log: PartitionLog) -> list[int]:
    """The numbers that ``fill`` gave to the records, in the order of the log."""
    return [int((record.value or b"")[:6]) for record in read_all(log)]
