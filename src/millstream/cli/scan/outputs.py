"""Where the rows of ``millstream scan`` go: Parquet, CSV, lines of JSON, or a table on the terminal."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.cli.consume.rendering import escaped
from millstream.terminal.output import print_table, time_text

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 64 << 20
"""Parquet row groups have about this size: readers need large ones, and memory is bounded."""
_TABLE_ROWS: Final = 1_000
"""The rows of a table whose widths are made to fit."""


class RowOutput(Protocol):
    """Takes batches of one schema."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Write what is left. Without it, the output is not complete."""


class ParquetOutput:
    """A Parquet file."""

    def __init__(self, file: io.RawIOBase, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(file, schema, compression="zstd")
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._rows, self._bytes = [], 0, 0


class CsvOutput:
    """CSV with a header. Nested columns are JSON, bytes are text."""

    def __init__(self, file: io.RawIOBase, schema: pa.Schema) -> None:
        import pyarrow as pa
        from pyarrow import csv

        self._as_text = [_is_text_in_csv(field.type) for field in schema]
        kinds = zip(schema, self._as_text, strict=True)
        self._schema = pa.schema([(each.name, pa.string() if text else each.type) for each, text in kinds])
        self._writer = csv.CSVWriter(file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        columns = [
            pa.array(map(_csv_text, _objects(column)), pa.string()) if text else column
            for column, text in zip(batch.columns, self._as_text, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        self._writer.close()


class JsonOutput:
    """One JSON object a line."""

    def __init__(self, file: io.RawIOBase, schema: pa.Schema) -> None:
        self._file = file
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        dump = json.JSONEncoder(ensure_ascii=False, default=_json_value).encode
        columns = map(_objects, batch.columns)
        lines = [dump(dict(zip(self._names, row, strict=True))) for row in zip(*columns, strict=True)]
        self._file.write(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))

    def finish(self) -> None:
        self._file.flush()


class TableOutput:
    """A table: whole tables of some rows on a terminal, aligned lines under one header in a pipe."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._rows: list[list[object]] = []
        self._widths: list[int] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        for row in zip(*map(_objects, batch.columns), strict=True):
            self._rows.append([_cell(each) for each in row])
            if len(self._rows) == _TABLE_ROWS:
                self._print()

    def finish(self) -> None:
        if self._rows or self._widths is None:
            self._print()

    def _print(self) -> None:
        rows, self._rows = self._rows, []
        if sys.stdout.isatty():
            self._widths = []
            print_table(self._names, rows)
            return
        lines = [["-" if each is None else str(each) for each in row] for row in rows]
        if self._widths is None:
            header = [name.upper() for name in self._names]
            self._widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
            lines.insert(0, header)
        for line in lines:
            print("  ".join(map(str.ljust, line, self._widths)).rstrip())


OUTPUTS: Final[dict[str, Callable[[io.RawIOBase, Any], RowOutput]]] = {
    "parquet": ParquetOutput,
    "csv": CsvOutput,
    "json": JsonOutput,
}


def _objects(column: pa.Array) -> list[Any]:
    """The values of a column. A record's timestamp may be one that Python has no date for."""
    import pyarrow as pa

    if column.type == pa.timestamp("ms", "UTC"):
        return [None if each is None else time_text(each) for each in column.cast(pa.int64()).to_pylist()]
    objects: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    return objects


def _is_text_in_csv(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _csv_text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_json_value)


def _json_value(value: Any) -> object:
    """What JSON lacks: bytes are text where they are UTF-8, times are ISO 8601."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(value)


def _cell(value: Any) -> object:
    """A value in a table, with control characters escaped."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, bytes):
        return escaped(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, dict | list | tuple):
        return escaped(_dumped(value))
    return escaped(str(_json_value(value)) if not isinstance(value, str) else value)


def without_constants(names: Sequence[str]) -> list[str]:
    """The columns of a table on the terminal: not those that are alike in nearly every row."""
    return [name for name in names if name.strip("_") not in ("topic", "timestamp_type")]
