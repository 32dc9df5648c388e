"""What a format's parser returns: good rows as columns, and a reason for each rejected value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

NULL_VALUE: Final = "null value"
"""The reason of a record without a value (a tombstone)."""
_LONGEST_REASON: Final = 500


class RejectError(Exception):
    """A value is rejected; the message is the reason that is stored."""


class BadColumnError(Exception):
    """A value does not fit its column: ``path`` names the column, the message says why."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The values of one batch. The indexes in ``good`` and ``bad`` are sorted, and together they are all."""

    rows: pa.RecordBatch
    good: NDArray[np.int64] | None
    """The index of each row's value in the batch; None if all are good."""
    bad: list[int]
    reasons: list[str]


class Parser(Protocol):
    """Parses values of one format. One per task, used by one thread."""

    schema: pa.Schema

    def parse(self, values: pa.BinaryArray) -> Parsed: ...


Convert = Callable[[bytes | None], list[Any]]
"""One value to the values of its columns; raises RejectError."""
ConvertField = Callable[[Any, str], Any]
"""A field's value, and the path of its column, to what Arrow accepts; raises BadColumnError."""


def converted(found: Mapping[str, Any], columns: Iterable[tuple[str, ConvertField]]) -> list[Any]:
    """The values of the columns, from the fields of a record; raises RejectError with all problems."""
    row: list[Any] = []
    problems: list[str] = []
    for name, convert in columns:
        try:
            row.append(convert(found.get(name), name))
        except BadColumnError as error:
            problems.append(str(error))
    if problems:
        raise RejectError("; ".join(problems))
    return row


def not_null(field: Any, convert: ConvertField) -> ConvertField:
    """``convert`` for values that are not null; a null is rejected if the field is NOT NULL."""
    needed = not field.nullable

    def read(value: Any, path: str) -> Any:
        if value is not None:
            return convert(value, path)
        if needed:
            raise BadColumnError(path, "null, but the column is NOT NULL")
        return None

    return read


def decoded(raw: bytes | None) -> str:
    """The text of a value in UTF-8; raises RejectError."""
    if raw is None:
        raise RejectError(NULL_VALUE)
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise RejectError(f"not UTF-8: byte 0x{byte:02x} at position {error.start}") from error


@dataclass(slots=True)
class RowsParsed:
    """Values that were parsed one by one."""

    rows: pa.RecordBatch
    good: list[int]
    bad: list[int]
    reasons: list[str]


def one_by_one(
    schema: pa.Schema, convert: Convert, values: Sequence[bytes | None], places: Iterable[int]
) -> RowsParsed:
    """Parse these values one by one: this defines the meaning of a format."""
    good: list[int] = []
    bad: list[int] = []
    reasons: list[str] = []
    found: list[list[Any]] = []
    for place, value in zip(places, values, strict=True):
        try:
            found.append(convert(value))
            good.append(place)
        except RejectError as error:
            bad.append(place)
            reasons.append(shortened(str(error)))
    return RowsParsed(_batch(schema, found), good, bad, reasons)


def shortened(reason: str) -> str:
    """A reason, truncated if it is very long; always valid Unicode, whatever it quotes."""
    if not reason.isascii():
        reason = reason.encode(errors="backslashreplace").decode()
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"


def _batch(schema: pa.Schema, found: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    columns: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) if found else [[]] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def merged(schema: pa.Schema, parts: Sequence[tuple[Any, pa.RecordBatch]], total: int) -> Any:
    """Rows of several parts, in the order of their indexes: the batch, and the indexes (None: all)."""
    import numpy as np
    import pyarrow as pa

    parts = [(places, batch) for places, batch in parts if batch.num_rows]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema), np.empty(0, np.int64)
    places = np.concatenate([np.asarray(places, np.int64) for places, _ in parts])
    table = pa.Table.from_batches([batch for _, batch in parts], schema).combine_chunks()
    if len(parts) > 1 and not bool(np.all(places[1:] > places[:-1])):
        order = np.argsort(places, kind="stable")
        table, places = table.take(pa.array(order)), places[order]
        table = table.combine_chunks()
    return table.to_batches()[0], None if len(places) == total else places
