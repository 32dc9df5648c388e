"""A task's output for a topic: rows as records, sent to the driver with the task's result.

A raw row becomes the record that it was: key, value, headers and timestamp. A row with columns becomes a
JSON object, without the position columns. The last two headers are always added: ``millstream.source`` is the
position (``orders/0/17``), ``millstream.load`` the epoch and the group (``3:lake``). A rejected record has
two more before them, ``millstream.reason`` and ``millstream.rejected-at``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millstream.model import Header, TopicPartition
from millstream.spark.sinks.base import SinkError, Tables, Written
from millstream.spark.sinks.json_values import dumped, plain

SOURCE: Final = "millstream.source"
LOAD: Final = "millstream.load"
REASON: Final = "millstream.reason"
REJECTED_AT: Final = "millstream.rejected-at"
_ATTEMPT_BYTES: Final = 16

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA: Final = pa.schema(
    [
        ("rejected", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # milliseconds, as Kafka counts
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)


class Row(NamedTuple):
    """A record to write, and its source offset."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def size(self) -> int:
        """Its approximate size in a batch, in bytes."""
        named = sum(len(name) + len(value or b"") + 8 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named + 100


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Pickled into tasks; see ``TaskWriter``. ``key`` names the column that becomes the records' key."""

    tables: Tables
    key: str | None

    def open(self) -> TopicOutput:
        return TopicOutput(self.tables, self.key)


@dataclass(slots=True)
class TopicOutput:
    """One attempt; see ``TaskOutput``. Holds the rows, which are sent with the result."""

    tables: Tables
    key: str | None
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _counts: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def write_rows(self, batch: pa.RecordBatch) -> None:
        raw = self.tables.positions[0] == "topic"
        self._add(batch, _raw(batch) if raw else _shaped(batch, self.key), rejected=False)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        self._add(batch, _rejected(batch), rejected=True)

    def _add(self, batch: pa.RecordBatch, columns: dict[str, Any], *, rejected: bool) -> None:
        if not batch.num_rows:
            return
        names = ("topic", "partition", "offset") if rejected else self.tables.positions
        columns |= dict(zip(("topic", "partition", "offset"), map(batch.column, names), strict=True))
        columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False)
        columns["rejected"] = pa.repeat(pa.scalar(rejected), batch.num_rows)
        arrays = [columns[field.name].cast(field.type) for field in _SCHEMA]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self._counts[rejected] += batch.num_rows

    def finish(self) -> Written:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, _SCHEMA, options=options) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        attempt = uuid.uuid4().bytes  # makes the payloads of two attempts differ
        payload = attempt + sink.getvalue().to_pybytes() if self._batches else attempt
        files = sum(count > 0 for count in self._counts.values())
        return Written(self._counts[False], self._counts[True], len(payload), files, payload)

    def abort(self) -> None:
        self._batches.clear()


def _raw(batch: pa.RecordBatch) -> dict[str, Any]:
    return {name: batch.column(name) for name in ("timestamp", "key", "value", "headers")}


def _shaped(batch: pa.RecordBatch, key: str | None) -> dict[str, Any]:
    names = [
        name for name in batch.schema.names if name not in ("_topic", "_partition", "_offset", "_timestamp")
    ]
    values = [dumped(plain(row)) for row in batch.select(names).to_pylist()]
    keys = [None] * batch.num_rows if key is None else list(map(_key, batch.column(key).to_pylist()))
    return {
        "timestamp": batch.column("_timestamp"),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(batch.num_rows, _HEADERS),
    }


def _key(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else dumped(plain(value))


def _rejected(batch: pa.RecordBatch) -> dict[str, Any]:
    added = [
        [*(headers or ()), _struct(REASON, reason), _struct(REJECTED_AT, at.isoformat())]
        for headers, reason, at in zip(
            *(batch.column(name).to_pylist() for name in ("headers", "reason", "rejected_at")), strict=True
        )
    ]
    return _raw(batch) | {"headers": pa.array(added, _HEADERS)}


def _struct(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": value.encode()}


def rows_of(written: Iterable[Written], *, rejected: bool) -> dict[TopicPartition, list[Row]]:
    """What tasks wrote, by source partition and in source order."""
    found: dict[TopicPartition, list[Row]] = {}
    for one in written:
        for row in _read(one.payload):
            if row["rejected"] == rejected:
                where = TopicPartition(row["topic"], row["partition"])
                found.setdefault(where, []).append(_row(row))
    for rows in found.values():
        rows.sort(key=lambda row: row.offset)  # a stable sort: rows of one record keep their order
    return found


def _read(payload: bytes) -> Iterator[dict[str, Any]]:
    if len(payload) > _ATTEMPT_BYTES:
        with pa.ipc.open_stream(pa.py_buffer(payload)[_ATTEMPT_BYTES:]) as stream:
            for batch in stream:
                yield from batch.to_pylist()


def _row(row: dict[str, Any]) -> Row:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    return Row(row["offset"], row["timestamp"], row["key"], row["value"], headers)


def source_of(headers: Iterable[dict[str, Any]] | None) -> tuple[TopicPartition, int, str] | None:
    """The source position of a record of the output, and its load header; None for records of others."""
    last = list(headers or ())[-2:]
    if [each["key"] for each in last] != [SOURCE, LOAD]:
        return None
    try:
        topic, partition, offset = last[0]["value"].decode().split("/")
        return TopicPartition(topic, int(partition)), int(offset), last[1]["value"].decode()
    except (ValueError, AttributeError) as error:
        raise SinkError(f"a record has the header {SOURCE}, but no load wrote it: {last}") from error
