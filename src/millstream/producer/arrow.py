"""Rows of Arrow tables as records."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from millstream.errors import MisuseError
from millstream.model import RecordMetadata

if TYPE_CHECKING:
    import pyarrow

    from millstream.producer.producer import Producer

_COLUMNS = ("value", "key", "headers", "partition", "timestamp")


def send_rows(producer: Producer, topic: str, batch: pyarrow.RecordBatch | pyarrow.Table) -> Future[int]:
    """Send each row as a record; the future's result is their number, once all are delivered.

    Columns, of which only one of ``value`` and ``key`` must be there: ``value`` and ``key`` (binary or
    string: sent as they are; other types go through the producer's serializers), ``headers`` (lists of name
    and value, or a map), ``partition``, ``timestamp`` (milliseconds since 1970, or an Arrow timestamp). Nulls
    stand for what ``send`` does without the argument. The future fails with the first error that a record
    meets; the others are delivered all the same. An error that ``send`` itself raises leaves the rows before
    it sent, and is raised here.
    """
    columns = _read_columns(batch)
    pending = _Pending(batch.num_rows)
    for index in range(batch.num_rows):
        row = {name: values[index] for name, values in columns.items()}
        record = producer.send(
            topic,
            row.get("value"),
            row.get("key"),
            headers=row.get("headers") or (),
            partition=row.get("partition"),
            timestamp=row.get("timestamp"),
        )
        record.add_done_callback(pending.delivered)
    return pending.outcome


def _read_columns(batch: pyarrow.RecordBatch | pyarrow.Table) -> dict[str, list[Any]]:
    names = batch.schema.names
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown or not {"value", "key"} & set(names):
        raise MisuseError(
            f"the columns are {', '.join(names)}: they must be among {', '.join(_COLUMNS)}, with value or key"
        )
    return {name: _read_column(name, batch.column(name)) for name in names}


def _read_column(name: str, column: Any) -> list[Any]:
    import pyarrow

    kind = column.type
    if name in ("value", "key") and (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        column = column.cast(pyarrow.large_binary())
    if name == "timestamp" and pyarrow.types.is_timestamp(kind):
        column = column.cast(pyarrow.timestamp("ms"), safe=False).cast(pyarrow.int64())
    values: list[Any] = column.to_pylist()
    if name == "headers":
        return [None if row is None else [_header(entry) for entry in row] for row in values]
    return values


def _header(entry: Any) -> tuple[str, bytes | None]:
    """A header as Arrow gives it: a struct with two fields becomes a dict, an entry of a map a pair."""
    name, value = entry.values() if isinstance(entry, dict) else entry
    return name, value.encode() if isinstance(value, str) else value


class _Pending:
    """Counts records down to the last outcome."""

    def __init__(self, count: int) -> None:
        self.outcome: Future[int] = Future()
        self._count = count
        self._left = count
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        if not count:
            self.outcome.set_result(0)

    def delivered(self, record: Future[RecordMetadata]) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or record.exception()
            if self._left:
                return
        if self._error is not None:
            self.outcome.set_exception(self._error)
        else:
            self.outcome.set_result(self._count)
