"""Parses JSON values in blocks, for speed; ``json_rows`` defines what is valid.

The compiled scan sorts out values that do not look like one object each; pyarrow parses the rest in one call.
If pyarrow refuses a block it usually names the row: that row is parsed alone, and the block on both sides of
it. If it names none, the block is halved. If too much of a block is bad, all of it is parsed one by one:
never much slower than that, and usually ten times faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.spark.load.pipeline.formats import json_scan, texts
from millstream.spark.load.pipeline.formats.json_rows import JsonRows
from millstream.spark.load.pipeline.formats.parsed import Parsed, merged, one_by_one

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_ROW: Final = re.compile(r"in row (\d+)")
_SMALL: Final = 8
"""Blocks of fewer rows are parsed one by one at once."""
_WORTH_COMPILING: Final = 2_048
"""Batches of fewer values do not load the compiled scan."""
_PATIENCE: Final = 24
"""After one refusal per this many rows, the rest of the block is parsed one by one."""
_BLOCK_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class _Refused:
    row: int | None


class JsonParser:
    """Parses batches of JSON values."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.scanner = json_scan.Scanner(schema)
        self._rows = JsonRows(schema)
        self._simple = all(_readable(field.type) for field in schema)
        self._options = self._make_options()

    def parse(self, values: pa.BinaryArray) -> Parsed:
        if not self._simple or len(values) < _SMALL or not _is_compiled(len(values)):
            found = one_by_one(self.schema, self._rows.convert, values.to_pylist(), range(len(values)))
            rows, good = merged(self.schema, [(found.good, found.rows)], len(values))
            return Parsed(rows, good, found.bad, found.reasons)
        return _JsonBlock(self, values).parse()

    def one_by_one(self, values: pa.BinaryArray, places: NDArray[np.int64]) -> Any:
        import pyarrow as pa

        chosen = values.take(pa.array(places)).to_pylist()
        return one_by_one(self.schema, self._rows.convert, chosen, places.tolist())

    def read(self, text: NDArray[np.uint8], rows: int) -> tuple[pa.RecordBatch, Any] | _Refused:
        """Lines of one object each: their columns and a mask of bad rows (or None), or a refusal."""
        import pyarrow as pa
        from pyarrow import json

        read_options, parse_options = self._options(len(text))
        try:
            table = json.read_json(pa.BufferReader(pa.py_buffer(text)), read_options, parse_options)
        except pa.ArrowInvalid as error:
            found = _ROW.search(str(error))
            return _Refused(int(found[1]) if found else None)
        if table.num_rows != rows:
            return _Refused(None)
        return self._typed(table)

    def _typed(self, table: pa.Table) -> tuple[pa.RecordBatch, Any] | _Refused:
        import pyarrow as pa

        arrays, wrong = [], None
        for field, column in zip(self.schema, table.itercolumns(), strict=True):
            array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            found, bad = _finished(array, field)
            if found is None:
                return _Refused(None)
            wrong = bad if wrong is None else wrong if bad is None else wrong | bad
            arrays.append(found)
        loose = pa.schema([field.with_nullable(True) for field in self.schema])
        return pa.RecordBatch.from_arrays(arrays, schema=loose), wrong

    def _make_options(self) -> Any:
        from pyarrow import json

        parse_options = json.ParseOptions(
            explicit_schema=_as_read(self.schema),
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        )

        def options(size: int) -> tuple[Any, Any]:
            # One block: Arrow must not cut anywhere. The task's core is its own: no threads.
            return json.ReadOptions(use_threads=False, block_size=size + 1), parse_options

        return options


def _is_compiled(rows: int) -> bool:
    if rows >= _WORTH_COMPILING:
        json_scan.compiled()
    return json_scan.compiled.cache_info().currsize > 0


class _JsonBlock:
    """One batch of values while it is parsed."""

    def __init__(self, parser: JsonParser, values: pa.BinaryArray) -> None:
        self._parser = parser
        self._values = values
        self._scanned = parser.scanner.scan(values)
        self._retries = max(_SMALL, len(values) // _PATIENCE)
        self._parts: list[tuple[Any, Any]] = []
        self._single: list[Any] = [self._scanned.others]

    def parse(self) -> Parsed:
        self._read_all()
        single = np.sort(np.concatenate(self._single))
        if not len(single):
            rows, good = merged(self._parser.schema, self._strict_parts(), len(self._values))
            return Parsed(rows, good, [], [])
        found = self._parser.one_by_one(self._values, single)
        parts = [*self._strict_parts(), (found.good, found.rows)]
        rows, good = merged(self._parser.schema, parts, len(self._values))
        return Parsed(rows, good, found.bad, found.reasons)

    def _strict_parts(self) -> list[tuple[Any, Any]]:
        import pyarrow as pa

        schema = self._parser.schema
        return [
            (places, pa.RecordBatch.from_arrays(rows.columns, schema=schema)) for places, rows in self._parts
        ]

    def _read_all(self) -> None:
        """Parse the plain values: all at once, or on both sides of refused rows."""
        pending = list(reversed(self._runs()))
        while pending:
            first, last = pending.pop()
            if last - first < _SMALL or self._retries <= 0:
                self._single.append(self._scanned.places[first:last])
                continue
            refused = self._read(first, last)
            if refused is None:
                continue
            self._retries -= 1
            row = refused.row
            if row is None or row >= last - first:
                middle = (first + last) // 2
                pending += [(middle, last), (first, middle)]
            else:
                self._single.append(self._scanned.places[first + row : first + row + 1])
                pending += [(first + row + 1, last), (first, first + row)]

    def _runs(self) -> list[tuple[int, int]]:
        """The plain values in runs of bounded size, without those that are not UTF-8."""
        scanned = self._scanned
        if len(scanned.beyond_ascii) and not _is_utf8(self._values):
            return self._runs_of_utf8()
        return self._bounded(0, scanned.count)

    def _runs_of_utf8(self) -> list[tuple[int, int]]:
        scanned = self._scanned
        wrong = [
            place for place in scanned.beyond_ascii.tolist() if not _decodes(self._values[place].as_py())
        ]
        self._single.append(np.array(wrong, np.int64))
        edges = np.searchsorted(scanned.places, wrong).tolist()
        starts, ends = [0, *(edge + 1 for edge in edges)], [*edges, scanned.count]
        return [run for start, end in zip(starts, ends, strict=True) for run in self._bounded(start, end)]

    def _bounded(self, first: int, last: int) -> list[tuple[int, int]]:
        starts = self._scanned.starts
        runs = []
        while first < last:
            end = int(np.searchsorted(starts[: last + 1], int(starts[first]) + _BLOCK_BYTES, "right")) - 1
            end = min(max(end, first + 1), last)
            runs.append((first, end))
            first = end
        return runs

    def _read(self, first: int, last: int) -> _Refused | None:
        scanned = self._scanned
        text = scanned.text[scanned.starts[first] : scanned.starts[last]]
        found = self._parser.read(text, last - first)
        if isinstance(found, _Refused):
            return found
        rows, wrong = found
        places = scanned.places[first:last]
        if wrong is not None:
            import pyarrow as pa

            self._single.append(places[wrong])
            rows, places = rows.filter(pa.array(~wrong)), places[~wrong]
        self._parts.append((places, rows))
        return None


def _is_utf8(values: pa.BinaryArray) -> bool:
    import pyarrow as pa

    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(raw: bytes) -> bool:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


# ---- from the types that pyarrow parses to those of the columns


def _readable(kind: Any) -> bool:
    """Whether pyarrow parses this type, nested or not, as ``json_rows`` does."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return False
    if pa.types.is_list(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(field.nullable and _plain(field.type) for field in kind)
    return True


def _plain(kind: Any) -> bool:
    """Whether values of this type need no check of their own, so that it may be nested."""
    import pyarrow as pa

    nested = pa.types.is_list(kind) or pa.types.is_struct(kind)
    simple = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind)
    return simple or pa.types.is_float64(kind) or (nested and not pa.types.is_map(kind) and _readable(kind))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_binary(kind))


def _as_read(schema: pa.Schema) -> Any:
    """The types that pyarrow parses: text is parsed here, floats are rounded once, as in ``json_rows``."""
    import pyarrow as pa

    def read(kind: Any) -> Any:
        if _is_text(kind):
            return pa.string()
        return pa.float64() if pa.types.is_floating(kind) else kind

    return pa.schema([(field.name, read(field.type)) for field in schema])


def _finished(array: pa.Array, field: Any) -> tuple[Any, Any]:
    """The column in its own type, and a mask of bad rows; (None, None) if they are not known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = None
    if _is_text(field.type):
        array, wrong = texts.column(array, field.type)
    elif pa.types.is_floating(field.type):
        array = array.cast(field.type, safe=False)
        wrong = _flags(pc.invert(pc.is_finite(array)))
    elif not _is_valid(array):
        return None, None
    if not field.nullable and array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        wrong = missing if wrong is None else wrong | missing
    return array, wrong


def _flags(mask: pa.BooleanArray) -> Any:
    """A mask without nulls, or None if nothing is set."""
    import pyarrow.compute as pc

    if not pc.any(mask, min_count=0).as_py():
        return None
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _is_valid(array: pa.Array) -> bool:
    """Whether decimals are within their precision, and strings are Unicode."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
