"""How ``millstream consume`` prints a record: text, JSON, a table, raw bytes, or the user's template.

Keys and values are decoded here, so that the error names a record that cannot be decoded. On a terminal,
control characters in records are escaped.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream import serde
from millstream.cli.consume.options import FIELDS, FORMATS, VALUE_FORMATS, PrintOptions
from millstream.cli.properties import unescaped
from millstream.errors import ConfigError, DeserializationError
from millstream.model import Header
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import time_text

if TYPE_CHECKING:
    from millstream.consumer import Record

Decoder = Callable[[bytes], Any]
Renderer = Callable[["Record"], bytes]

_BARE_AVRO: Final = {
    "value": "give the schema with --schema",
    "key": "keys of bare Avro cannot be shown",
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class _Decoders(NamedTuple):
    key: Decoder | None
    value: Decoder | None
    group: str | None = None


def renderer(options: PrintOptions, *, on_terminal: bool = False, group: str | None = None) -> Renderer:
    """The function that turns a record into its line; raises UsageError for a bad format.

    ``group`` is the group that reads the records: errors say how to move it past a bad one.
    """
    decoders = _Decoders(
        _decoder(options.key_format, "--key-format", None),
        _decoder(options.value_format, "--value-format", options.schema),
        group,
    )
    if options.fields_before_value and options.format != "text":
        raise UsageError(
            "--keys, --offsets, --timestamps and --headers are for --format text: leave them out"
        )
    if options.format == "json":
        return lambda record: _json_line(record, decoders)
    if options.format == "raw":
        return lambda record: (record.value or b"") + b"\n"
    if options.format == "table":
        return _Table(on_terminal, decoders)
    if options.format == "text":
        return _text_renderer(options.fields_before_value, on_terminal, decoders)
    return _template_renderer(options.format, on_terminal, decoders)


def _decoder(name: str, option: str, schema: Path | None) -> Decoder | None:
    """The decoder of keys or values; None leaves them as text."""
    if schema is not None and name != "avro":
        raise UsageError(f"--schema is for {option} avro: add that, or leave --schema out")
    if name == "text":
        return None
    if name == "hex":
        return bytes.hex
    if name == "base64":
        return lambda raw: base64.b64encode(raw).decode()
    if name == "avro" and schema is not None:
        return _avro(schema)
    if name not in VALUE_FORMATS:
        hint = did_you_mean(name, VALUE_FORMATS) or f"choose one of {', '.join(VALUE_FORMATS)}"
        raise UsageError(f"{option} {name!r} is unknown: {hint}")
    return serde.deserializer(name, option)


def _avro(schema: Path) -> Decoder:
    try:
        return serde.AvroDeserializer(schema.read_text(encoding="utf-8"))
    except (ConfigError, UnicodeDecodeError) as error:
        raise UsageError(f"--schema {str(schema)!r}: {error}") from error


# ---- one field ----


def _way_past(record: Record, group: str | None) -> str:
    """How to continue after a record. A group continues from its commits, which --from does not change."""
    if group is None:
        return f"--from {record.offset + 1}"
    place = f"--topic {record.topic}:{record.partition} --to {record.offset + 1}"
    return f"'millstream group reset {shlex.quote(group)} {place}'"


def _decode(record: Record, part: str, decoders: _Decoders) -> Any:
    raw, decoder = getattr(record, part), getattr(decoders, part)
    if raw is None:
        return None
    try:
        return decoder(raw)
    except Exception as error:  # decoders raise errors of many libraries
        reason = str(error).replace("for bare Avro use AvroDeserializer(schema)", _BARE_AVRO[part])
        past = _way_past(record, decoders.group)
        raise DeserializationError(
            f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be read: "
            f"{reason}. Choose another --{part}-format, or go past it with {past}",
            record.topic,
            record.partition,
            record.offset,
            raw,
        ) from error


def _text(record: Record, part: str, decoders: _Decoders) -> str:
    """A key or value as text. Bytes that are not UTF-8 become escapes."""
    raw = getattr(record, part)
    if raw is None:
        return "null"
    if getattr(decoders, part) is None:
        return str(raw, "utf-8", "backslashreplace")
    value = _decode(record, part, decoders)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _headers_text(headers: tuple[Header, ...]) -> str:
    return ",".join(
        f"{name}=" + ("null" if value is None else value.decode("utf-8", "backslashreplace"))
        for name, value in headers
    )


def _json_field(raw: bytes | None) -> object:
    """Bytes in JSON: text where they are text."""
    if raw is None:
        return None
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def escaped(text: str) -> str:
    """A text for a terminal, with control characters escaped."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _field_texts(record: Record, decoders: _Decoders) -> dict[str, str]:
    return {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "time": time_text(record.timestamp),
        "key": _text(record, "key", decoders),
        "value": _text(record, "value", decoders),
        "headers": _headers_text(record.headers),
    }


# ---- one line ----


def _json_line(record: Record, decoders: _Decoders) -> bytes:
    key, value = (
        _json_field(getattr(record, part)) if decoder is None else _decode(record, part, decoders)
        for part, decoder in (("key", decoders.key), ("value", decoders.value))
    )
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": key,
        "value": value,
        "headers": [[name, _json_field(raw)] for name, raw in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape") + b"\n"


def _text_renderer(before: tuple[str, ...], on_terminal: bool, decoders: _Decoders) -> Renderer:
    if not before and not on_terminal and decoders.value is None:
        return lambda record: (b"null" if record.value is None else record.value) + b"\n"
    finish = escaped if on_terminal else str

    def render(record: Record) -> bytes:
        texts = _field_texts(record, decoders)
        return ("\t".join(finish(texts[name]) for name in (*before, "value")) + "\n").encode()

    return render


def _template_renderer(format: str, on_terminal: bool, decoders: _Decoders) -> Renderer:
    template = unescaped(format)
    _check_template(template)
    finish = escaped if on_terminal else str

    def render(record: Record) -> bytes:
        texts = {name: finish(text) for name, text in _field_texts(record, decoders).items()}
        return (template.format_map(texts) + "\n").encode()

    return render


def _check_template(template: str) -> None:
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
        template.format_map(dict.fromkeys(FIELDS, ""))
    except (ValueError, KeyError, IndexError, AttributeError):
        names = ["?"]
    if not names:
        examples = f"write {', '.join(FORMATS)}, or a template like {{key}}: {{value}}"
        hint = did_you_mean(template, FORMATS) or examples
        raise UsageError(f"--format {template!r} is unknown: {hint}")
    if not set(names) <= set(FIELDS):
        raise UsageError(
            f"--format {template!r} is not a template: its fields can be {{{'}, {'.join(FIELDS)}}}"
        )


class _Table:
    """Rows under one header. On a terminal each row is one line, cut to its width."""

    def __init__(self, on_terminal: bool, decoders: _Decoders) -> None:
        self._decoders = decoders
        self._on_terminal = on_terminal
        self._header_due = True

    def __call__(self, record: Record) -> bytes:
        texts = _field_texts(record, self._decoders)
        header = {name: name.upper() for name in FIELDS}
        if self._on_terminal:
            time = texts["time"]
            header |= {"partition": "PART", "second": "TIME"}
            texts["second"] = f"{time[:10]} {time[11:19]}" if time.endswith("Z") else time
        line = self._line(texts)
        if self._header_due:
            self._header_due = False
            line = self._line(header) + line
        return line.encode()

    def _line(self, texts: dict[str, str]) -> str:
        room = _terminal_columns() if self._on_terminal else _ANY_WIDTH
        columns = next(columns for least, columns in _COLUMNS if room >= least)
        cells = [
            self._cell(texts[name], width, to_the_right=name in ("partition", "offset"))
            for name, width in columns
        ]
        left = room - sum(width + 2 for _, width in columns)
        cells.append(self._cut(escaped(texts["value"]), left))
        return "  ".join(cells).rstrip() + "\n"

    def _cell(self, text: str, width: int, *, to_the_right: bool) -> str:
        cell = self._cut(escaped(text), width)
        blank = " " * (width - _cells(cell))
        return blank + cell if to_the_right else cell + blank

    def _cut(self, text: str, width: int) -> str:
        """Cut a text to ``width`` columns on a terminal. Some characters are two columns wide."""
        if not self._on_terminal or _cells(text) <= width:
            return text
        from rich.cells import set_cell_size

        return set_cell_size(text, width - 1).rstrip() + "…"


_ANY_WIDTH: Final = 1 << 30
_COLUMNS: Final = (
    (_ANY_WIDTH, (("topic", 16), ("partition", 9), ("offset", 9), ("time", 24), ("key", 16))),
    (100, (("topic", 16), ("partition", 4), ("offset", 9), ("time", 24), ("key", 16))),
    (72, (("topic", 10), ("partition", 4), ("offset", 8), ("second", 19), ("key", 8))),
    (0, (("partition", 4), ("offset", 6), ("key", 6))),
)
"""The columns before the value and their widths, by the least width of the terminal."""


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _terminal_columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
