"""``--select``, ``--where`` and ``--limit`` over record batches.

A condition is one of a load's simple checks: comparisons of columns with constants, IN, BETWEEN, LIKE and
IS NULL, joined by AND, OR and NOT, with Spark's semantics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from millstream.spark.load.pipeline import check_parser
from millstream.spark.load.pipeline.check_parser import NotSimpleError
from millstream.spark.load.pipeline.checks import compile_check
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_ITEM: Final = re.compile(
    r"\s*(?P<path>`[^`]+`|[\w.]+)\s*(?:\bAS\s+(?P<name>`[^`]+`|\w+)\s*)?(?:,|$)", re.IGNORECASE
)
_CAN: Final = (
    "compare columns with constants, by = != < <= > >= IN BETWEEN LIKE or IS NULL, with AND, OR and NOT"
)

Step = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with text where it has a dictionary of texts."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return pa.schema(fields)


def plain(schema: pa.Schema) -> Step:
    """Makes batches of ``plain_schema``."""
    import pyarrow as pa

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return step


def where(condition: str, schema: pa.Schema) -> Step:
    """Keeps the rows for which the condition is true; raises UsageError for one that is not understood."""
    names = check_parser.names_in(condition)
    for name in names:
        if name not in schema.names:
            raise UsageError(f"--where {condition!r}: {_no_column(name, schema)}")
    try:
        evaluate = compile_check(condition, schema)
    except NotSimpleError:
        raise UsageError(f"--where {condition!r} is not understood: {_hint(names, schema)}") from None
    return lambda batch: batch.filter(evaluate(batch))


def _hint(names: Iterable[str], schema: pa.Schema) -> str:
    import pyarrow as pa

    for name in names:
        kind = schema.field(name).type
        if pa.types.is_binary(kind):
            option = "--key-format" if name.endswith("key") else "--value-format"
            return f"{name} holds bytes: decode it, as with {option} string"
        if pa.types.is_timestamp(kind):
            return f"{name} is a time: choose times with --from and --until"
    return f"{_CAN}; for more, query the scan with DuckDB in Python"


def _no_column(name: str, schema: pa.Schema) -> str:
    hint = did_you_mean(name, schema.names) or f"there are {', '.join(schema.names)}"
    return f"there is no column {name!r}: {hint}"


def select(columns: str, schema: pa.Schema) -> tuple[pa.Schema, Step]:
    """The chosen columns, and what makes batches of them; raises UsageError for a missing column."""
    import pyarrow as pa

    chosen = [_chosen(path, name, schema) for path, name in _items(columns)]
    names = [field.name for field, _ in chosen]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--select {columns!r} names {name} twice: rename one with AS")
    found = pa.schema([field for field, _ in chosen])
    return found, lambda batch: pa.RecordBatch.from_arrays([take(batch) for _, take in chosen], schema=found)


def _items(columns: str) -> Iterator[tuple[str, str | None]]:
    at = 0
    while at < len(columns.rstrip()) or at == 0:
        match = _ITEM.match(columns, at)
        if match is None:
            raise UsageError(
                f"--select {columns!r} is not a list of columns: write names with commas between them, such "
                "as 'id, a.b AS b', and others in `backquotes`"
            )
        yield match["path"].strip("`"), match["name"] and match["name"].strip("`")
        at = match.end()


def _chosen(path: str, name: str | None, schema: pa.Schema) -> tuple[Any, Callable[[pa.RecordBatch], Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if path in schema.names:
        field = schema.field(path)
        return field.with_name(name or path), lambda batch: batch.column(path)
    first, *inner = path.split(".")
    if first not in schema.names:
        raise UsageError(f"--select: {_no_column(first, schema)}")
    kind = schema.field(first).type
    for step in inner:
        there = [field.name for field in kind] if pa.types.is_struct(kind) else []
        if step not in there:
            hint = did_you_mean(step, there) or (
                f"there are {', '.join(there)}" if there else "it is no struct"
            )
            raise UsageError(f"--select: there is no field {step!r} in {path}: {hint}")
        kind = kind.field(step).type
    field = pa.field(name or path, kind)
    return field, lambda batch: pc.struct_field(batch.column(first), inner)


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Batches up to ``limit`` rows, none of them empty."""
    left = limit
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            if left:
                yield batch.slice(0, left)
            return
        if batch.num_rows:
            yield batch
        left = None if left is None else left - batch.num_rows
