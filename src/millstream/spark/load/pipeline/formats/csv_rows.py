"""Parses CSV values one by one: this defines the format. ``csv`` does the same in blocks.

A value is one line without a header; the schema names its fields, in order. A field may be quoted, and then
it may hold delimiters, line breaks and doubled quotes. An empty field is null; an empty field in quotes
is an empty text. Nothing is trimmed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats import texts
from millstream.spark.load.pipeline.formats.json_rows import described, rounded
from millstream.spark.load.pipeline.formats.parsed import RejectError, decoded

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGER: Final = re.compile(texts.INTEGER)
_NUMBER: Final = re.compile(texts.NUMBER)
_LONGEST_INTEGER: Final = 40


class CsvRows:
    """Parses one value at a time."""

    def __init__(self, schema: pa.Schema, delimiter: str, quote: str) -> None:
        self.schema = schema
        self._delimiter = delimiter
        self._quote = quote
        self._columns = [(field, _reader(field)) for field in schema]

    def convert(self, raw: bytes | None) -> list[Any]:
        """The values of the columns; raises RejectError with all problems."""
        fields = self._fields(raw)
        if len(fields) != len(self._columns):
            raise RejectError(f"expected {len(self._columns)} fields, got {len(fields)}")
        row: list[Any] = []
        problems: list[str] = []
        for text, (field, read) in zip(fields, self._columns, strict=True):
            if text is None:
                row.append(None)
                if not field.nullable:
                    problems.append(f"{field.name}: null, but the column is NOT NULL")
                continue
            try:
                row.append(read(text))
            except ValueError:
                kind = ddl.type_name(field.type)
                problems.append(f"{field.name}: expected {kind}, got {described(text)}")
        if problems:
            raise RejectError("; ".join(problems))
        return row

    def _fields(self, raw: bytes | None) -> list[str | None]:
        text = decoded(raw)
        return _split(text.removesuffix("\n").removesuffix("\r"), self._delimiter, self._quote)


def _split(text: str, delimiter: str, quote: str) -> list[str | None]:
    if not quote or quote not in text:
        if "\n" in text or "\r" in text:
            raise RejectError("a line break outside of quotes: a value is one line")
        return [field or None for field in text.split(delimiter)]
    fields: list[str | None] = []
    at = 0
    while True:
        if text.startswith(quote, at):
            field, at = _quoted(text, at + 1, quote)
            fields.append(field)
        else:
            end = text.find(delimiter, at)
            end = len(text) if end < 0 else end
            fields.append(_bare(text[at:end], quote))
            at = end
        if at == len(text):
            return fields
        if text[at] != delimiter:
            raise RejectError(f"a closing quote at position {at - 1} is followed by something else")
        at += 1


def _bare(text: str, quote: str) -> str | None:
    if quote in text:
        raise RejectError("a quote in the middle of a field that is not quoted")
    if "\n" in text or "\r" in text:
        raise RejectError("a line break outside of quotes: a value is one line")
    return text or None


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    """The quoted field that begins at ``at``, and the index after it."""
    parts: list[str] = []
    while True:
        end = text.find(quote, at)
        if end < 0:
            raise RejectError("a quoted field that does not end")
        parts.append(text[at:end])
        if not text.startswith(quote, end + 1):
            return quote.join(parts), end + 1
        at = end + 2


def _reader(field: Any) -> Callable[[str], Any]:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_nested(kind):
        raise ConfigError(
            f"schema: CSV cannot hold {ddl.type_name(kind)} ({field.name}): use JSON", setting="schema"
        )
    if pa.types.is_string(kind):
        return str
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_floating(kind):
        return _float(single=kind.bit_width == 32)
    found = texts.reader(kind)
    assert found is not None
    return found


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text) or len(text) > _LONGEST_INTEGER:
            raise ValueError
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError
        return number

    return read


def _float(*, single: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        number = float(text)
        if single and math.isfinite(number):
            number = rounded(number)
        if not math.isfinite(number):
            raise ValueError
        return number

    return read
