"""drain: from fetched chunks to columns of deserialized records.

It reads the chunks that it is given and changes nothing, so it may run on the user's thread while the fetcher
works on another one. What was drained counts once the fetcher has accepted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.decoder import decoder
from millstream.consumer.decoding.fields import Fields, deserialize_fields
from millstream.consumer.fetching.buffers import BatchCursor, Chunk
from millstream.errors import CorruptBatch, DeserializationError, RegistryError
from millstream.serde import Deserializer, WithTopic, deserialization_error

_MAX_BYTES: Final = 64 << 20
"""Drain not much more than that in one go: compressed data may become very large."""
_MAX_PLAIN_BYTES: Final = 1 << 18
"""The same while the plain decoder works: the compiled one will soon be there for the rest."""


@dataclass(frozen=True, slots=True)
class Deserializers:
    """The deserializers of keys and values; None leaves the bytes as they are. Nulls stay None."""

    key: Deserializer | WithTopic | None = None
    value: Deserializer | WithTopic | None = None

    @classmethod
    def of(
        cls, key: Deserializer | WithTopic | None, value: Deserializer | WithTopic | None
    ) -> Deserializers:
        """``bytes`` is a deserializer that has nothing to do."""
        made = cls(None if key is bytes else key, None if value is bytes else value)
        return RAW if made == RAW else made


RAW = Deserializers()


@dataclass(slots=True)
class DrainedChunk:
    """What was drained from one chunk, from ``offset`` on. The chunk's cursor will be ``cursor``."""

    chunk: Chunk
    offset: int
    cursor: BatchCursor
    columns: list[Columns] = field(default_factory=list)


@dataclass(slots=True)
class Drained:
    """What was drained, and the error that ended it, if one did: it concerns the last chunk."""

    runs: list[DrainedChunk] = field(default_factory=list)
    error: CorruptBatch | DeserializationError | RegistryError | None = None


@dataclass(slots=True)
class DrainLimit:
    """How much may still be drained."""

    records: int
    data_bytes: int

    @property
    def is_spent(self) -> bool:
        return self.records <= 0 or self.data_bytes <= 0


def drain(chunks: Iterable[Chunk], max_records: int, deserializers: Deserializers) -> Drained:
    """Decode at most ``max_records`` from the chunks, in order, up to the first that cannot be read."""
    drained = Drained()
    left = DrainLimit(max_records, _MAX_BYTES if decoder.begin() else _MAX_PLAIN_BYTES)
    for chunk in chunks:
        if left.is_spent:
            break
        run = DrainedChunk(chunk, chunk.cursor.position.offset, chunk.cursor.copy())
        drained.runs.append(run)
        try:
            _draw_run(run, left, deserializers)
        except (CorruptBatch, DeserializationError, RegistryError) as error:
            drained.error = error
            break
    return drained


def _draw_run(run: DrainedChunk, left: DrainLimit, deserializers: Deserializers) -> None:
    """Drain one chunk. Raises after draining what precedes the error."""
    while not left.is_spent:
        raw = run.cursor.peek(left.records)
        if raw is None:
            break
        columns, error = deserialize(raw, deserializers)
        rows = len(columns)
        if rows:
            run.cursor.advance(rows)
            run.columns.append(columns)
            left.records -= rows
            left.data_bytes -= raw.data_bytes
        if error is not None:
            raise error


def deserialize(
    raw: Columns, deserializers: Deserializers
) -> tuple[Columns, DeserializationError | RegistryError | None]:
    """Deserialize keys and values, a column at a time; with an error, only the records before it are left."""
    if deserializers is RAW:
        return raw, None
    keys, key_error = _column(raw, raw.keys, deserializers.key)
    values, value_error = _column(raw, raw.values[: len(keys)], deserializers.value)
    if key_error is None and value_error is None:
        return raw.with_objects(keys, values), None
    row = len(values)
    good = raw.rows(0, row).with_objects(keys[:row], values)
    if value_error is not None:
        return good, _error(raw, row, "value", raw.values[row], value_error)
    assert key_error is not None
    return good, _error(raw, row, "key", raw.keys[row], key_error)


def _column(
    of: Columns, column: Sequence[Any], deserializer: Deserializer | WithTopic | None
) -> tuple[Sequence[Any], Exception | None]:
    """The keys or values deserialized, up to the first that fails."""
    if deserializer is None:
        return column, None
    if isinstance(deserializer, WithTopic):
        return _column_with_headers(of, column, deserializer)
    if isinstance(column, Fields):
        whole = deserialize_fields(column, deserializer)
        if whole is not None:
            return whole, None
    done: list[Any] = []
    add = done.append
    try:
        for raw in column:
            add(None if raw is None else deserializer(raw))
    except Exception as error:  # noqa: BLE001 - a user's callable may raise anything
        return done, error
    return done, None


def _column_with_headers(
    of: Columns, column: Sequence[Any], deserializer: WithTopic
) -> tuple[list[Any], Exception | None]:
    done: list[Any] = []
    try:
        for raw, headers in zip(column, of.headers, strict=False):  # the column may end at an error
            done.append(None if raw is None else deserializer.call(of.topic, headers, raw))
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything
        return done, error
    return done, None


def _error(
    raw: Columns, row: int, part: str, data: bytes, cause: Exception
) -> DeserializationError | RegistryError:
    if isinstance(cause, RegistryError):  # the record is not at fault: reading it later may succeed
        return cause
    error = deserialization_error(cause, data, raw.topic, raw.partition, raw.offsets[row], part)
    error.__cause__ = cause
    return error
