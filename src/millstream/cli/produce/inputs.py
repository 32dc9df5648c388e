"""What ``millstream produce`` reads: lines, JSON lines, CSV, or what ``millstream consume --json`` prints.

Each reader turns a stream of bytes into drafts, one at a time, so that a file of any size and a terminal both
work. Bad input raises InputError, which names the line.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from millstream.cli.produce.options import InputFormat, InputOptions
from millstream.model import Header
from millstream.terminal.outcome import CommandError


class InputError(CommandError):
    """A line of the input cannot be read."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record to be sent. Without a timestamp it gets the time at which it is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    line: int = field(default=0, compare=False)
    """The last line of the input that it was read from, from 1."""


def read_drafts(stream: BinaryIO, options: InputOptions) -> Iterator[Draft]:
    """Read records from a stream until it ends."""
    return _READERS[options.format or InputFormat.LINES](stream, options)


def _read_lines(stream: BinaryIO, options: InputOptions) -> Iterator[Draft]:
    """Each line is a value, even if empty; with a separator, a key and a value."""
    separator = None if options.key_separator is None else options.key_separator.encode()
    for number, line in enumerate(stream, start=1):
        text = _without_newline(line)
        if separator is None:
            yield Draft(text, line=number)
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise InputError(
                f"line {number} has no key separator {options.key_separator!r}: "
                "fix it, or leave out --key-separator"
            )
        yield Draft(value, key, line=number)


def _read_json(stream: BinaryIO, options: InputOptions) -> Iterator[Draft]:
    """Each line is a JSON value and is sent as it is; empty lines are left out."""
    for number, line, value in _json_lines(stream):
        if options.key is None:
            yield Draft(line, line=number)
        else:
            yield Draft(line, _key_bytes(_field(value, options.key, number)), line=number)


def _read_csv(stream: BinaryIO, options: InputOptions) -> Iterator[Draft]:
    """The first row names the columns; each further row is sent as a JSON object of strings."""
    rows = _csv_rows(stream, options.delimiter)
    _, columns = next(rows, (0, []))
    if options.key is not None and columns and options.key not in columns:
        raise InputError(
            f"there is no column {options.key!r} for --key: the columns are {', '.join(columns)}"
        )
    for number, row in rows:
        if not row:
            continue
        if len(row) != len(columns):
            raise InputError(
                f"line {number} has {len(row)} fields where the header has {len(columns)}: fix it, "
                "or choose another --delimiter"
            )
        record = dict(zip(columns, row, strict=True))
        key = None if options.key is None else record[options.key].encode()
        yield Draft(json.dumps(record, ensure_ascii=False).encode(), key, line=number)


def _csv_rows(stream: BinaryIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the last line, and the fields, of each row."""
    # A byte order mark, as spreadsheets write it, is not part of the first column's name.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is not CSV ({error}): fix it") from None
    except UnicodeDecodeError:
        raise InputError(f"after line {reader.line_num} the text is not UTF-8: convert it") from None
    finally:
        text.detach()


def _read_records(stream: BinaryIO, options: InputOptions) -> Iterator[Draft]:
    """Each line is an object with value, and optionally key, headers and timestamp."""
    for number, _, record in _json_lines(stream):
        if not isinstance(record, dict) or "value" not in record:
            raise InputError(
                f"line {number} is not a record: write objects with value, and optionally key, headers "
                "and timestamp"
            )
        timestamp = record.get("timestamp")
        if timestamp is not None and (not isinstance(timestamp, int) or isinstance(timestamp, bool)):
            raise InputError(f"line {number} has a timestamp that is not in whole milliseconds: fix it")
        yield Draft(
            _field_bytes(record["value"], number),
            _field_bytes(record.get("key"), number),
            tuple(_headers(record.get("headers") or [], number)),
            timestamp,
            number,
        )


def _headers(headers: Any, number: int) -> Iterator[Header]:
    """Headers as ``[[name, value], …]``, in order, or as an object."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(f"line {number} has headers that are not pairs of a name and a value: fix it")
        yield pair[0], _field_bytes(pair[1], number)


def _json_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes, Any]]:
    """Number, bytes and JSON value of each line that is not empty."""
    for number, line in enumerate(stream, start=1):
        text = _without_newline(line)
        if not text.strip():
            continue
        try:
            yield number, text, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"line {number} is not JSON ({error}): fix it, or send lines as they are with --format lines"
            ) from None


def _without_newline(line: bytes) -> bytes:
    r"""A line without its end, ``\n`` or, from Windows, ``\r\n``. A ``\r`` elsewhere belongs to the line."""
    return line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


def _field(value: Any, path: str, number: int) -> Any:
    """A field of a JSON object, where dots lead into objects inside it."""
    found = value
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            raise InputError(f"line {number} has no field {path!r} for --key: fix it, or name another field")
        found = found[name]
    return found


def _key_bytes(key: Any) -> bytes | None:
    """A key from JSON: a string as UTF-8, anything else as its JSON; null is no key."""
    if key is None:
        return None
    if isinstance(key, str):
        return key.encode()
    return json.dumps(key, ensure_ascii=False, separators=(",", ":")).encode()


def _field_bytes(field: Any, number: int) -> bytes | None:
    """The bytes of a printed key or value: text, ``{"base64": …}`` for binary data, or other JSON."""
    if isinstance(field, dict) and field.keys() == {"base64"}:
        try:
            return base64.b64decode(field["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InputError(f"line {number} has a field that is not base64: fix it") from None
    return _key_bytes(field)


_READERS: Final[Mapping[InputFormat, Callable[[BinaryIO, InputOptions], Iterator[Draft]]]] = {
    InputFormat.LINES: _read_lines,
    InputFormat.JSON: _read_json,
    InputFormat.CSV: _read_csv,
    InputFormat.RECORDS: _read_records,
}
