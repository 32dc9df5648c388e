"""Parses CSV values in blocks, for speed; ``csv_rows`` defines what is valid.

Values without quotes and line breaks, and with the right number of delimiters, are joined into one text that
pyarrow splits into columns of strings. These are then parsed as their types. Rows that do not fit, and values
that were sorted out before, are parsed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.spark.load.pipeline.formats import texts
from millstream.spark.load.pipeline.formats.csv_rows import CsvRows
from millstream.spark.load.pipeline.formats.parsed import Parsed, merged, one_by_one

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL: Final = 8


class CsvParser:
    """Parses batches of CSV values."""

    def __init__(self, schema: pa.Schema, delimiter: str, quote: str) -> None:
        self.schema = schema
        self._delimiter = delimiter
        self._quote = quote
        self._rows = CsvRows(schema, delimiter, quote)

    def parse(self, values: pa.BinaryArray) -> Parsed:
        import pyarrow as pa

        plain = self._plain(values)
        rows, wrong = self._read(values.filter(pa.array(plain))) if plain.sum() >= _SMALL else (None, None)
        if rows is None:
            plain = np.zeros(len(values), bool)
            parts: list[tuple[Any, Any]] = []
        else:
            places = np.flatnonzero(plain)
            if wrong is not None:
                plain[places[wrong]] = False
                rows, places = rows.filter(pa.array(~wrong)), places[~wrong]
            parts = [(places, pa.RecordBatch.from_arrays(rows.columns, schema=self.schema))]
        single = np.flatnonzero(~plain)
        chosen = values.take(pa.array(single)).to_pylist()
        found = one_by_one(self.schema, self._rows.convert, chosen, single.tolist())
        merged_rows, good = merged(self.schema, [*parts, (found.good, found.rows)], len(values))
        return Parsed(merged_rows, good, found.bad, found.reasons)

    def _plain(self, values: pa.BinaryArray) -> Any:
        """Which values are only fields and the right number of delimiters, in UTF-8."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            strings = values.cast(pa.string())
        except pa.ArrowInvalid:  # rare: a value is not UTF-8, so all are parsed one by one
            return np.zeros(len(values), bool)
        right = pc.equal(pc.count_substring(strings, self._delimiter), len(self.schema) - 1)
        for sign in ("\n", "\r", self._quote):
            if sign:
                right = pc.and_(right, pc.invert(pc.match_substring(strings, sign)))
        # pyarrow does not count an empty line at the end.
        right = pc.and_(right, pc.greater(pc.binary_length(values), 0))
        return right.fill_null(False).to_numpy(zero_copy_only=False).copy()

    def _read(self, values: pa.BinaryArray) -> tuple[Any, Any]:
        """The columns of these lines, and a mask of rows that do not fit; (None, None) if pyarrow fails."""
        import pyarrow as pa
        from pyarrow import csv

        text = b"\n".join(values.to_pylist())
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self.schema.names),
                csv.ParseOptions(delimiter=self._delimiter, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(self.schema.names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None, None
        if table.num_rows != len(values):
            return None, None
        arrays, wrong = [], np.zeros(len(values), bool)
        for field, column in zip(self.schema, table.itercolumns(), strict=True):
            array, bad = _typed(column.combine_chunks(), field)
            arrays.append(array)
            if bad is not None:
                wrong |= bad
        loose = pa.schema([field.with_nullable(True) for field in self.schema])
        return pa.RecordBatch.from_arrays(arrays, schema=loose), wrong if wrong.any() else None


def _typed(strings: pa.StringArray, field: Any) -> tuple[pa.Array, Any]:
    """A column of texts in its type, and a mask of rows that do not fit (or None)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = field.type
    wrong = None
    if pa.types.is_integer(kind):
        array, wrong = _numbers(strings, kind, texts.INTEGER)
    elif pa.types.is_floating(kind):
        array, wrong = _numbers(strings, pa.float64(), texts.NUMBER)
        array = array.cast(kind, safe=False)
        infinite = pc.invert(pc.is_finite(array)).fill_null(False).to_numpy(zero_copy_only=False)
        wrong = infinite if wrong is None else wrong | infinite
    elif pa.types.is_boolean(kind):
        lower = pc.utf8_lower(strings)
        array = pc.equal(lower, "true")
        known = pc.or_(array, pc.equal(lower, "false"))
        wrong = pc.invert(known).fill_null(False).to_numpy(zero_copy_only=False)
    elif pa.types.is_string(kind):
        array = strings
    else:
        array, wrong = texts.column(strings, kind)
    if not field.nullable and array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        wrong = missing if wrong is None else wrong | missing
    return array, wrong


def _numbers(strings: pa.StringArray, kind: Any, pattern: str) -> tuple[pa.Array, Any]:
    """Texts of this pattern as numbers; if one of them is too large, all rows are parsed one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = pc.match_substring_regex(strings, f"^(?:{pattern})$")
    wrong = pc.invert(fits).fill_null(False).to_numpy(zero_copy_only=False)
    kept = pc.if_else(fits, strings, None)
    try:
        return kept.cast(kind), wrong if wrong.any() else None
    except pa.ArrowInvalid:
        return pa.nulls(len(strings), kind), np.ones(len(strings), bool)
