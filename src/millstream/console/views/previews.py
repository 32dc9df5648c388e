"""Previews of keys, values and headers: bounded, with nothing hidden and nothing altered.

UTF-8 becomes text. JSON is indented token by token, so no number is rounded and no repeated name dropped.
Everything else becomes hexadecimal digits. Characters that hide or reorder text become escapes. Templates
escape for HTML.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

_HEX_BYTES: Final = 256
_INDENT: Final = "  "
_ONE_LINE: Final = 60
"""JSON of at most this length stays on one line."""
_JSON_GROWTH: Final = 8
"""How many times longer than its bytes indented JSON may be: deep nesting grows with its square."""

_BINARY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_HIDING: Final = frozenset({"Cf", "Zl", "Zp", "Co", "Cs"})
"""Unicode categories of characters that are invisible or reorder others."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Bytes as text. ``kind`` is null, empty, text, json or hex."""

    kind: str
    text: str
    size: int
    """The number of all bytes; ``text`` may show only the first."""
    is_cut: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "bytes": self.size, "cut": self.is_cut}


def preview(raw: bytes | None, limit: int) -> Preview:
    """The first ``limit`` bytes at most, in the most readable form."""
    if raw is None:
        return Preview("null", "", 0)
    if not raw:
        return Preview("empty", "", 0)
    text = _text(raw, limit)
    if text is None:
        few = min(limit, _HEX_BYTES)
        return Preview("hex", raw[:few].hex(" "), len(raw), len(raw) > few)
    if len(raw) <= limit and (pretty := _pretty(text)) is not None:
        return Preview("json", visible(pretty), len(raw))
    return Preview("text", visible(text), len(raw), len(raw) > limit)


def visible(text: str) -> str:
    """The text with invisible and reordering characters, such as direction marks, as escapes."""
    if text.isascii():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _HIDING else each for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _text(raw: bytes, limit: int) -> str | None:
    """The first ``limit`` bytes as text; None if they are not text."""
    head = raw[:limit]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # The limit may cut through a character: that does not make it binary.
        if len(raw) <= limit or error.start < len(head) - 3 or error.start == 0:
            return None
        text = head[: error.start].decode()
    return None if _BINARY.search(text) else text


def _pretty(text: str) -> str | None:
    """A JSON object or array, indented; None if it is neither."""
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    if len(text) <= _ONE_LINE and "\n" not in text:
        return text
    pieces: list[str] = []
    depth, length, most = 0, 0, _JSON_GROWTH * len(text) + 1024
    tokens = [token for token in _TOKEN.findall(text) if not token.isspace()]
    for place in range(len(tokens)):
        piece, depth = _laid_out(tokens, place, depth)
        pieces.append(piece)
        length += len(piece)
        if length > most:
            return None
    return "".join(pieces)


def _laid_out(tokens: list[str], place: int, depth: int) -> tuple[str, int]:
    """One token with its white space, and the depth of the next one."""
    token = tokens[place]
    if token in "{[":
        is_empty = tokens[place + 1] in "}]"
        return (token, depth + 1) if is_empty else (f"{token}\n{_INDENT * (depth + 1)}", depth + 1)
    if token in "}]":
        was_empty = tokens[place - 1] in "{["
        return (token, depth - 1) if was_empty else (f"\n{_INDENT * (depth - 1)}{token}", depth - 1)
    if token == ",":
        return f",\n{_INDENT * depth}", depth
    return (": ", depth) if token == ":" else (token, depth)
