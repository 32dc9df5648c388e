"""Keys, values and headers of other people's records, safe to look at: bounded, and never altered.

UTF-8 is shown as text, JSON among it indented (its tokens stay as they were written: no number is rounded, no
repeated name dropped), everything else as hexadecimal digits. Characters that would hide or reorder text are
shown as escapes. Escaping for HTML is the templates' work.
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
"""JSON of so many characters is read as well on one line, and a page of records better."""
_JSON_GROWTH: Final = 8
"""How many times longer than its bytes indented JSON may be: deep nesting grows with its square."""

_BINARY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_HIDING: Final = frozenset({"Cf", "Zl", "Zp", "Co", "Cs"})
"""Categories of characters that are not seen, or that change the order of others."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as a page shows them. ``kind``: null, empty, text, json or hex."""

    kind: str
    text: str
    size: int
    """Of all the bytes there are, of which ``text`` may show the first only."""
    is_cut: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "bytes": self.size, "cut": self.is_cut}


def shown(raw: bytes | None, limit: int) -> Shown:
    """At most the first ``limit`` bytes, in the best form there is."""
    if raw is None:
        return Shown("null", "", 0)
    if not raw:
        return Shown("empty", "", 0)
    text = _text(raw, limit)
    if text is None:
        few = min(limit, _HEX_BYTES)
        return Shown("hex", raw[:few].hex(" "), len(raw), len(raw) > few)
    if len(raw) <= limit and (pretty := _pretty(text)) is not None:
        return Shown("json", visible(pretty), len(raw))
    return Shown("text", visible(text), len(raw), len(raw) > limit)


def visible(text: str) -> str:
    """A text in which nothing hides: marks of direction and the like become escapes."""
    if text.isascii():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _HIDING else each for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _text(raw: bytes, limit: int) -> str | None:
    """The first bytes as text; None where they are none."""
    head = raw[:limit]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # A character that the limit cuts through is no reason to call it binary.
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
    """One token with the white space that belongs to it, and how deep the next one stands."""
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
